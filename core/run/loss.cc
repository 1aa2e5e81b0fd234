// The executor's part that deals with ranks which are gone (agree-N11), or late.
#include <algorithm>

#include "core/run/executor.h"

namespace covey {

// Aborts the exchange if the member at `index` will never reach `target` (a tick of the channel).
void Executor::AbortIfInVain(Exchange* x, uint64_t target, size_t index) {
  Cell* cell = x->CellOf(index);
  const Rank rank = x->request->group->members[index];
  // The last store of a lost rank is visible (transport-T4), and a store before a rank gave up
  // is visible with that: so look for the tick after looking for the end.
  const auto never = [&] { return transport_->LoadAcquire(&cell->tick) < target; };
  for (const PeerLoss& loss : lost_)
    if (loss.rank == rank && never()) return Abort(x, loss.rank, loss.how);
  const uint64_t abort = transport_->LoadAcquire(&cell->abort);
  if (abort == 0 || !never()) return;
  const Rank lost{static_cast<int32_t>(abort - 1)};
  Abort(x, lost,
        lost == rank ? "could not go on; its own error says why"
                     : "has gone (seen by rank " + std::to_string(ToInt(rank)) + ")");
}

void Executor::Close(const Group& group, uint64_t block, Rank lost) {
  auto* cell = reinterpret_cast<Cell*>(transport_->Base(transport_->rank()) + block);
  transport_->StoreRelease(&cell->abort, static_cast<uint64_t>(ToInt(lost)) + 1);
  transport_->Wake(group.members);
}

void Executor::Abort(Exchange* x, Rank lost, const std::string& how) {
  if (x->state == ExchangeState::kEnded || x->state == ExchangeState::kLeaving) return;
  Cell* cell = x->CellOf(x->Me());
  transport_->StoreRelease(&cell->abort, static_cast<uint64_t>(ToInt(lost)) + 1);
  transport_->Wake(x->request->group->members);
  const bool is_running = x->state == ExchangeState::kRunning;
  const bool shared = (is_running && (x->schedule->touches_peers || x->schedule->puts_input)) ||
                      (x->state == ExchangeState::kCommunicator &&
                       communicators_.Abort(x, {lost, how}, clock_->Now()));
  x->state = ExchangeState::kLeaving;
  x->why = Status::Aborted("rank " + std::to_string(ToInt(lost)) + " " + how, lost);
  // agree-N11: it ends only when no peer uses this memory any more, here kLeaving until then.
  if (!shared || AllHaveLeft(*x)) End(x, Outcome::kAborted, std::move(x->why), 0);
}

// agree-N11: a loss aborts only what waits for the lost rank: the rest has all it needs of it.
void Executor::OnLoss(const PeerLoss& loss) {
  lost_.push_back(loss);
  staging_.Forget(loss.rank);
}

void Executor::AbortAll(const Status& why) {
  for (Exchange* x : active_)
    if (x->state != ExchangeState::kEnded) End(x, Outcome::kAborted, why, 0);
}

// The ranks that the report of a stall names.
std::vector<Rank> Executor::AwaitedPeers(const Exchange& x) const {
  std::vector<Rank> peers;
  if (x.state == ExchangeState::kAwaitReady || x.state >= ExchangeState::kLeaving) return peers;
  uint64_t target = x.channel->ticks + (x.state == ExchangeState::kCommunicator ? 2 : 1);
  if (x.state == ExchangeState::kRunning) {
    const Step& step = x.schedule->steps[std::min(x.cursor, x.schedule->steps.size() - 1)];
    if (step.kind == StepKind::kWait) target = x.channel->ticks + step.tick;
  }
  for (size_t j = 0; j < x.size(); ++j)
    if (transport_->LoadAcquire(&x.CellOf(j)->tick) < target)
      peers.push_back(x.request->group->members[j]);
  return peers;
}

// Whether no member touches this rank's memory any more: each is through, or has given up, or is
// gone.
bool Executor::AllHaveLeft(const Exchange& x) {
  // device-C4: the device may write this exchange's memory until the aborted communicator is over.
  if (x.for_communicator) return communicators_.IsOver(*x.request->group, clock_->Now());
  const uint64_t last = x.channel->ticks + x.schedule->ticks;
  for (size_t j = 0; j < x.size(); ++j) {
    const Cell* cell = x.CellOf(j);
    const Rank rank = x.request->group->members[j];
    const bool lost = std::any_of(lost_.begin(), lost_.end(),
                                  [rank](const PeerLoss& loss) { return loss.rank == rank; });
    // The network reads what this rank has put until it has left, or its receiver is lost.
    const bool may_be_read = x.schedule->puts_input && j != x.Me() && !lost;
    if (may_be_read && !transport_->HasSentAll()) return false;
    if (!lost && transport_->LoadAcquire(&cell->abort) == 0 &&
        transport_->LoadAcquire(&cell->tick) < last)
      return false;
  }
  return true;
}

}  // namespace covey
