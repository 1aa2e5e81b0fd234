// A schedule: the steps of one rank for one collective, as data.
//
// A list of steps in program order. Steps name buffers and offsets, never pointers, so a schedule
// can be cached, printed, verified for all ranks together (core/plan/verify.h) and run over any
// memory. It is not a thread of control: the executor holds a cursor into it and leaves it whenever
// a kWait is not yet satisfied.
//
// Progress between ranks is one counter per rank, its *tick*, local to the exchange: 1 = begun (the
// first segments, if any, lie in its landing slots). kSignal raises the own tick, kWait waits for
// others' ticks.
//
// Invariants, which core/plan/verify.h proves for every algorithm and tests/sim tries under random
// interleavings of ranks:
//  plan-S1. Before the first step runs, every rank's tick is known to be >= 1 (agree-N4: all have
//      begun).
//  plan-S2. Bytes another rank wrote are read only after a kWait that follows, through signals,
//      their writing.
//  plan-S3. Bytes another rank may still read are not overwritten; also by the next exchange on the
//      same channel.
//  plan-S4. At the end of rank r's steps no rank reads or writes r's user memory any more.
//  plan-S5. All ranks use the same number of ticks and landing slots.
#ifndef COVEY_CORE_PLAN_SCHEDULE_H_
#define COVEY_CORE_PLAN_SCHEDULE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/channel.h"
#include "core/base/collective.h"
#include "core/base/encoded_layout.h"
#include "core/base/types.h"

namespace covey {

// Where bytes live. kInput/kOutput of another rank exist only where its placement says so (arena
// memory).
enum class Place : uint8_t { kInput, kOutput, kLanding };

inline constexpr int16_t kEveryRank =
    -1;                                  // as Buffer::index: one buffer per member, in group order
inline constexpr int16_t kOwnHost = -2;  // as Step::peer of kSignal

struct Buffer {
  Place place = Place::kInput;
  int16_t index = 0;    // whose, by group index
  uint32_t slot = 0;    // kLanding: which slot, counted from the exchange's first
  uint64_t offset = 0;  // bytes
};

enum class StepKind : uint8_t {
  kCopy,    // dst = src
  kReduce,  // dst = post * op over src.index 0..n-1 of pre * src, which lie in landing slots or in
            // inputs in the arena; dst.index kEveryRank: written to each output. In landing slots
            // the own contribution is not read, but the same bytes of the own input, from
  // input_offset on: memory that peers are reading is slow, memory read just before is fast.
  kFetch,  // dst = src, which lies in the private memory of src.index
  // Own output + dst.offset = post * op over ranks of pre * contribution: the own input, and the
  // peers' bytes in landing[me].0, `stride` bytes apart, in rank order without the own.
  kReduceFetched,
  kBeginSum,     // dst = pre * own input, in the accumulator type
  kAddToSum,     // dst = src op pre * own input; dst and src in the accumulator type
  kFinishSum,    // dst = post * src; src in the accumulator type
  kCombineSums,  // dst = src op also; all in the accumulator type; dst may be one of them
  kSumHost,      // dst, in the own landing slots and in the accumulator type, = op over the members
                 // of the own host (Schedule::host) of pre * contribution, in group order: the own
                 // input from input_offset on, the others' bytes in src, in landing slots
  kEncode,       // dst, in the own landing slots, = the own input from input_offset on, encoded
  kReduceCoded,  // as kReduce, of what kEncode made of the same bytes in src on every rank
  kEncodeSum,    // dst = src, encoded; both in the own landing slots, src in the accumulator type
                 // and of the bytes of the message from input_offset on
  kDecodeSum,    // dst, in the own landing slots, = what kEncodeSum made in src, decoded
  kAddDecoded,   // dst, in the own landing slots, = dst op that
  kMix,  // own output + dst.offset = the sum, in rank order, of weight * contribution over those
         // the own row names: the own input from input_offset on, the others' bytes in src, in
         // landing slots; src.index kEveryRank
  kMixCoded,  // own output + dst.offset = the own input from input_offset on + the sum, in rank
              // order, of weight * (what kEncode made of a peer's same bytes - of the own) over the
              // peers the own row names; src as of kMix
  kPush,      // `peer` (kEveryRank: every other) gets src, in the own landing slots, with the next
              // kSignal; only where memory is mirrored. src in the own input: every other gets that
              // as dst, in the own landing slots
  kSignal,    // own tick = `tick`; tells the members that Schedule::reach names, or of them those
              // of the own host alone (peer kOwnHost): the others learn of it with a later signal
  kWait,      // until the tick of `peer` (kEveryRank: of all) >= `tick`
};

struct Step {
  StepKind kind = StepKind::kWait;
  bool streaming = false;  // kCopy, kReduce: store around the cache
  int16_t peer = kEveryRank;
  uint32_t tick = 0;
  Buffer dst;
  Buffer src;
  Buffer also;          // kCombineSums
  uint64_t stride = 0;  // kReduceFetched
  uint64_t input_offset =
      0;  // kReduce of slots, kBeginSum, kAddToSum, kEncode, kMix, kMixCoded: of the own;
          // kEncodeSum: of the message
  uint64_t length_bytes = 0;  // of the message, not of the accumulators or codes
};

struct Schedule {
  const char* algorithm = "";
  std::vector<Step> steps;
  std::vector<Step> begin_pushes;  // kPush: the pushes that go with the begin
  uint32_t ticks = 1;              // ticks used; the last is reached by every rank
  uint32_t slots = 0;              // landing slots used
  // Members touch each other's inputs or outputs. Equal on all of them: after a loss none ends
  // before all have stopped.
  bool touches_peers = false;
  bool puts_input = false;     // the network reads the own input (kPush)
  bool reads_begin = true;     // some step needs the first segments in the landing slots
  std::vector<int16_t> host;   // members of the own host, the own one too, in group order
  std::vector<int16_t> reach;  // members that wait for ticks of this rank; empty: every one does
};

// Common knowledge once all members have begun: everything a schedule may depend on.
struct Problem {
  Kind kind = Kind::kBarrier;
  int32_t size = 1;  // members
  int32_t me = 0;    // own group index
  int32_t root = 0;  // group index, broadcast
  bool all_arena =
      false;  // every member's input and output lie in memory the others reach, all alike
              // (reducescatter: the inputs)
  bool all_readable = false;  // every member may read every other's private input and output
  bool by_ipc = false;    // all messages lie in memory of devices that all open, which reduce them
  bool mirrored = false;  // members of different hosts hold mirrors of each other's landing slots
  // By group index, where memory is mirrored: the host, numbered from 0 in the order of their first
  // members. Members of one host read each other's landing slots. Empty: each is a host of its own.
  std::vector<int32_t> hosts;
  // Segments in the landing slots of every member at tick 1, but of those in `unstaged` (run-X5).
  uint32_t staged_segments = 1;
  // By group index: the members whose first segment is not in its landing slot at tick 1: the input
  // lies in the arena, where most likely all do, or its readers depend on all begins (run-X4).
  // Empty: none.
  std::vector<bool> unstaged;
  uint64_t cache_bytes = 0;  // of the last-level cache: larger results are stored around it
  DType dtype = DType::kF32;
  uint64_t length_bytes = 0;  // allreduce, broadcast, reducescatter: of the (fused) message
  uint64_t slot_bytes = 64;
  uint32_t depth = kMinLandingSlots;  // landing slots of each member
  EncodedLayout form;  // of the codec of float32 that is reduced or mixed; none: elements travel
  bool encodes_sums = false;  // whether sums of contributions may be encoded instead of each
  // Bytes. allgather: [size] of each member's input. reducescatter: [size] of each member's output;
  // the message is in their order. alltoall: [size * size], what i has for j at i * size + j; i's
  // message is in the order of j, j's output in the order of i.
  // neighbor_allreduce, no bytes: [size * size], at i * size + j whether i takes j's input.
  std::vector<uint64_t> shares;

  bool operator==(const Problem&) const = default;
};

// Segments that pass through the landing slots together, at most, and that a begin stages: a third
// of the slots, since a peer may still read the batch before the last. More than a core's own cache
// holds of all that passes through it are no faster.
constexpr uint32_t SegmentsOfBatch(uint32_t depth) { return std::min(uint32_t{8}, depth / 3); }

// Segments of `slot_bytes` a message of `length_bytes` is cut into. At least one, so that a begin
// has a slot.
constexpr uint32_t NumSegments(uint64_t length_bytes, uint64_t slot_bytes) {
  return length_bytes == 0 ? 1
                           : static_cast<uint32_t>((length_bytes + slot_bytes - 1) / slot_bytes);
}

// Bytes of the message in one segment, and their size in a landing slot.
inline uint64_t SegmentBytes(const Problem& p) {
  return p.form.Codes() ? p.form.ElemsIn(p.slot_bytes) * sizeof(float) : p.slot_bytes;
}
inline uint64_t TravellingBytes(const EncodedLayout& form, uint64_t length_bytes) {
  return form.Codes() ? form.EncodedBytes(length_bytes / sizeof(float)) : length_bytes;
}

inline bool IsUnstaged(const Problem& p, int32_t rank) {
  return !p.unstaged.empty() && p.unstaged[static_cast<size_t>(rank)];
}

// Whether `reader` reads a mirror of the landing slots of `owner`.
inline bool ReadsMirror(const Problem& p, int32_t reader, int32_t owner) {
  if (!p.mirrored || reader == owner) return false;
  return p.hosts.empty() ||
         p.hosts[static_cast<size_t>(reader)] != p.hosts[static_cast<size_t>(owner)];
}

// Bytes of what `rank` (a group index) hands in and gets.
uint64_t InputBytes(const Problem& problem, int32_t rank);
uint64_t OutputBytes(const Problem& problem, int32_t rank);
// reducescatter: where in the message the share of `rank` begins.
inline uint64_t ShareBegin(const Problem& p, int32_t rank) {
  return std::accumulate(p.shares.begin(), p.shares.begin() + rank, uint64_t{0});
}
// alltoall: the bytes of `from` for `to`, and where they begin in the message of `from`.
inline uint64_t BlockBytes(const Problem& p, int32_t from, int32_t to) {
  return p
      .shares[static_cast<size_t>(from) * static_cast<size_t>(p.size) + static_cast<size_t>(to)];
}
inline uint64_t BlockBegin(const Problem& p, int32_t from, int32_t to) {
  const auto row = p.shares.begin() + int64_t{from} * p.size;
  return std::accumulate(row, row + to, uint64_t{0});
}

// neighbor_allreduce: whether what `from` has handed in is in the result of `to`.
inline bool Takes(const Problem& p, int32_t to, int32_t from) {
  return BlockBytes(p, to, from) != 0;
}

std::string ToString(const Buffer& buffer);  // "landing[2].1+64"
std::string ToString(const Step& step);      // "wait 2 >= 1"

}  // namespace covey
#endif  // COVEY_CORE_PLAN_SCHEDULE_H_
