// The mean of the models that a rank can see while others train.
#include <utility>
#include <vector>

#include "core/gossip/gossip.h"

namespace covey {

bool Gossip::SeenMean(std::span<void* const> model) {
  constexpr int kTries = 16;
  std::vector<std::vector<std::byte>> copies;
  std::vector<const std::byte*> all;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    if (StateOf(i).state == MemberState::kDead || lost_[static_cast<size_t>(i)]) continue;
    std::vector<std::byte> copy(memory_->layout().length_bytes());
    std::vector<void*> spans;
    for (const size_t offset : memory_->layout().offsets_bytes())
      spans.push_back(copy.data() + offset);
    bool is_whole = false;
    for (int tries = 0; tries < kTries && !is_whole; ++tries) is_whole = Peek(i, spans);
    if (!is_whole) continue;
    copies.push_back(std::move(copy));
    all.push_back(copies.back().data());
  }
  if (!all.empty()) MeanOf(all, model);
  return !all.empty();
}

}  // namespace covey
