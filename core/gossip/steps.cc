#include "core/gossip/steps.h"

namespace covey {

// gossip-P6: each rank draws by itself, from the common seed and its own index.
PairTurns::PairTurns(int32_t self, const PairRule& rule)
    : rule_(rule), rng_(rule.topology.seed + static_cast<uint64_t>(self)) {}

bool PairTurns::IsLast() {
  if (left_ == 0) {
    left_ = rule_.local_steps;
    if (rule_.is_random)
      // gossip-P6: geometrically distributed, with a mean of local_steps.
      for (left_ = 1; rng_.Below(static_cast<uint64_t>(rule_.local_steps)) != 0;) ++left_;
  }
  // gossip-P6: a batch has all its steps: each step counts once.
  return --left_ == 0;
}

PairSteps::Met PairSteps::Step(std::span<void* const> model) {
  if (!turns_.IsLast()) return {};
  Met met{.partner = -1, .merged = pairs_->IsMerged()};
  // gossip-P7: copies are averaged before this batch is handed in, so it stays as it is.
  if (rule_.of_copies) met.partner = Average({});
  pairs_->Update(model);
  if (!rule_.of_copies) met.partner = Average(model);
  return met;
}

void PairSteps::HandIn(std::span<void* const> model) {
  // gossip-P6: the rest of a batch is handed in before the rank finishes.
  if (turns_.IsBetween()) pairs_->Update(model);
  turns_.Restart();
}

// Passes over who is dead or has not begun.
int32_t PairSteps::Average(std::span<void* const> model) {
  for (int32_t i = 0; i < rule_.topology.size; ++i) {
    const uint64_t round = round_++;
    const int32_t partner = PartnerOf(rule_.topology, round, self_);
    if (partner < 0) return -1;
    if (!rule_.all_begin && !IsFirst(rule_.topology, round, self_)) return -1;
    const Pairs::Outcome outcome =
        rule_.of_copies ? pairs_->Exchange(partner) : pairs_->Exchange(partner, model);
    if (outcome == Pairs::Outcome::kDone) return partner;
    // gossip-P3: busy, or no needed: this rank goes on without an average.
    if (outcome != Pairs::Outcome::kAbsent) return -1;
  }
  return -1;
}

}  // namespace covey
