// The memory that the ranks of a host share for averaging models in pairs, as data: the place, the
// writer and the meaning of each word.
//
//   block of each member, in its own region, by member index i, with the writer:
//     model word     any member, by CAS   the buffer, and its owner, with model i: see ModelWord
//     member word    the owner; dead: any member, by CAS          see MemberWord
//     record word    any member, by CAS   the latest exchange begun by member i: see RecordWord
//     record         the owner, before the record word says its number: partner, the model words
//                    of both as it found them, and the buffers with the results (two with a codec,
//                    else one: their mean)
//     event count    of member 0: rung when a member finishes, or has met
//     epoch barrier  of member 0; any member, by CAS              see EpochBarrier
//     left words     [size] member j writes word j of all blocks, once it touches none any more
//     buffers        [kPairBuffers] the owner: one model each (RoundLayout)
//
// A model word names a buffer of its own member, or of another one that has averaged with it: the
// mean of two is written once. A member that changes a model writes a new one into a buffer of its
// own that no word names, and exchanges the word. So a buffer that a word names is never written,
// and a rank that is stopped, anywhere, has nothing locked.
//
// No word takes a value twice: a rank that was stopped for long finds its exchange refused.
#ifndef COVEY_CORE_GOSSIP_MEMORY_H_
#define COVEY_CORE_GOSSIP_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/kernels.h"
#include "core/partial/layout.h"

namespace covey {

// One buffer has the model that the owner has published last, one is free for the next; the others
// hold means that slower partners still use.
inline constexpr uint32_t kPairBuffers = 6;

// Free: model i lies in `buffer` of member `owner`. Engaged: exchange `number` of member `owner` is
// being decided; if it is committed, i has its mean, else the model that its record names.
struct ModelWord {
  bool engaged = false;
  int32_t owner = 0;
  uint32_t buffer = 0;  // free only
  uint64_t number = 0;  // free: grows with every change; 0: nothing was published yet

  uint64_t Word() const {
    return uint64_t{engaged} << 63 | static_cast<uint64_t>(owner) << 48 | uint64_t{buffer} << 44 |
           number;
  }
  static ModelWord Of(uint64_t word) {
    return {.engaged = word >> 63 != 0,
            .owner = static_cast<int32_t>(word >> 48 & 0x7fff),
            .buffer = static_cast<uint32_t>(word >> 44 & 0xf),
            .number = word & ((uint64_t{1} << 44) - 1)};
  }
  bool IsIn(int32_t of, uint32_t at) const { return !engaged && owner == of && buffer == at; }
};

// Epochs end with Finish; all begin the next one together.
enum class MemberState : uint8_t {
  kRuns = 0,
  kFinished = 1,  // its model changes by others' exchanges only
  kMet = 2,       // it has read all models as they were when all had finished
  kDead = 3,      // in the middle of an epoch; for ever
  kLeaves = 4,    // it had finished, and would rather train on: the barrier says whether it may
};
// The number with which a member finishes: twice that of its finishes (gossip-P18), and one more
// unless it is in settle() (gossip-P19).
struct FinishNumber {
  static constexpr uint64_t kLastTimes = (uint64_t{1} << 28) - 1;  // above all others

  static uint64_t Of(uint64_t times, bool settles) { return 2 * times + (settles ? 0 : 1); }
  static bool Settles(uint64_t number) { return number % 2 == 0; }
};

struct MemberWord {
  MemberState state = MemberState::kRuns;
  uint64_t epoch = 0;
  uint64_t number = 0;  // a FinishNumber, unless it runs

  uint64_t Word() const { return epoch << 32 | number << 3 | static_cast<uint64_t>(state); }
  static MemberWord Of(uint64_t word) {
    return {.state = static_cast<MemberState>(word & 7),
            .epoch = word >> 32,
            .number = word >> 3 & ((uint64_t{1} << 29) - 1)};
  }
};

// Whether an epoch has ended: all members that are not dead had finished, at one moment. From then
// on none of them leaves it or is marked dead. A member that trains on after all counts itself here
// first, so that a member which has looked at the members before that does not end the epoch.
struct EpochBarrier {
  bool is_over = false;
  uint64_t left = 0;  // how many have left, in this epoch and those before
  uint64_t epoch = 0;

  // A later one begins once it has ended.
  bool HasEnded(uint64_t which) const { return epoch > which || (epoch == which && is_over); }
  uint64_t Word() const { return epoch << 32 | left << 1 | uint64_t{is_over}; }
  static EpochBarrier Of(uint64_t word) {
    return {.is_over = (word & 1) != 0, .left = word >> 1 & 0x7fffffff, .epoch = word >> 32};
  }
};

enum class RecordState : uint8_t { kOpen = 0, kCommitted = 1, kAborted = 2 };
struct RecordWord {
  RecordState state = RecordState::kOpen;
  uint64_t number = 0;

  uint64_t Word() const { return number << 2 | static_cast<uint64_t>(state); }
  static RecordWord Of(uint64_t word) {
    return {.state = static_cast<RecordState>(word & 3), .number = word >> 2};
  }
  bool operator==(const RecordWord&) const = default;
};

// An exchange as its record has it.
struct PairRecord {
  int32_t partner = 0;
  uint32_t buffer = 0;         // of its initiator: the mean; with a codec the initiator's result
  uint32_t others_buffer = 0;  // likewise, its partner's result: without a codec the same
  ModelWord own, others;       // free, as the initiator found them
};

class PairMemory {
 public:
  PairMemory(int32_t size, const RoundLayout& layout);

  // How much of its region a member gives; zero-filled, 64-byte aligned.
  size_t BlockBytes() const { return buffers_ + layout_.length_bytes() * kPairBuffers; }
  // Where the blocks are mapped here, by member.
  void Map(std::vector<std::byte*> blocks) { blocks_ = std::move(blocks); }

  int32_t size() const { return size_; }
  const RoundLayout& layout() const { return layout_; }
  // How models are written: larger ones past the cache, which is full of other things when a rank
  // reads them (as in core/partial/eager_copy.cc).
  Stores stores() const {
    return layout_.length_bytes() < kLargeBytes ? Stores::kCached : Stores::kStreaming;
  }

  uint64_t* ModelAt(int32_t i) const { return At(i, 0); }
  uint64_t* MemberAt(int32_t i) const { return At(i, kLine); }
  uint64_t* RecordWordAt(int32_t i) const { return At(i, 2 * kLine); }
  // Its three words: partner and buffers, both model words.
  uint64_t* RecordAt(int32_t i, size_t number) const { return RecordWordAt(i) + 1 + number; }
  uint64_t* EventCountAt() const { return At(0, 3 * kLine); }
  uint64_t* BarrierAt() const { return EventCountAt() + 1; }
  uint64_t* LeftAt(int32_t of, int32_t by) const {
    return At(of, 4 * kLine) + static_cast<size_t>(by);
  }
  std::byte* Buffer(int32_t i, uint32_t buffer) const {
    return Bytes(i, buffers_ + layout_.length_bytes() * buffer);
  }
  // REQUIRES: free.
  std::byte* Buffer(const ModelWord& model) const { return Buffer(model.owner, model.buffer); }

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kLargeBytes = 8 << 20;

  std::byte* Bytes(int32_t i, size_t offset) const {
    return blocks_[static_cast<size_t>(i)] + offset;
  }
  uint64_t* At(int32_t i, size_t offset) const {
    return reinterpret_cast<uint64_t*>(Bytes(i, offset));
  }

  int32_t size_;
  RoundLayout layout_;
  size_t buffers_;  // where they begin in a block
  std::vector<std::byte*> blocks_;
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_MEMORY_H_
