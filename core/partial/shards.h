// The work of one version, in shards, by all who wait for it (partial-W6).
//
// A rank claims shards one by one; what it does for one:
//
//   1. reduces the taken slots, in member order, into memory of its own: all, or those of a group;
//   2. looks whether the version is still under way: then no slot was written meanwhile, what it
//      has is right, and the result buffer was pinned before it could be given to another version;
//   3. copies it into the result and marks the shard done.
//
// A claim is only a hint. Once every shard is claimed, those that are not done for `overdue` are
// done again by whoever still waits, so that a rank which was stopped in a shard holds up nobody.
// When it goes on it either finds in 2 that the version is over, or it writes bytes that are there
// already, into a buffer that its pin keeps. Shard 0 is the record; those of each sum follow.
//
// The caller has pinned the buffer of the turn; see ResultLog::FreeBuffer.
#ifndef COVEY_CORE_PARTIAL_SHARDS_H_
#define COVEY_CORE_PARTIAL_SHARDS_H_

#include <memory>
#include <vector>

#include "core/base/kernels.h"
#include "core/partial/early.h"
#include "core/partial/memory.h"

namespace covey {

class Shards {
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
    kDone,     // every shard of the version is
  };

  Shards(const Options& options, const RoundMemory* memory, SharedAtomics* words);

  // One shard of the version of `turn`, in which the members' fates are `picks`. `early`: who takes
  // it as well; null: nobody.
  Outcome Work(const Turn& turn, const std::vector<Pick>& picks, EarlyCopy* early, Time now,
               Time* until);

 private:
  void Look(const Turn& turn);
  bool Claim(const Turn& turn, size_t* shard);
  bool FindUndone(const Turn& turn, size_t* shard);
  void Do(const Turn& turn, const std::vector<Pick>& picks, EarlyCopy* early, size_t shard);
  size_t MakeRecord(const Turn& turn, const std::vector<Pick>& picks);
  size_t Reduce(const RoundLayout::Shard& shard, int32_t sum, const std::vector<Pick>& picks);

  Options options_;
  const RoundMemory* memory_;
  SharedAtomics* words_;
  std::unique_ptr<std::byte[]> own_;      // one shard, or the record
  std::vector<const std::byte*> inputs_;  // reused
  uint64_t version_ = 0;                  // of the next two
  std::vector<int32_t> sum_of_;           // by member
  size_t count_ = 0;                      // shards
  uint64_t stalled_version_ = 0;          // all its shards are claimed
  Time stalled_since_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_SHARDS_H_
