// One rank's part in averaging with ranks of other hosts: its model as they are given it, and what
// they have moved it by.
#include <algorithm>
#include <array>

#include "core/gossip/gossip.h"

namespace covey {

void Gossip::Read(const std::function<void(const std::byte* model)>& read) {
  for (;;) {
    const ModelWord model = exchange_.Settled(self_);
    read(memory_->Buffer(model));
    // gossip-P2: only its owner writes a buffer, once no word names it.
    if (model.owner == self_ || words_->Load(memory_->ModelAt(self_)) == model.Word()) return;
  }
}

void Gossip::Add(const std::byte* difference, double scale) {
  for (;;) {
    const ModelWord current = exchange_.Settled(self_);
    const uint32_t buffer = FreeBuffers().at(0);
    for (const RoundLayout::Tile& tile : memory_->layout().tiles()) {
      const size_t item = SizeOf(tile.dtype);
      const size_t most = scratch_.size() / item;
      for (size_t at = 0; at < tile.count; at += most) {
        const size_t piece = std::min(most, tile.count - at);
        const size_t offset = tile.offset_bytes + at * item;
        const std::byte* from = difference + offset;
        std::byte* scaled = scratch_.data();
        std::byte* to = memory_->Buffer(self_, buffer) + offset;
        kernels_->reduce({.dtype = tile.dtype, .op = Op::kSum, .prescale = scale}, {&from, 1},
                         {&scaled, 1}, piece, Stores::kCached);
        const std::array<const std::byte*, 2> both{memory_->Buffer(current) + offset, scaled};
        kernels_->reduce({.dtype = tile.dtype, .op = Op::kSum}, both, {&to, 1}, piece,
                         memory_->stores());
      }
    }
    // gossip-P11: the base stays, so the next Update finds that others have moved the model.
    if (Publish(current, buffer)) return;
  }
}

void Gossip::HandIn() {
  words_->Store(memory_->MemberAt(self_), MemberWord{MemberState::kFinished, epoch_}.Word());
  for (;;) {
    const ModelWord model = exchange_.Settled(self_);
    // gossip-P13: the same model under another number: an exchange that was begun before fails.
    if (words_->CompareExchange(memory_->ModelAt(self_), model.Word(),
                                ModelWord{.engaged = false,
                                          .owner = model.owner,
                                          .buffer = model.buffer,
                                          .number = model.number + 1}
                                    .Word()))
      return;
  }
}

void Gossip::TakeBack() {
  words_->Store(memory_->MemberAt(self_), MemberWord{MemberState::kRuns, epoch_}.Word());
}

}  // namespace covey
