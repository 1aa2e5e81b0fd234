#include "core/gossip/memory.h"

#include "core/base/check.h"

namespace covey {
namespace {

constexpr size_t Lines(size_t bytes) { return (bytes + 63) / 64 * 64; }
constexpr int32_t kMostMembers = 1 << 15;  // an owner's bits in a model word

}  // namespace

PairMemory::PairMemory(int32_t size, const RoundLayout& layout)
    : size_(size),
      layout_(layout),
      buffers_(4 * kLine + Lines(sizeof(uint64_t) * static_cast<size_t>(size))) {
  CHECK(size >= 1 && size <= kMostMembers);
}

}  // namespace covey
