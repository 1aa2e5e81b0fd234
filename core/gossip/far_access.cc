#include "core/gossip/far_access.h"

#include <algorithm>
#include <array>

namespace covey {

void FarAccess::Read(const std::function<void(const std::byte* model)>& read) {
  Gossip& own = *gossip_;
  for (;;) {
    const ModelWord model = own.exchange_.Settled(own.self_);
    read(own.memory_->Buffer(model));
    // gossip-P2: only its owner writes a buffer, once no word names it.
    const bool is_own = model.owner == own.self_;
    if (is_own || own.words_->Load(own.memory_->ModelAt(own.self_)) == model.Word()) return;
  }
}

void FarAccess::Add(const std::byte* difference, double scale) {
  Gossip& own = *gossip_;
  for (;;) {
    const ModelWord current = own.exchange_.Settled(own.self_);
    const uint32_t buffer = own.FreeBuffers().at(0);
    for (const RoundLayout::Tile& tile : own.memory_->layout().tiles()) {
      const size_t item = SizeOf(tile.dtype);
      const size_t most = own.scratch_.size() / item;
      for (size_t at = 0; at < tile.count; at += most) {
        const size_t piece = std::min(most, tile.count - at);
        const size_t offset = tile.offset_bytes + at * item;
        const std::byte* from = difference + offset;
        std::byte* scaled = own.scratch_.data();
        std::byte* to = own.memory_->Buffer(own.self_, buffer) + offset;
        own.kernels_->reduce({.dtype = tile.dtype, .op = Op::kSum, .prescale = scale}, {&from, 1},
                             {&scaled, 1}, piece, Stores::kCached);
        const std::array<const std::byte*, 2> both{own.memory_->Buffer(current) + offset, scaled};
        own.kernels_->reduce({.dtype = tile.dtype, .op = Op::kSum}, both, {&to, 1}, piece,
                             own.memory_->stores());
      }
    }
    // gossip-P11: the base stays, so the next Update finds that others have moved the model.
    if (own.Publish(current, buffer)) return;
  }
}

void FarAccess::HandIn() {
  Gossip& own = *gossip_;
  own.Say(MemberState::kFinished);
  for (;;) {
    const ModelWord model = own.exchange_.Settled(own.self_);
    ModelWord after = model;
    // gossip-P13: the same model under another number: an exchange that was begun before fails.
    ++after.number;
    if (own.words_->CompareExchange(own.memory_->ModelAt(own.self_), model.Word(), after.Word()))
      return;
  }
}

void FarAccess::TakeBack() {
  Gossip& own = *gossip_;
  own.Say(MemberState::kRuns);
}

}  // namespace covey
