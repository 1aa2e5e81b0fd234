// Symbolic memory: the meaning of each byte of a buffer, its writers and its readers, and when.
//
// Ranges, never single bytes: a buffer of 2^36 bytes costs as much as one of 64. "When" is a vector
// clock: a rank's epoch counts its signals, and a rank's Epochs say which epoch of each other rank
// is known to be over. An access by r in epoch e happens before all that a rank does whose
// epochs[r] >= e.
//
// Not thread-safe. Positions and lengths are in bytes.
#ifndef COVEY_CORE_PLAN_REGION_H_
#define COVEY_CORE_PLAN_REGION_H_

#include <cstdint>
#include <map>
#include <vector>

#include "core/plan/symbols.h"

namespace covey {

using Epochs = std::vector<uint32_t>;  // by group index; the own entry is the current epoch

struct Access {
  int32_t rank = -1;  // -1: none
  uint32_t epoch = 0;

  // Whether it happened before whatever `me` does now.
  bool Before(int32_t me, const Epochs& epochs) const {
    return rank < 0 || rank == me || epochs[static_cast<size_t>(rank)] >= epoch;
  }
  bool operator==(const Access&) const = default;
};

// The meaning of some bytes.
struct Content {
  Symbol symbol = kNothing;
  uint64_t origin = 0;    // the byte of the message that the first one holds
  uint32_t widening = 1;  // bytes here per byte of the message: accumulators may be wider

  // The content `distance` bytes further on.
  Content After(uint64_t distance) const;
  bool operator==(const Content&) const = default;
};

// A content and where it lies, `at` counted from where an access began.
struct Held {
  uint64_t at = 0;
  uint64_t length = 0;
  Content content;
};

class Region {
 public:
  // `first` is the rank that may be thought to have written all of it.
  Region(uint64_t length_bytes, int32_t size, Content content, Access first);

  uint64_t length_bytes() const { return length_bytes_; }
  bool Holds(uint64_t begin, uint64_t length) const {
    return begin <= length_bytes_ && length <= length_bytes_ - begin;
  }

  // Appends what [begin, begin + length) holds. The answer is a write that need not have happened
  // before, or none. REQUIRES: Holds(begin, length).
  Access Read(uint64_t begin, uint64_t length, int32_t me, const Epochs& epochs,
              std::vector<Held>* held);
  // Puts `held`, which covers the range, at `begin`. The answer is a read or write that need not
  // have happened before, or none. REQUIRES: Holds(begin, length).
  Access Write(uint64_t begin, uint64_t length, int32_t me, const Epochs& epochs,
               const std::vector<Held>& held);

  // All it holds, in pieces.
  std::vector<Held> Contents() const;

  // The last epoch in which `rank` touched it; 0 = never.
  uint32_t LastTouch(int32_t rank) const { return last_touch_[static_cast<size_t>(rank)]; }

 private:
  struct Piece {
    uint64_t length;
    Content content;
    Access writer;
    std::vector<Access> readers;  // since it was written, by rank
  };
  using Pieces = std::map<uint64_t, Piece>;  // by begin; they tile the region

  Pieces::iterator Cut(uint64_t at);  // the piece that begins at `at`; end() past the last
  void Join(uint64_t begin, uint64_t end);

  uint64_t length_bytes_;
  Pieces pieces_;
  Epochs last_touch_;
};

}  // namespace covey
#endif  // COVEY_CORE_PLAN_REGION_H_
