// The work of one version, in tiles, by all members that wait for it (partial-W6).
//
// A rank claims tiles one by one; its work for one:
//
//   1. reduces the taken slots, in member order, into memory of its own: all, or those of a group;
//   2. looks whether the version is still under way: then no slot was written meanwhile, what it
//      has is right, and the result buffer was pinned before it could be given to another version;
//   3. copies it into the result and marks the tile done.
//
// A claim is only a hint. Once every tile is claimed, those that are not done for `overdue` are
// done again by the ranks that still wait: a rank that was stopped in a tile holds up no other.
// When it goes on it either finds in 2 that the version is over, or it writes bytes that are there
// already, into a buffer that its pin keeps. Tile 0 is the record; those of each sum follow.
//
// The caller has pinned the buffer of the state; see ResultLog::FreeBuffer.
#ifndef COVEY_CORE_PARTIAL_TILES_H_
#define COVEY_CORE_PARTIAL_TILES_H_

#include <memory>
#include <vector>

#include "core/base/kernels.h"
#include "core/partial/eager_copy.h"
#include "core/partial/memory.h"

namespace covey {

class Tiles {
 public:
  struct Options {
    int32_t self = 0;
    bool average = false;  // results are divided by the record's divisor; models always, by how
                           // many are in the group's
    Time overdue = 0;
    const Kernels* kernels = nullptr;
  };
  enum class Outcome : uint8_t {
    kWorked,   // there may be more
    kWaiting,  // for others; more at *until at the latest
    kDone,     // every tile of the version is
  };

  Tiles(const Options& options, const RoundMemory* memory, SharedAtomics* words);

  // One tile of the version of `state`, in which the members' decisions are `inclusions`. `eager`:
  // takes it as well; null: nothing does.
  Outcome Work(const StateWord& state, const std::vector<Inclusion>& inclusions, EagerCopy* eager,
               Time now, Time* until);

 private:
  void Look(const StateWord& state);
  bool Claim(const StateWord& state, size_t* tile);
  bool FindUndone(const StateWord& state, size_t* tile);
  void Do(const StateWord& state, const std::vector<Inclusion>& inclusions, EagerCopy* eager,
          size_t tile);
  size_t MakeRecord(const StateWord& state, const std::vector<Inclusion>& inclusions);
  void WriteMostSteps(const std::vector<Inclusion>& inclusions,
                      const std::vector<Contribution>& contributions, std::byte* at) const;
  size_t Reduce(const RoundLayout::Tile& tile, int32_t sum,
                const std::vector<Inclusion>& inclusions);

  Options options_;
  const RoundMemory* memory_;
  SharedAtomics* words_;
  std::unique_ptr<std::byte[]> own_;      // one tile, or the record
  std::vector<const std::byte*> inputs_;  // reused
  uint64_t version_ = 0;                  // of the next two
  std::vector<int32_t> sum_of_;           // by member
  size_t count_ = 0;                      // tiles
  uint64_t stalled_version_ = 0;          // all its tiles are claimed
  Time stalled_since_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_TILES_H_
