// The executor's part that carries a small sum out again: see executor.h.
#include <utility>

#include "core/run/executor.h"

namespace covey {

bool Executor::NoteRepeats(Exchange* x) {
  x->repeats = x->outcome == Outcome::kDone && x->path == nullptr && x->own_schedule == nullptr &&
               x->schedule->ticks == 1 && begins_.StagesAlike(*x);
  return x->repeats;
}

Exchange*& Executor::KeptPlace(const Request& request) {
  return kept_[request.place % kept_.size()];
}

void Executor::Recycle(Exchange* x) {
  x->own_schedule.reset();
  x->why = Status::Ok();
  if (x->repeats) {
    x->channel->repeats = true;
    std::swap(x, KeptPlace(*x->request));
  }
  if (x != nullptr) free_.push_back(x);
}

Exchange* Executor::TakeRepeat(Request* request, Channel* channel, uint64_t occurrence) {
  Exchange*& kept = KeptPlace(*request);
  // run-X6: the channel's last, in the landing space and by the entry that it had.
  if (!channel->repeats || kept == nullptr || kept->channel != channel || kept->request != request)
    return nullptr;
  Exchange* x = std::exchange(kept, nullptr);
  x->repeats = channel->repeats = false;
  x->occurrence = occurrence;
  x->entry = x->begun_as;
  x->state = ExchangeState::kAwaitBegins;
  x->cursor = x->next_peer = x->moved_bytes = 0;
  const Tensor& in = request->inputs[0];
  const Tensor& out = request->outputs[0];
  if (x->input.First() != in.data) x->input.Move(in.data);
  if (x->output.First() != out.data) x->output.Move(out.data);
  return x;
}

void Executor::BeginRepeat(Exchange* x) {
  begins_.PublishAgain(x);
  Signal(*x, 1);
}

bool Executor::AllHaveBegun(Exchange* x) {
  const uint64_t target = x->channel->ticks + 1;
  for (; x->next_peer < x->size(); ++x->next_peer)
    if (transport_->LoadAcquire(&x->CellOf(x->next_peer)->tick) < target) return false;
  return true;
}

bool Executor::FinishRepeat(Exchange* x, Time waited) {
  // engine-E6: agree-N4: as in Advance.
  if (!begins_.Agree(x)) return false;
  data_steps_.ReduceStaged(*x);
  // How long the sum takes is not looked at: a clock costs as much.
  x->begun_at = 0;
  x->all_begun_at = waited;
  End(x, Outcome::kDone, {}, waited);
  x->repeats = true;
  return true;
}

void Executor::Resume(Exchange* x, void* owner, Time now) {
  x->owner = owner;
  x->begun_at = x->warned_at = x->all_begun_at = now;
  x->next_peer = 0;
  active_.push_back(x);
}

}  // namespace covey
