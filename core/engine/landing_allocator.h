// Landing blocks in the transport's shared memory, and how many slots each gets.
//
// A block takes turns over as many slots as leave a core's own cache before their turn comes again:
// a line that a peer has read and both still hold costs both of them when it is written next. (Two
// threads that copy and add as allreduce/flat does, on a 2-core EPYC virtual machine with 1 MiB of
// level 2: 256 KiB in 37 us with three slots of 64 KiB, in 14 us with 24.) Only the first streams
// get so many: with many streams each one's slots are cold without it.
//
// The progress lock holder's.
#ifndef COVEY_CORE_ENGINE_LANDING_ALLOCATOR_H_
#define COVEY_CORE_ENGINE_LANDING_ALLOCATOR_H_

#include "core/agree/landing.h"
#include "core/transport/shared_regions.h"

namespace covey {

class LandingAllocator final : public LandingBlocks {
 public:
  // `wanted_bytes` is what a block's slots should come to. `regions` outlives this.
  LandingAllocator(SharedRegions* regions, uint64_t wanted_bytes)
      : regions_(regions), wanted_bytes_(regions->SharesWithAll() ? wanted_bytes : 0) {}

  uint64_t Alloc(size_t slot_bytes, size_t members, uint32_t* depth) override;
  void Free(uint64_t block) override {
    regions_->FreeShared(block);
    --count_;
  }
  size_t count() const { return count_; }  // in use

 private:
  static constexpr uint64_t kMostBytes = uint64_t{32} << 20;

  SharedRegions* regions_;
  const uint64_t wanted_bytes_;
  uint64_t used_bytes_ = 0;  // of all blocks ever made
  size_t count_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_LANDING_ALLOCATOR_H_
