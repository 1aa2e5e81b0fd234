#include "core/run/executor.h"

#include <cerrno>
#include <string_view>
#include <utility>

#include "core/run/problem.h"

namespace covey {
namespace {

// After this much work an exchange lets the others have their turn.
constexpr size_t kTurnBytes = 1024 * 1024;
// A device notices the end of a peer before this rank hears of it from the transport: so long the
// news is waited for, so that the lost rank is named.
constexpr Time kNews = kSecond;

}  // namespace

Executor::Executor(const Options& options, Transport* transport)
    : clock_(options.clock),
      transport_(transport),
      data_steps_(options.kernels, transport, transport),
      codec_steps_(options.kernels),
      staging_(options.staging, transport),
      communicators_(options.communicators, transport),
      begins_({.kernels = options.kernels,
               .clock = options.clock,
               .cache_bytes = options.cache_bytes,
               .unstaged_above = options.unstaged_above,
               .places_small = options.places_small,
               .stages_batches = options.stages_batches,
               .planner = options.planner},
              transport, &codec_steps_, &staging_, &communicators_),
      shares_with_all_(transport->SharesWithAll()) {}

void Executor::AddDevice(DeviceType type, Device* device) {
  staging_.AddDevice(type, device);
  if (device->communicators() != nullptr)
    communicators_.SetCommunicators(type, device->communicators());
}

void Executor::Begin(Request* request, Channel* channel, uint64_t occurrence, uint32_t entry,
                     void* owner, Time now) {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Exchange>());
    free_.push_back(all_.back().get());
  }
  Exchange* x = free_.back();
  free_.pop_back();
  x->request = request;
  x->channel = channel;
  x->occurrence = occurrence;
  x->entry = x->begun_as = entry;
  x->owner = owner;
  x->state = ExchangeState::kAwaitReady;
  x->outcome = Outcome::kDone;
  x->schedule = nullptr;
  x->repeats = channel->repeats = false;
  x->cursor = x->next_peer = x->moved_bytes = 0;
  x->shares_memory = shares_with_all_ || transport_->SharesWith(request->group->members);
  x->blocks.clear();
  for (size_t i = 0; i < channel->blocks.size(); ++i)
    x->blocks.push_back(transport_->Base(request->group->members[i]) + channel->blocks[i]);
  x->input.Clear();
  x->output.Clear();
  AddInput(*request, &x->input);
  for (const Tensor& t : request->outputs) x->output.Add(t.data, t.LengthBytes());
  const DType dtype = request->inputs.empty() ? DType::kF32 : request->inputs[0].dtype;
  x->reduction = {dtype, request->op, request->prescale, request->postscale,
                  request->average ? request->group->size() : 1};
  x->codec = codec_steps_.Find(request->codec);
  communicators_.RequestCommunicator(x);
  staging_.Map(x);
  active_.push_back(x);
  Advance(x, now);
}

bool Executor::Progress(Time now) {
  bool moved = false;
  // Begun exchanges may be appended while ended ones are dropped; indices stay valid, iterators
  // would not.
  size_t kept = 0;
  awaits_device_ = false;
  for (size_t i = 0; i < active_.size(); ++i) {
    Exchange* x = active_[i];
    if (x->state != ExchangeState::kEnded) moved |= Advance(x, now);
    // The end of an aborted communicator wakes no thread.
    awaits_device_ |= x->state == ExchangeState::kAwaitReady ||
                      (x->state == ExchangeState::kLeaving && x->for_communicator);
    if (x->state == ExchangeState::kEnded) {
      ended_.push_back(x);
      moved = true;
    } else {
      active_[kept++] = x;
    }
  }
  active_.resize(kept);
  return moved;
}

bool Executor::Advance(Exchange* x, Time now) {
  bool moved = false;
  if (x->state == ExchangeState::kAwaitReady) {
    if (x->path != nullptr && !Passes(x, x->path->Stage(x)))
      return x->state == ExchangeState::kEnded;
    begins_.Publish(x);
    x->begun_at = x->warned_at = x->all_begun_at = now;
    Signal(*x, 1);
    x->state = ExchangeState::kAwaitBegins;
    moved = true;
  }
  if (x->state == ExchangeState::kAwaitBegins) {
    // agree-N4: before all have begun a member may still be void, and user memory would be written.
    if (!Await(x, 1, kEveryRank)) return moved || x->state == ExchangeState::kEnded;
    x->all_begun_at = now;
    if (!begins_.Agree(x)) {
      End(x, Outcome::kVoid, {}, now);
      return true;
    }
    if (!GoesOnStaged(x, now)) return true;
    x->channel->streaming = x->CellOf(0)->placement[x->Turn()].streaming != 0;
    begins_.Measure(x);
    if (x->schedule == nullptr) begins_.ChooseSchedule(x);
    x->state = ExchangeState::kRunning;
    moved = true;
  }
  if (x->state == ExchangeState::kRunning) moved |= RunSteps(x, now);
  if (x->state == ExchangeState::kCommunicator) moved |= RunCommunicator(x, now);
  if (x->state == ExchangeState::kLeaving && AllHaveLeft(*x))
    End(x, Outcome::kAborted, std::move(x->why), now);
  return moved;
}

// False: wait for the device, or the exchange has been aborted.
bool Executor::Passes(Exchange* x, DataPath::Answer answer) {
  if (answer == DataPath::Answer::kFailed)
    Abort(x, x->path->failure().rank, x->path->failure().how);
  awaits_device_ |= answer == DataPath::Answer::kNotYet;
  return answer == DataPath::Answer::kYes;
}

void Executor::Signal(const Exchange& x, uint32_t tick) {
  // run-X3: a parked peer looks at the tick only if it is woken.
  transport_->StoreRelease(&x.CellOf(x.Me())->tick, x.channel->ticks + tick);
  transport_->Wake(x.request->group->members);
}

// kSignal: to those that wait for it.
void Executor::SignalSome(const Exchange& x, const Step& step) {
  const std::vector<int16_t>& told = step.peer == kOwnHost ? x.schedule->host : x.schedule->reach;
  if (told.empty()) return Signal(x, step.tick);
  told_.clear();
  for (const int16_t j : told) told_.push_back(x.request->group->members[static_cast<size_t>(j)]);
  // run-X3: as of Signal. The others see this tick with a later one.
  transport_->StoreRelease(&x.CellOf(x.Me())->tick, x.channel->ticks + step.tick);
  transport_->Wake(told_);
}

// Whether `peer` (kEveryRank: every member) has reached `tick`. On false the exchange may have been
// aborted.
bool Executor::Await(Exchange* x, uint32_t tick, int peer) {
  const uint64_t target = x->channel->ticks + tick;
  const size_t begin = peer == kEveryRank ? x->next_peer : static_cast<size_t>(peer);
  const size_t end = peer == kEveryRank ? x->size() : begin + 1;
  for (size_t j = begin; j < end; ++j) {
    if (transport_->LoadAcquire(&x->CellOf(j)->tick) >= target) continue;
    x->next_peer = peer == kEveryRank ? j : x->next_peer;
    AbortIfInVain(x, target, j);
    // The first awaited member may be alive, and a later one gone.
    for (size_t k = j + 1; k < end && !lost_.empty(); ++k) AbortIfInVain(x, target, k);
    return false;
  }
  x->next_peer = 0;
  return true;
}

bool Executor::AwaitsWord() const {
  if (active_.size() != 1 || !shares_with_all_) return false;
  const Exchange& x = *active_.front();
  uint64_t target = x.channel->ticks + 1;
  size_t j = x.next_peer;
  if (x.state == ExchangeState::kRunning && x.path == nullptr) {
    const Step& step = x.schedule->steps[x.cursor];
    if (step.kind != StepKind::kWait) return false;
    target = x.channel->ticks + step.tick;
    if (step.peer != kEveryRank) j = static_cast<size_t>(step.peer);
  } else if (x.state != ExchangeState::kAwaitBegins) {
    return false;
  }
  return transport_->LoadAcquire(&x.CellOf(j)->tick) < target;
}

bool Executor::RunSteps(Exchange* x, Time now) {
  const size_t begin_cursor = x->cursor;
  const std::vector<Step>& steps = x->schedule->steps;
  for (size_t moved = 0; x->cursor < steps.size() && moved < kTurnBytes; ++x->cursor) {
    const Step& step = steps[x->cursor];
    if (step.kind == StepKind::kWait && !Await(x, step.tick, step.peer)) break;
    if (x->path != nullptr && !Passes(x, x->path->MayRun(x, step))) break;
    if (!RunStep(x, step)) break;
    if (x->path != nullptr && !Passes(x, x->path->DidRun(x, step))) break;
    moved += step.length_bytes;
  }
  if (x->state == ExchangeState::kRunning && x->cursor == steps.size()) {
    begins_.Learn(*x);
    End(x, Outcome::kDone, {}, now);
  }
  return x->cursor != begin_cursor || x->state == ExchangeState::kEnded;
}

// False: it cannot be done now; the exchange may have been aborted.
bool Executor::RunStep(Exchange* x, const Step& step) {
  switch (step.kind) {
    case StepKind::kWait:
      break;
    case StepKind::kPush:
      if (step.src.place == Place::kInput) {
        data_steps_.Put(*x, step);
      } else {
        PushStep(*x, step, transport_);
      }
      break;
    case StepKind::kSignal:
      SignalSome(*x, step);
      break;
    case StepKind::kCopy:
      data_steps_.Copy(*x, step);
      break;
    case StepKind::kReduce:
      if (x->path != nullptr && x->path->ReducesItself()) return Passes(x, x->path->Reduce(x));
      data_steps_.Reduce(*x, step);
      break;
    case StepKind::kReduceFetched:
      data_steps_.ReduceFetched(*x, step);
      break;
    case StepKind::kMix:
      data_steps_.Mix(*x, step);
      break;
    case StepKind::kFetch:
      return Fetch(x, step);
    case StepKind::kBeginSum:
    case StepKind::kAddToSum:
    case StepKind::kFinishSum:
    case StepKind::kCombineSums:
      data_steps_.Sum(*x, step);
      break;
    case StepKind::kSumHost:
      data_steps_.SumHost(*x, step);
      break;
    case StepKind::kEncode:
      codec_steps_.Encode(*x, step);
      break;
    case StepKind::kReduceCoded:
      codec_steps_.Reduce(*x, step);
      break;
    case StepKind::kMixCoded:
      codec_steps_.Mix(*x, step);
      break;
    case StepKind::kEncodeSum:
      codec_steps_.EncodeSum(*x, step);
      break;
    case StepKind::kDecodeSum:
    case StepKind::kAddDecoded:
      codec_steps_.DecodeSum(*x, step);
      break;
  }
  return true;
}

// False: the peer's memory cannot be read now; the exchange may have been aborted.
bool Executor::Fetch(Exchange* x, const Step& step) {
  const int error = data_steps_.Fetch(*x, step);
  if (error == 0) return true;
  const Rank peer = x->request->group->members[static_cast<size_t>(step.src.index)];
  for (const PeerLoss& loss : lost_)
    if (loss.rank == peer) Abort(x, peer, loss.how);
  // A peer that is gone will be reported as lost; anything else will not get better.
  if (error != ESRCH) Abort(x, peer, "cannot be read from: " + ErrnoText(error));
  return false;
}

void Executor::End(Exchange* x, Outcome outcome, Status why, Time now) {
  Channel& channel = *x->channel;
  x->state = ExchangeState::kEnded;
  // run-X2: an exchange that is not done uses one tick and one slot on every member.
  channel.ticks += outcome == Outcome::kDone ? x->schedule->ticks : 1;
  channel.slots += outcome == Outcome::kDone ? x->schedule->slots : 1;
  channel.exchanges += 1;
  const bool done = outcome == Outcome::kDone;
  if (x->path != nullptr && !x->path->Finish(x, done) && done) {
    outcome = Outcome::kAborted;  // for the peers it is done
    const PeerLoss& lost = x->path->failure();
    why = Status::Aborted("rank " + std::to_string(ToInt(lost.rank)) + " " + lost.how, lost.rank);
  }
  x->outcome = outcome;
  x->why = std::move(why);
  if (outcome == Outcome::kVoid) ++counters_.voided;
  if (outcome == Outcome::kAborted) ++counters_.aborted;
  if (outcome != Outcome::kDone) return;
  ++counters_.done;
  counters_.moved_bytes += x->output.length_bytes();
  counters_.wire_bytes += TravellingBytes(x->request->form, x->output.length_bytes());
  counters_.direct += std::string_view(x->schedule->algorithm) == "direct";
  counters_.by_ipc += x->by_ipc;
  counters_.wait_begin_ns += x->all_begun_at - x->begun_at;
  counters_.run_ns += now - x->all_begun_at;
}

// All have begun alike. Whether it goes on through the arena; else a communicator does it, or it
// begins once more, or has ended.
bool Executor::GoesOnStaged(Exchange* x, Time now) {
  switch (communicators_.Judge(x)) {
    case CommunicatorVerdict::kStaged:
      return true;
    case CommunicatorVerdict::kRefused:
      x->for_communicator = false;
      End(x, Outcome::kAborted, Status::Unsupported(communicators_.Refusal(*x->request->group)),
          now);
      return false;
    case CommunicatorVerdict::kAgain:
      x->channel->ticks += 1;
      x->channel->slots += 1;
      x->channel->exchanges += 1;
      if (x->for_communicator) {
        x->for_communicator = false;
        staging_.Map(x);
      }
      x->state = ExchangeState::kAwaitReady;
      ++counters_.again;
      return false;
    case CommunicatorVerdict::kCommunicator:
      break;
  }
  x->state = ExchangeState::kCommunicator;
  communicators_.Propose(x);
  Signal(*x, CommunicatorPath::kTurnTick);
  return false;
}

bool Executor::RunCommunicator(Exchange* x, Time now) {
  const CommunicatorPhase before = x->phase;
  if (PeerLoss why; communicators_.IsAborted(*x->request->group, &why)) {
    Abort(x, why.rank, why.how);
    return true;
  }
  if (x->phase == CommunicatorPhase::kProposed) {
    if (!Await(x, CommunicatorPath::kTurnTick, kEveryRank))
      return x->state != ExchangeState::kCommunicator;
    communicators_.Settle(x);
  }
  if (LooksForLost(x)) return true;
  const Communicators::Answer done =
      x->failed_at != 0 ? Communicators::Answer::kFailed : communicators_.Advance(x);
  if (done == Communicators::Answer::kFailed) FailCommunicator(x, now);
  if (done == Communicators::Answer::kYes) {
    Signal(*x, CommunicatorPath::kDoneTick);
    ++counters_.by_communicator;
    End(x, Outcome::kDone, {}, now);
  }
  if (x->state != ExchangeState::kCommunicator) return true;
  awaits_device_ = true;
  return x->phase != before;
}

// Whether a member that has not done it never will: the exchange has been aborted. A member that
// gave up because of another, and may have gone since, is not to blame.
bool Executor::LooksForLost(Exchange* x) {
  const uint64_t done = x->channel->ticks + CommunicatorPath::kDoneTick;
  for (size_t j = 0; j < x->size(); ++j) {
    const Cell* cell = x->CellOf(j);
    const Rank rank = x->request->group->members[j];
    const uint64_t abort = transport_->LoadAcquire(&cell->abort);
    const Rank lost{static_cast<int32_t>(abort) - 1};
    if (abort == 0 || lost == rank || transport_->LoadAcquire(&cell->tick) >= done) continue;
    Abort(x, lost, "has gone (seen by rank " + std::to_string(ToInt(rank)) + ")");
    return true;
  }
  for (size_t j = 0; j < x->size(); ++j) {
    // agree-N11: a member that is gone never reaches this tick: the exchange is aborted.
    AbortIfInVain(x, done, j);
    if (x->state != ExchangeState::kCommunicator) return true;
  }
  return false;
}

// RunCommunicator has looked for members that are lost.
void Executor::FailCommunicator(Exchange* x, Time now) {
  if (x->failed_at == 0) x->failed_at = now;
  if (now - x->failed_at < kNews) return;
  Abort(x, transport_->rank(), "could not go on: " + communicators_.Failure(*x->request->group));
}

}  // namespace covey
