// The landing space of one stream and its counters. Plain state, shared by core/agree, which makes
// and replaces it, and core/run, which uses it.
//
// A block lies in its owner's shared region: a Cell and a table (what the owner publishes
// about the running exchange), then its landing slots, which take turns. The three counters are
// equal on every member whenever no exchange runs, because every schedule uses the same number of
// ticks and slots on all ranks.
#ifndef COVEY_CORE_BASE_CHANNEL_H_
#define COVEY_CORE_BASE_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace covey {

inline constexpr size_t kLandingAlign = 64;
// Slots of a block at least: one being filled, one being read, one that a slower peer may still be
// reading. Each algorithm's file says why that suffices for it.
inline constexpr uint32_t kMinLandingSlots = 3;
inline constexpr uint32_t kMaxLandingSlots = 64;

// Whether messages of device tensors lie in memory that all devices reach
// (core/device/ipc_memory.h); equal on every member: decided by what all begins say.
//   kUnknown  all begins name a buffer to try          -> each tries to open it: kTried
//   kTried    all begins say whether theirs opened all -> kYes, or kNo for ever
//   kYes      some begin has found no buffer           -> kNo
enum class IpcState : uint8_t { kUnknown, kTried, kYes, kNo };

struct Schedule;

// The last schedule of a channel, and what it was chosen by beside the channel (begin_stage.cc).
struct ChosenSchedule {
  const Schedule* schedule = nullptr;
  uint64_t length_bytes = 0;
  uint32_t traits = 0;
};

struct Channel {
  std::vector<uint64_t> blocks;  // by group index: offset of the member's block; empty = none yet
  uint64_t slot_bytes = 0;
  uint32_t depth = kMinLandingSlots;  // slots of every member's block
  uint64_t ticks = 0;                 // ticks used by ended exchanges
  uint64_t slots = 0;                 // landing slots used by ended exchanges
  uint64_t exchanges = 0;             // ended exchanges
  bool streaming = false;             // staged data is stored around the cache
  IpcState by_ipc = IpcState::kUnknown;
  bool opened_all = false;  // kTried: this rank has
  ChosenSchedule chosen;    // of core/run alone
  bool repeats = false;     // the same: its last exchange is kept, and may be repeated

  bool Exists() const { return !blocks.empty(); }
};

// The begin header of agree-N3. entry 0 = void.
struct Begin {
  uint32_t occurrence;  // its lower half: members are never more than one apart
  uint32_t entry;
};

// Where the owner's tensors lie for this exchange, and the values that its signature leaves open.
struct Placement {
  // In the owner's address space; 0 = in pieces, or members may not read each other.
  uint64_t input_address;
  uint64_t output_address;
  // Offset of the first piece in the owner's region, ~0 = some piece is private memory.
  uint64_t input;
  uint64_t output;
  uint64_t layout;     // how further pieces lie; equal = addressed alike (core/base/spans.h)
  uint64_t rows;       // allgather: dimension 0
  uint32_t streaming;  // the first member's: the next exchange of the channel stages around caches
  uint32_t staged;     // segments in the owner's landing slots at tick 1
  uint64_t buffer;     // of device tensors: core/run/device_staging.cc
};

// The published words of a rank. Written by their owner only. `begin` and `placement` of an
// exchange are stored before `tick` is released past the channel's ticks, and are two deep: a rank
// that has begun exchange m+1 proves that no member needs those of m-1 any more. So are
// `communicator` and `turn`, which only exchanges of device tensors use:
// core/device/communicator_registry.h, core/device/launch_order.h.
struct alignas(64) Cell {
  uint64_t tick;   // cumulative over the channel's life
  uint64_t abort;  // 0, or 1 + the rank whose loss ended this stream
  Begin begin[2];
  uint64_t communicator[2];  // the owner's readiness, and which device it uses
  uint64_t turn[2];          // that the owner proposes, from tick 2 on
  alignas(64) Placement placement[2];
};
static_assert(sizeof(Cell) == 192);

// After the cell lies a table, two deep as `placement` is: an alltoall's splits, one word per
// member, or the peers of a neighbor_allreduce (core/base/neighbor_weights.h). It does not fit in a
// cell, and a landing slot is no place for them: slots turn as fast as an algorithm allows, but a
// member may read a begin as late as that of the next exchange permits. Every block has the table,
// so that a stream may become an alltoall in the landing space it has.
constexpr size_t TableWords(size_t members) { return members + (members + 63) / 64; }
constexpr size_t TableOffset(size_t turn, size_t members) {
  return sizeof(Cell) + turn * TableWords(members) * sizeof(uint64_t);
}
// After the tables, in the first member's block: the id of a communicator that it offers.
inline constexpr size_t kCommunicatorIdBytes = 128;
constexpr size_t CommunicatorIdOffset(size_t members) {
  return (TableOffset(2, members) + kLandingAlign - 1) / kLandingAlign * kLandingAlign;
}
constexpr size_t SlotsOffset(size_t members) {
  return CommunicatorIdOffset(members) + kCommunicatorIdBytes;
}
constexpr size_t LandingBlockBytes(size_t slot_bytes, uint32_t depth, size_t members) {
  return SlotsOffset(members) + depth * slot_bytes;
}

}  // namespace covey
#endif  // COVEY_CORE_BASE_CHANNEL_H_
