// The memory of rounds (core/partial/memory.h), or of pairs, for one process alone: zero until it
// is written, and pages that are not cost nothing. One thread.
#ifndef COVEY_CORE_REPLICATED_PRIVATE_BLOCKS_H_
#define COVEY_CORE_REPLICATED_PRIVATE_BLOCKS_H_

#include <cstdlib>
#include <memory>
#include <vector>

#include "core/partial/memory.h"

namespace covey {

class PrivateBlocks {
 public:
  PrivateBlocks() = default;
  // The blocks of all members, mapped into `memory`, which this outlives.
  explicit PrivateBlocks(RoundMemory* memory) {
    std::vector<std::byte*> blocks;
    for (int32_t i = 0; i < memory->size(); ++i) blocks.push_back(Add(memory->BlockBytes(i)));
    memory->Map(std::move(blocks));
  }

  // One more.
  std::byte* Add(size_t length_bytes) {
    blocks_.emplace_back(std::calloc(1, length_bytes + kLine));
    const auto at = reinterpret_cast<uintptr_t>(blocks_.back().get());
    return reinterpret_cast<std::byte*>((at + kLine - 1) / kLine * kLine);
  }

 private:
  static constexpr size_t kLine = 64;
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  std::vector<std::unique_ptr<void, Free>> blocks_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_PRIVATE_BLOCKS_H_
