#include "core/replicated/sum_fetcher.h"

#include <algorithm>

namespace covey {

void SumFetcher::AddHolders(const std::vector<bool>& holders) {
  for (size_t i = 0; i < holders_.size(); ++i) holders_[i].has_it |= holders[i];
}

void SumFetcher::OnLoss(int32_t member) {
  Holder& holder = holders_[static_cast<size_t>(member)];
  for (const size_t shard : holder.asked) asked_.erase(shard);
  holder = {};
}

void SumFetcher::OnSummed(int32_t from, size_t shard, Time now) {
  Holder& holder = holders_[static_cast<size_t>(from)];
  holder.since = now;
  holder.is_overdue = false;
  asked_.erase(shard);
  for (Holder& one : holders_) one.asked.erase(shard);
}

bool SumFetcher::HasHolder() const {
  return std::any_of(holders_.begin(), holders_.end(),
                     [](const Holder& holder) { return holder.has_it; });
}

void SumFetcher::DropOverdue(Time patience, Time now) {
  for (Holder& holder : holders_) {
    // replicated-W15: an overdue shard is asked of another holder.
    if (holder.asked.empty() || now - holder.since <= patience) continue;
    for (const size_t shard : holder.asked) asked_.erase(shard);
    holder.asked.clear();
    holder.is_overdue = true;
  }
}

// The next holder to ask for it; -1: none.
int32_t SumFetcher::Next(size_t shard) {
  for (size_t i = 0; i < holders_.size(); ++i) {
    turn_ = (turn_ + 1) % holders_.size();
    const Holder& holder = holders_[turn_];
    if (holder.has_it && !holder.is_overdue && holder.asked.size() < kMostAsked &&
        !holder.tried.contains(shard))
      return static_cast<int32_t>(turn_);
  }
  return -1;
}

void SumFetcher::Advance(const Formation& formation, Outbox* outbox, Time patience, Time now) {
  DropOverdue(patience, now);
  for (size_t shard = 0; shard < formation.plan().size(); ++shard) {
    if (formation.Has(shard) || asked_.contains(shard)) continue;
    const int32_t from = Next(shard);
    if (from < 0) continue;
    Holder& holder = holders_[static_cast<size_t>(from)];
    if (holder.asked.empty()) holder.since = now;
    holder.asked.insert(shard);
    holder.tried.insert(shard);
    asked_.insert(shard);
    const auto [offset, length] = formation.plan().shard(shard);
    outbox->Send(from, {.kind = ReplicaMessage::Kind::kFetch,
                        .version = formation.version(),
                        .made = formation.made(),
                        .shard = shard,
                        .offset_bytes = offset,
                        .length_bytes = length});
  }
}

}  // namespace covey
