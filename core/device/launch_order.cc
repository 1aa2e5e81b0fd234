#include "core/device/launch_order.h"

#include <algorithm>

#include "core/base/check.h"

namespace covey {

uint64_t LaunchOrder::Propose(const void* exchange) {
  const uint64_t turn = ++number_ << kRankBits | static_cast<uint64_t>(ToInt(self_));
  waiting_.push_back({exchange, turn, false});
  return turn;
}

void LaunchOrder::Settle(const void* exchange, uint64_t turn) {
  // agree-N12: later proposals are above every turn known here, so no turn is proposed below it.
  number_ = std::max(number_, turn >> kRankBits);
  for (Waiting& w : waiting_) {
    if (w.exchange != exchange) continue;
    CHECK(turn >= w.turn, "a turn before the own proposal");
    w.turn = turn;
    w.settled = true;
  }
}

bool LaunchOrder::IsNext(const void* exchange) const {
  // agree-N12: an unsettled exchange keeps its place: its turn is at least its own proposal.
  const auto before = [](const Waiting& a, const Waiting& b) { return a.turn < b.turn; };
  const auto first = std::min_element(waiting_.begin(), waiting_.end(), before);
  // agree-N12: only the smallest turn is launched, and only when it is settled.
  return first != waiting_.end() && first->exchange == exchange && first->settled;
}

void LaunchOrder::Remove(const void* exchange) {
  std::erase_if(waiting_, [exchange](const Waiting& w) { return w.exchange == exchange; });
}

}  // namespace covey
