#include "core/gossip/steps.h"

#include "core/gossip/far_pairs.h"

namespace covey {

// gossip-P6: each rank draws by itself, from the common seed and its own index.
LocalSteps::LocalSteps(int32_t self, const PairRule& rule)
    : rule_(rule), rng_(rule.topology.seed + static_cast<uint64_t>(self)) {}

bool LocalSteps::IsLast() {
  if (left_ == 0) {
    left_ = rule_.local_steps;
    if (rule_.is_random)
      // gossip-P6: geometrically distributed, with a mean of local_steps.
      for (left_ = 1; rng_.Below(static_cast<uint64_t>(rule_.local_steps)) != 0;) ++left_;
  }
  // gossip-P6: a batch has all its steps: each step counts once.
  return --left_ == 0;
}

GossipSteps::Met GossipSteps::Exchange(std::span<void* const> model) {
  Met met{.partner = -1, .merged = gossip_->IsMerged()};
  // gossip-P7: copies are averaged before this batch is pushed, so it stays as it is.
  if (rule_.non_blocking) met.partner = Average({});
  gossip_->Update(model);
  if (!rule_.non_blocking) met.partner = Average(model);
  return met;
}

void GossipSteps::PushDelta(std::span<void* const> model) {
  // gossip-P6: the rest of a batch is pushed before the rank finishes.
  if (local_steps_.IsBetween()) gossip_->Update(model);
  local_steps_.Restart();
}

// Passes over members that are dead or have not begun.
int32_t GossipSteps::Average(std::span<void* const> model) {
  for (int32_t i = 0; i < rule_.topology.size; ++i) {
    const uint64_t round = round_++;
    const int32_t partner = PartnerOf(rule_.topology, round, self_);
    if (partner < 0) return -1;
    if (!rule_.all_begin && !IsFirst(rule_.topology, round, self_)) return -1;
    const Gossip::Outcome outcome = AverageWith(partner, model);
    if (outcome == Gossip::Outcome::kDone) return partner;
    // gossip-P3: busy, or no buffers: this rank goes on without an average.
    if (outcome != Gossip::Outcome::kAbsent) return -1;
  }
  return -1;
}

Gossip::Outcome GossipSteps::AverageWith(int32_t partner, std::span<void* const> model) {
  const int32_t near = near_.empty() ? partner : near_[static_cast<size_t>(partner)];
  if (near < 0) return far_->Offer(partner);
  return rule_.non_blocking ? gossip_->Exchange(near) : gossip_->Exchange(near, model);
}

}  // namespace covey
