// A window: memory that its rank changes in place while others copy it, alone and at any time.
//
// No rank waits. A word says whether the memory is being changed; a reader looks at it before and
// after. So a copy reported as whole is the memory of one moment, and one is not made while the
// owner is at it, also when that was stopped there.
//
//   sequence    event           sequence after
//   0, even     BeginChange     the next odd one
//   odd         BeginChange     the same: it has ended badly, and changes on
//   other       EndChange       the next even one; before it the version
//   any         Tell            the same; the version
//   any         Close           kClosed, for ever: the others change nothing then
//
// (A lock of sequences, as C. Lameter has it in the Linux kernel: readers of one writer's data that
// never write. The word takes no value twice.)
//
// The words lie in the owner's region, those of its spans behind them:
//   sequence, version, count of spans, then offset and length in bytes of each
//
// One thread of the owner changes, any of its threads closes; any thread of any rank looks. No
// state but the memory.
#ifndef COVEY_CORE_TRANSPORT_SEQLOCK_H_
#define COVEY_CORE_TRANSPORT_SEQLOCK_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/transport/shared_atomics.h"

namespace covey {

class SeqLock {
 public:
  struct Span {
    uint64_t offset;  // in the owner's region
    uint64_t length_bytes;
  };
  enum class Found : uint8_t {
    kWhole,     // it was copied, and is of one moment
    kNothing,   // nothing was there yet, or it has other spans than were asked for
    kChanging,  // it was being changed, or has been while it was copied
    kClosed,
  };

  static constexpr size_t LengthBytes(size_t spans) { return sizeof(uint64_t) * (3 + 2 * spans); }

  // `at` is where its words lie here, zero at first; both outlive it.
  SeqLock(uint64_t* at, SharedAtomics* words) : at_(at), words_(words) {}

  // The owner: which memory it is about. Once, before anything else.
  void Open(std::span<const Span> spans);
  void BeginChange();
  void EndChange(uint64_t version);
  // Says the version alone, also within a change, or before the first one.
  void Tell(uint64_t version);
  void Close();

  // Any rank: copies span i to to[i], lengths_bytes[i] bytes; the owner's region begins at `base`.
  // No spans: only looks. *version, unless it is closed, is the one that was told last; 0: none.
  Found Peek(const std::byte* base, std::span<void* const> to,
             std::span<const uint64_t> lengths_bytes, uint64_t* version) const;

 private:
  static constexpr uint64_t kClosed = ~uint64_t{0};

  void Move(uint64_t from, uint64_t to);

  uint64_t* at_;
  SharedAtomics* words_;
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_SEQLOCK_H_
