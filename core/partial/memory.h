// The memory that the ranks of a host share for the versions of one bundle, as data: the place, the
// writer and the meaning of each word.
//
//   block of each member, in its own region, by member index i, with the writer:
//     slot word      the owner; a member that collects it         see SlotWord
//     member word    the owner       odd: has finished so many times (see MemberStatus)
//     applied word   the owner       the last version it has read
//     pin word       the owner       1 + the result buffer it may be writing; 0: none
//     hold word      the owner       1 + the result buffer that its trainer reads in place; of
//                                    models, the one with the mean that its work began from
//     left words     [size] member j writes word j of all blocks, once it touches none any more
//     headers        [3] the owner, while that buffer is open     SlotHeader, [hypers] float64
//     buffers        [3] the owner, while open: one contribution each (RoundLayout)
//     results        those with buffer % size == i              RecordHeader, [size] Contribution,
//                    [size] uint64: Suspicion::missing after it, [hypers] float64, then one
//                    contribution: the sum; of models, the mean of each group. Writer: a member
//                    that has pinned it.
//   control block, behind the block of member 0:
//     state word     the first member, by CAS                     see StateWord
//     event count    rung when a version has fired or ended
//     ended word     the member that ends a version: the time, by its clock. A hint; of models,
//                    never
//     inclusions     [size] by CAS                                see Inclusion
//     suspicion      [size] by CAS                                see Suspicion
//     log words      [log] by CAS: version v stands in v % log    see LogEntry. Models: one more,
//                    for the last version of all, which is kept for every member that was in it
//     cursor words   [buffers] by CAS: tiles claimed              see Cursor
//     tile words     [buffers][1 + tiles of all sums] the version that was done there; number 0
//                    is the record
//     met words      [size] the owner: after so many flushes it had applied everything
//     snapshots      a member that needs one, a member that makes one   see snapshots.h
//
// Words change by Store where one rank writes, else by CompareExchange, and every word that others
// change carries a version or a step, so none takes a value twice: a rank that was stopped for long
// finds its exchange refused. Plain bytes are written by their owner while no other member reads
// them (open buffers, headers), or by several members with the same values (results, see tiles.h).
//
// There are as many result buffers as log words, and `size` more: the first have results, each of
// the others but one may be pinned by a stopped rank, one is free; `size` more may be held. Pages
// that are never touched cost no memory.
#ifndef COVEY_CORE_PARTIAL_MEMORY_H_
#define COVEY_CORE_PARTIAL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/partial/groups.h"
#include "core/partial/layout.h"
#include "core/transport/shared_atomics.h"

namespace covey {

inline constexpr uint32_t kSlotBuffers = 3;
inline constexpr uint32_t kMostResultBuffers = 1 << 15;

// Which version is being made. `executed` versions have ended; the next is executed + 1.
struct StateWord {
  uint64_t executed = 0;
  bool fired = false;
  uint32_t buffer = 0;  // of results; fired only
  uint32_t times = 0;   // settled only: by members that have finished so often; its low kTimesBits
  // Fired: not all wanted members had come, but max_wait was over. Not fired, with `final`:
  // settled, members that have finished go on with the last version, and later ones take it.
  bool expired = false;
  // Models: it is of all, for those that have finished. Not fired: the last one was, or is settled.
  bool final = false;

  uint64_t version() const { return executed + 1; }
  bool settled() const { return !fired && final && expired; }
  // Settled: how much oftener a member has finished than those that have settled it.
  int32_t Since(uint64_t finished) const {
    const uint32_t more = static_cast<uint32_t>(finished) - times;
    return static_cast<int32_t>(more << (32 - kTimesBits)) >> (32 - kTimesBits);
  }

  static constexpr int kTimesBits = 15;  // of `buffer` too: kMostResultBuffers
  uint64_t Word() const {
    return executed << (kTimesBits + 3) | uint64_t{final} << (kTimesBits + 2) |
           uint64_t{expired} << (kTimesBits + 1) | uint64_t{fired} << kTimesBits |
           (fired ? buffer : times);
  }
  static StateWord Of(uint64_t word) {
    const auto number = static_cast<uint32_t>(word & ((1u << kTimesBits) - 1));
    const bool fired = (word >> kTimesBits & 1) != 0;
    return {.executed = word >> (kTimesBits + 3),
            .fired = fired,
            .buffer = fired ? number : 0,
            .times = fired ? 0 : number,
            .expired = (word >> (kTimesBits + 1) & 1) != 0,
            .final = (word >> (kTimesBits + 2) & 1) != 0};
  }
};

// The member word.
struct MemberStatus {
  uint64_t word = 0;

  bool finished() const { return word % 2 == 1; }
  uint64_t times() const { return (word + 1) / 2; }  // it has finished so often
};

enum class SlotState : uint8_t { kOpen = 0, kPublished = 1, kTaken = 2 };
// The owner's offer: its buffer `buffer`, up to its step `step`. Steps only grow.
struct SlotWord {
  SlotState state = SlotState::kOpen;
  uint32_t buffer = 0;
  uint64_t step = 0;

  uint64_t Word() const {
    return static_cast<uint64_t>(state) << 62 | uint64_t{buffer} << 60 | step;
  }
  static SlotWord Of(uint64_t word) {
    return {static_cast<SlotState>(word >> 62), static_cast<uint32_t>(word >> 60 & 3),
            word & ((uint64_t{1} << 60) - 1)};
  }
};

enum class Decision : uint8_t {
  kUndecided = 0,
  kAsked = 1,  // its publication is to be taken
  kIn = 2,     // it was
  kOut = 3,    // there was none, or its owner was faster
  kGone = 4,   // there was none and its owner is dead
};
// The decision on a member's slot in a version.
struct Inclusion {
  uint64_t version = 0;
  Decision decision = Decision::kUndecided;
  uint32_t buffer = 0;
  uint64_t step = 0;    // its low kStepBits
  bool exempt = false;  // it had finished or was dead: whether it came or not does not matter

  static constexpr int kStepBits = 24;
  uint64_t Word() const {
    return version << 30 | static_cast<uint64_t>(decision) << 27 | uint64_t{buffer} << 25 |
           uint64_t{exempt} << kStepBits | step;
  }
  static Inclusion Of(uint64_t word) {
    return {.version = word >> 30,
            .decision = static_cast<Decision>(word >> 27 & 7),
            .buffer = static_cast<uint32_t>(word >> 25 & 3),
            .step = word & ((uint64_t{1} << kStepBits) - 1),
            .exempt = (word >> kStepBits & 1) != 0};
  }
  bool Names(const SlotWord& slot) const {
    return buffer == slot.buffer && step == (slot.step & ((uint64_t{1} << kStepBits) - 1));
  }
};

// Whether a member is waited for, as of the end of `version`: not while it is overdue (partial-W8).
struct Suspicion {
  uint64_t version = 0;
  uint32_t missing = 0;  // versions running it must be fresh in until it is; 0: it is waited for

  static constexpr uint32_t kUntilTrusted = 3;
  bool overdue() const { return missing > 0; }
  uint64_t Word() const { return version << 2 | missing; }
  static Suspicion Of(uint64_t word) { return {word >> 2, static_cast<uint32_t>(word & 3)}; }
};

// The result of `version` lies in `buffer`.
struct LogEntry {
  uint64_t version = 0;
  uint32_t buffer = 0;

  uint64_t Word() const { return version << 16 | buffer; }
  static LogEntry Of(uint64_t word) { return {word >> 16, static_cast<uint32_t>(word & 0xffff)}; }
};

// Tiles below `next` of `version` were claimed.
struct Cursor {
  uint64_t version = 0;
  uint32_t next = 0;

  uint64_t Word() const { return version << 24 | next; }
  static Cursor Of(uint64_t word) { return {word >> 24, static_cast<uint32_t>(word & 0xffffff)}; }
};
inline constexpr size_t kMostTiles = 0xffffff;

// Steps first..last of a member, as far as they are in; `count` of them. 0 = nothing. Its owner has
// come up to step `arrived`: later than `last` when it had nothing to give there (an empty
// contribution).
struct Contribution {
  uint64_t first = 0, last = 0, count = 0, arrived = 0;
};
struct SlotHeader {
  Contribution content;
};
struct RecordHeader {
  uint64_t version = 0;
  int32_t divisor = 0;   // members that were not gone, and have more than empty contributions
  int32_t leader = -1;   // member whose hyper-parameters these are; -1 = no contribution
  bool expired = false;  // see StateWord
  bool final = false;
};

class RoundMemory {
 public:
  struct Shape {
    int32_t size = 1;    // members
    int32_t log = 4;     // results kept
    int32_t hypers = 0;  // hyper-parameters that travel
    ModelRule models = {};
  };

  RoundMemory(const Shape& shape, const RoundLayout& layout);

  // How much of its region member `index` gives; zero-filled, 64-byte aligned.
  size_t BlockBytes(int32_t index) const;
  // Where the blocks are mapped here, by member.
  void Map(std::vector<std::byte*> blocks) { blocks_ = std::move(blocks); }

  int32_t size() const { return shape_.size; }
  uint32_t log() const { return static_cast<uint32_t>(shape_.log); }
  uint32_t log_words() const { return log() + (models().on() ? 1 : 0); }
  uint32_t result_buffers() const { return log_words() + static_cast<uint32_t>(shape_.size) * 2; }
  size_t result_bytes() const { return result_bytes_; }
  size_t hypers() const { return static_cast<size_t>(shape_.hypers); }
  size_t record_bytes() const { return record_bytes_; }
  const ModelRule& models() const { return shape_.models; }
  // Which sum of a version is whose, by member; 0 for all where there is one.
  std::vector<int32_t> SumsOf(uint64_t version, bool final) const;
  const RoundLayout& layout() const { return layout_; }

  uint64_t* SlotAt(int32_t i) const { return At(i, 0); }
  uint64_t* MemberAt(int32_t i) const { return At(i, kLine); }
  uint64_t* AppliedAt(int32_t i) const { return At(i, kLine + sizeof(uint64_t)); }
  uint64_t* PinAt(int32_t i) const { return At(i, 2 * kLine); }
  uint64_t* HoldAt(int32_t i) const { return At(i, 2 * kLine + sizeof(uint64_t)); }
  uint64_t* LeftAt(int32_t of, int32_t by) const {
    return At(of, 3 * kLine + sizeof(uint64_t) * static_cast<size_t>(by));
  }
  SlotHeader* Header(int32_t i, uint32_t buffer) const {
    return reinterpret_cast<SlotHeader*>(At(i, headers_ + header_bytes_ * buffer));
  }
  std::span<double> HeaderHypers(int32_t i, uint32_t buffer) const {
    return {reinterpret_cast<double*>(Header(i, buffer) + 1), hypers()};
  }
  std::byte* Buffer(int32_t i, uint32_t buffer) const {
    return Block(i) + buffers_ + layout_.length_bytes() * buffer;
  }
  std::byte* Result(uint32_t buffer) const;  // the record; the sums follow after record_bytes()

  uint64_t* StateAt() const { return At(0, control_block_); }
  uint64_t* EventCountAt() const { return At(0, control_block_ + kLine); }
  uint64_t* EndedAt() const { return At(0, control_block_ + kLine + sizeof(uint64_t)); }
  uint64_t* InclusionAt(int32_t i) const { return Word(inclusions_ + static_cast<size_t>(i)); }
  uint64_t* SuspicionAt(int32_t i) const { return Word(suspicion_ + static_cast<size_t>(i)); }
  uint64_t* LogWordAt(uint32_t number) const { return Word(log_ + number); }
  uint64_t* LogAt(uint64_t version) const;
  uint64_t* CursorAt(uint32_t buffer) const { return Word(cursors_ + buffer); }
  uint64_t* DoneAt(uint32_t buffer, size_t tile) const {
    return Word(done_ + (layout_.tiles().size() * sums_ + 1) * buffer + tile);
  }
  uint64_t* AskAt() const { return Word(snapshots_); }
  uint64_t* ClaimAt() const { return Word(snapshots_ + 1); }
  // Four words of member i, and how often it has met the others after finishing.
  uint64_t* OfferAt(int32_t i) const { return Word(snapshots_ + 2 + 5 * static_cast<size_t>(i)); }
  uint64_t* MetAt(int32_t i) const { return OfferAt(i) + 4; }
  // Where the block of member i begins.
  std::byte* Block(int32_t i) const { return blocks_[static_cast<size_t>(i)]; }

 private:
  static constexpr size_t kLine = 64;

  uint64_t* At(int32_t i, size_t offset) const {
    return reinterpret_cast<uint64_t*>(Block(i) + offset);
  }
  uint64_t* Word(size_t number) const { return At(0, control_block_) + number; }
  size_t ResultsOf(int32_t i) const;

  Shape shape_;
  RoundLayout layout_;
  size_t sums_;  // of a version, at most
  size_t header_bytes_, record_bytes_, result_bytes_;
  size_t headers_, buffers_, results_;  // offsets in a block
  size_t control_block_;                // behind the block of member 0
  // In words of the control block.
  size_t inclusions_, suspicion_, log_, cursors_, done_, snapshots_, end_;
  std::vector<std::byte*> blocks_;
};

// Whether a member is in the version of `inclusion` with more than empty contributions. While it is
// under way.
inline bool Contributes(const RoundMemory& memory, int32_t i, const Inclusion& inclusion) {
  return inclusion.decision == Decision::kIn &&
         memory.Header(i, inclusion.buffer)->content.count > 0;
}

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_MEMORY_H_
