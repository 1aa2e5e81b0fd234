// The kinds of collective operations: one row each. The row has all that code needs to know of a
// kind, so a new kind is a value of Kind, a row, and an algorithm in ops/algorithms.
//
// Plain data. The numeric values of Kind are part of the C API and of the wire format: append,
// never renumber (c_api.cc asserts that covey.h agrees).
#ifndef COVEY_CORE_BASE_COLLECTIVE_H_
#define COVEY_CORE_BASE_COLLECTIVE_H_

#include <cstdint>

namespace covey {

enum class Kind : uint8_t {
  kAllreduce = 0,
  kBroadcast = 1,
  kAllgather = 2,
  kBarrier = 3,
  kReducescatter = 4,
  kAlltoall = 5,
  kJoin = 6,
  kNeighborAllreduce = 7,
  kGather = 8
};
inline constexpr int kNumKinds = 9;

// The content of a rank's output, in rank order.
enum class OutputRule : uint8_t {
  kNone,       // there are no tensors
  kReduction,  // op over the inputs of all ranks
  kMix,        // the weighted sum of the inputs that this rank takes
  kRootInput,  // the root's input
  kInputs,     // the input of every rank
  kBlocks,     // the rows that every rank has for this one
};

// How dimension 0 of an output follows from dimension 0 of the inputs.
enum class RowRule : uint8_t {
  kSame,      // outputs have the inputs' shape, and may be the inputs
  kPart,      // this rank's part of the rows, as even as possible (PartBegin)
  kGathered,  // may differ between ranks: all begins together tell the size, so the runtime
              // allocates the result
};

// Which ranks read and write user memory.
enum class RootRule : uint8_t {
  kNone,   // all ranks give and get alike; a request has no root
  kGives,  // only the root's input is read
  kGets,   // only the root has a result; the others' has no rows
};

// The words that travel with the begin, one row for each member.
enum class BeginTable : uint8_t {
  kNone,
  kSplits,   // rows of the input for each member
  kWeights,  // core/base/neighbor_weights.h
};

struct Collective {
  Kind kind;
  const char* name;
  OutputRule output = OutputRule::kNone;
  RowRule rows = RowRule::kSame;
  RootRule root = RootRule::kNone;
  BeginTable table = BeginTable::kNone;
  bool takes_codec = false;  // float32 may be encoded before it travels
  bool fuses = false;        // small ones may travel together as a bundle
  // A rank that has joined takes part, with the identity element of the reduction.
  bool admits_joined = false;
  const char* on_rows = "";  // its effect on dimension 0, in messages; "": scalars are taken
};

inline constexpr Collective kCollectives[kNumKinds] = {
    {.kind = Kind::kAllreduce,
     .name = "allreduce",
     .output = OutputRule::kReduction,
     .takes_codec = true,
     .fuses = true,
     .admits_joined = true},
    {.kind = Kind::kBroadcast,
     .name = "broadcast",
     .output = OutputRule::kRootInput,
     .root = RootRule::kGives},
    {.kind = Kind::kAllgather,
     .name = "allgather",
     .output = OutputRule::kInputs,
     .rows = RowRule::kGathered,
     .on_rows = "concatenates on"},
    {.kind = Kind::kBarrier, .name = "barrier", .admits_joined = true},
    {.kind = Kind::kReducescatter,
     .name = "reducescatter",
     .output = OutputRule::kReduction,
     .rows = RowRule::kPart,
     .on_rows = "splits"},
    {.kind = Kind::kAlltoall,
     .name = "alltoall",
     .output = OutputRule::kBlocks,
     .rows = RowRule::kGathered,
     .table = BeginTable::kSplits,
     .on_rows = "splits"},
    {.kind = Kind::kJoin, .name = "join"},
    {.kind = Kind::kNeighborAllreduce,
     .name = "neighbor_allreduce",
     .output = OutputRule::kMix,
     .table = BeginTable::kWeights,
     .takes_codec = true},
    {.kind = Kind::kGather,
     .name = "gather",
     .output = OutputRule::kInputs,
     .rows = RowRule::kGathered,
     .root = RootRule::kGets,
     .on_rows = "concatenates on"},
};

constexpr const Collective& TraitsOf(Kind kind) { return kCollectives[static_cast<int>(kind)]; }
constexpr const char* NameOf(Kind kind) { return TraitsOf(kind).name; }

constexpr bool HasTensors(Kind kind) { return TraitsOf(kind).output != OutputRule::kNone; }
// Whether contributions are combined, so that op and scales mean something.
constexpr bool Reduces(Kind kind) { return TraitsOf(kind).output == OutputRule::kReduction; }
// Whether contributions are combined with weights of each rank's own.
constexpr bool Mixes(Kind kind) { return TraitsOf(kind).output == OutputRule::kMix; }
// Whether results are computed from the elements: dtypes matter, and NaN spreads.
constexpr bool Computes(Kind kind) { return Reduces(kind) || Mixes(kind); }
constexpr bool Gathers(Kind kind) { return TraitsOf(kind).rows == RowRule::kGathered; }
// Whether each rank gets a part of the rows: outputs never are inputs.
constexpr bool Scatters(Kind kind) { return TraitsOf(kind).rows == RowRule::kPart; }
constexpr bool HasRoot(Kind kind) { return TraitsOf(kind).root != RootRule::kNone; }
// Whether the input of a rank is read, and whether it has a result.
constexpr bool Gives(Kind kind, bool is_root) {
  return HasTensors(kind) && (is_root || TraitsOf(kind).root != RootRule::kGives);
}
constexpr bool Gets(Kind kind, bool is_root) {
  return HasTensors(kind) && (is_root || TraitsOf(kind).root != RootRule::kGets);
}

constexpr bool IsInOrder() {
  for (int i = 0; i < kNumKinds; ++i)
    if (kCollectives[i].kind != static_cast<Kind>(i)) return false;
  return true;
}
static_assert(IsInOrder(), "row i of kCollectives is that of kind i");

}  // namespace covey
#endif  // COVEY_CORE_BASE_COLLECTIVE_H_
