#include "core/run/executor.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "core/base/check.h"
#include "core/run/problem.h"

namespace covey {
namespace {

// After this much work an exchange lets the others have their turn.
constexpr size_t kTurnBytes = 1024 * 1024;
// Schedules kept; a job has as many as it has distinct message shapes.
constexpr size_t kMaxSchedules = 4096;

}  // namespace

size_t Executor::ProblemHash::operator()(const Problem& p) const {
  size_t h = static_cast<size_t>(p.kind);
  for (uint64_t v : {uint64_t(p.size), uint64_t(p.me), uint64_t(p.root), uint64_t(p.all_arena),
                     uint64_t(p.all_readable), uint64_t(p.dtype), p.length_bytes, p.slot_bytes,
                     uint64_t(p.form.block_elems), uint64_t(p.form.elem_bits)})
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
  for (bool late : p.late) h = (h ^ uint64_t{late}) * 0x9e3779b97f4a7c15u;
  for (uint64_t share : p.shares) h = (h ^ share) * 0x9e3779b97f4a7c15u;
  return h;
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
  x->codec = coder_.Find(request->codec);
  Dial(x);
  Board(x);
  active_.push_back(x);
  Advance(x, now);
}

void Executor::Recycle(Exchange* exchange) {
  exchange->own_schedule.reset();
  exchange->why = Status::Ok();
  free_.push_back(exchange);
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
    awaits_device_ |= x->state == ExchangeState::kAwaitReady;
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
    if (x->ferry != nullptr && !HasInput(x)) return x->state == ExchangeState::kEnded;
    Publish(x, now);
    x->state = ExchangeState::kAwaitBegins;
    moved = true;
  }
  if (x->state == ExchangeState::kAwaitBegins) {
    if (!Await(x, 1, kEveryRank)) return moved || x->state == ExchangeState::kEnded;
    x->all_begun_at = now;
    if (!JudgeBegins(x, now) || !JudgeCircuit(x, now)) return true;
    x->channel->streaming = x->CellOf(0)->placement[x->Turn()].streaming != 0;
    if (LearnsStores(*x)) x->busy_since = options_.clock->Now();
    if (x->schedule == nullptr) ChooseSchedule(x);
    x->state = ExchangeState::kRunning;
    moved = true;
  }
  if (x->state == ExchangeState::kRunning) moved |= RunSteps(x, now);
  if (x->state == ExchangeState::kCircuit) moved |= RunCircuit(x, now);
  if (x->state == ExchangeState::kLeaving && AllHaveLeft(*x))
    End(x, Outcome::kAborted, std::move(x->why), now);
  return moved;
}

// Whether member `index` begins without its first segment in its landing slot.
bool Executor::IsLate(const Exchange& x, size_t index) const {
  if (x.in_common) return true;
  if (!Reduces(x.request->kind) || x.codec != nullptr || !x.shares_memory) return false;
  return x.input.length_bytes() > options_.late_above &&
         x.CellOf(index)->placement[x.Turn()].input != Transport::kNoOffset;
}

bool Executor::StagesInput(const Exchange& x) const {
  const Request& r = *x.request;
  if (x.entry == 0 || x.for_circuit || IsLate(x, x.Me())) return false;
  return Gives(r.kind, r.group->members[x.Me()] == r.root);
}

// Whether this rank decides how what the group reduces is staged, see core/run/store_tuner.h.
bool Executor::LearnsStores(const Exchange& x) const {
  return x.Me() == 0 && x.size() > 1 && x.entry != 0 && Reduces(x.request->kind) &&
         x.codec == nullptr && !x.in_common && !x.for_circuit && x.shares_memory &&
         x.input.length_bytes() >= StoreTuner::kLeastBytes;
}

// The begin header, the placement and the first segment, then tick 1.
void Executor::Publish(Exchange* x, Time now) {
  const bool learns = LearnsStores(*x);
  if (learns) x->busy_since = options_.clock->Now();
  x->streaming = x->channel->streaming;
  Cell* cell = x->CellOf(x->Me());
  const size_t turn = x->Turn();
  cell->begin[turn] = {static_cast<uint32_t>(x->occurrence), x->entry};
  const auto offset_of = [&](const Spans& spans) {
    bool inside = spans.length_bytes() > 0;
    spans.ForEachPiece([&](const std::byte* data, size_t length) {
      inside = inside && transport_->OffsetOf(data, length) != Transport::kNoOffset;
    });
    return inside ? transport_->OffsetOf(spans.First(), 1) : Transport::kNoOffset;
  };
  const Kind kind = x->request->kind;
  const auto rows = TraitsOf(kind).output == OutputRule::kInputs
                        ? static_cast<uint64_t>(x->request->inputs[0].shape.dims[0])
                        : 0;
  const auto address_of = [&](const Spans& spans) {
    return transport_->CanReadPeers() ? reinterpret_cast<uint64_t>(spans.Contiguous()) : 0;
  };
  cell->placement[turn] = {
      .input_address = address_of(x->input),
      .output_address = address_of(x->output),
      .input = offset_of(x->input),
      .output = offset_of(x->output),
      .layout = x->input.Layout() * 31 ^ (Scatters(kind) ? 0 : x->output.Layout()),
      .rows = rows,
      .streaming = learns && stores_.Next(x->input.length_bytes()) == Stores::kStreaming,
      .room = RoomWord(*x)};
  std::copy(x->request->splits.begin(), x->request->splits.end(), x->TableOf(x->Me()));
  std::copy(x->request->peers.begin(), x->request->peers.end(), x->TableOf(x->Me()));
  if (StagesInput(*x)) {
    const size_t first = std::min<size_t>(x->input.length_bytes(), x->channel->slot_bytes);
    std::byte* slot = x->Slot(x->Me(), 0);
    if (x->codec != nullptr) coder_.EncodeFirst(*x);
    if (x->codec == nullptr && first > 0)
      x->input.ForEach(0, first, [&](const std::byte* piece, size_t delta, size_t length) {
        options_.kernels->copy(slot + delta, piece, length,
                               x->streaming ? Stores::kStreaming : Stores::kCached);
      });
  }
  if (learns) x->busy = options_.clock->Now() - x->busy_since;
  OfferCircuit(x);
  if (!x->shares_memory) PushBegin(x);
  x->begun_at = x->warned_at = x->all_begun_at = now;
  Signal(*x, 1);
}

// The header with the table, and what peers read of the first segment. Unless it depends on the
// other begins how much that is, the schedule is known already.
void Executor::PushBegin(Exchange* x) {
  const auto& members = x->request->group->members;
  auto* header = reinterpret_cast<std::byte*>(x->CellOf(x->Me())->begin);
  transport_->Push(members, header, TableOffset(2, x->size()) - offsetof(Cell, begin));
  if (x->entry == 0 || x->for_circuit) return;
  if (Gathers(x->request->kind) || Mixes(x->request->kind)) {
    const EncodedLayout& form = x->request->form;
    const size_t slot = x->channel->slot_bytes;
    const size_t segment = form.Codes() ? form.ElemsIn(slot) * sizeof(float) : slot;
    const size_t first = TravellingBytes(form, std::min<size_t>(x->input.length_bytes(), segment));
    return transport_->Push(ReadersOf(*x), x->Slot(x->Me(), 0), first);
  }
  ChooseSchedule(x);
  for (const Step& step : x->schedule->begin_pushes) Push(*x, step);
}

// Who may read what this rank stages at its begin, before it has seen the others'.
std::vector<Rank> Executor::ReadersOf(const Exchange& x) const {
  const std::vector<Rank>& members = x.request->group->members;
  if (TraitsOf(x.request->kind).root == RootRule::kGets) return {x.request->root};
  const PeerTable own = x.PeersOf(x.Me());
  if (!Mixes(x.request->kind) || SendsToAny(own, x.size(), x.Me())) return members;
  std::vector<Rank> readers;
  for (size_t j = 0; j < x.size(); ++j)
    if (SendsTo(own, x.size(), j)) readers.push_back(members[j]);
  return readers;
}

void Executor::Push(const Exchange& x, const Step& step) {
  const std::vector<Rank>& members = x.request->group->members;
  const auto peer = static_cast<size_t>(step.peer);
  const std::span<const Rank> peers =
      step.peer == kEveryRank ? std::span(members) : std::span(members).subspan(peer, 1);
  transport_->Push(peers, x.Slot(x.Me(), step.src.slot) + step.src.offset, step.length_bytes);
}

void Executor::Signal(const Exchange& x, uint32_t tick) {
  transport_->StoreRelease(&x.CellOf(x.Me())->tick, x.channel->ticks + tick);
  transport_->Wake(x.request->group->members);
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
    // Whoever is awaited first may be well, and a later one gone.
    for (size_t k = j + 1; k < end && !lost_.empty(); ++k) AbortIfInVain(x, target, k);
    return false;
  }
  x->next_peer = 0;
  return true;
}

// Compares all begin headers, and who averages with whom. False: they differ, or one is void, and
// the exchange has ended kVoid.
// Every member reads the same headers, so every member judges alike.
bool Executor::JudgeBegins(Exchange* x, Time now) {
  const bool agree = JudgeRooms(x);
  for (size_t j = 0; j < x->size(); ++j) {
    const covey::Begin& theirs = x->CellOf(j)->begin[x->Turn()];
    if (agree && x->entry != 0 && theirs.entry == x->entry &&
        theirs.occurrence == static_cast<uint32_t>(x->occurrence))
      continue;
    End(x, Outcome::kVoid, {}, now);
    return false;
  }
  if (!Mixes(x->request->kind)) return true;
  std::vector<PeerTable> tables;
  for (size_t j = 0; j < x->size(); ++j) tables.push_back(x->PeersOf(j));
  PeerConflict conflict;
  if (!FindConflict(tables, &conflict)) return true;
  End(x, Outcome::kVoid, {}, now);
  return false;
}

void Executor::ChooseSchedule(Exchange* x) {
  Problem problem = ProblemOf(*x, options_.cache_bytes);
  problem.mirrored = !x->shares_memory;
  for (size_t j = 0; j < x->size(); ++j) {
    if (!IsLate(*x, j)) continue;
    problem.late.resize(x->size());
    problem.late[j] = true;
  }
  if (Gathers(problem.kind)) {
    AllocateResult(x);
    x->own_schedule = std::make_unique<Schedule>(options_.plan(options_.plan_settings, problem));
    x->schedule = x->own_schedule.get();
    return;
  }
  if (const auto found = schedules_.find(problem); found != schedules_.end()) {
    x->schedule = found->second.get();
    return;
  }
  auto built = std::make_unique<Schedule>(options_.plan(options_.plan_settings, problem));
  if (schedules_.size() >= kMaxSchedules) {
    x->own_schedule = std::move(built);
    x->schedule = x->own_schedule.get();
    return;
  }
  x->schedule = schedules_.emplace(std::move(problem), std::move(built)).first->second.get();
}

bool Executor::RunSteps(Exchange* x, Time now) {
  const size_t begin_cursor = x->cursor;
  const std::vector<Step>& steps = x->schedule->steps;
  for (size_t moved = 0; x->cursor < steps.size() && moved < kTurnBytes; ++x->cursor) {
    const Step& step = steps[x->cursor];
    if (step.kind == StepKind::kWait && !Await(x, step.tick, step.peer)) break;
    if (x->ferry != nullptr && !MayRun(x, step)) break;
    switch (step.kind) {
      case StepKind::kWait:
        break;
      case StepKind::kPush:
        Push(*x, step);
        break;
      case StepKind::kSignal:
        Signal(*x, step.tick);
        break;
      case StepKind::kCopy:
        mover_.Copy(*x, step);
        break;
      case StepKind::kReduce:
        if (x->in_common && !ReduceInCommon(x)) return true;
        if (!x->in_common) mover_.Reduce(*x, step);
        break;
      case StepKind::kReduceFetched:
        mover_.ReduceFetched(*x, step);
        break;
      case StepKind::kMix:
        mover_.Mix(*x, step);
        break;
      case StepKind::kFetch:
        if (!Fetch(x, step)) return x->cursor != begin_cursor;
        break;
      case StepKind::kBeginSum:
      case StepKind::kAddToSum:
      case StepKind::kFinishSum:
      case StepKind::kCombineSums:
        mover_.Sum(*x, step);
        break;
      case StepKind::kEncode:
        coder_.Encode(*x, step);
        break;
      case StepKind::kReduceCoded:
        coder_.Reduce(*x, step);
        break;
      case StepKind::kMixCoded:
        coder_.Mix(*x, step);
        break;
    }
    if (x->ferry != nullptr && !DidRun(x, step)) break;
    moved += step.length_bytes;
  }
  if (x->state == ExchangeState::kRunning && x->cursor == steps.size()) {
    if (!x->schedule->shares_memory && LearnsStores(*x))
      stores_.Learn(x->input.length_bytes(), x->streaming ? Stores::kStreaming : Stores::kCached,
                    x->busy + options_.clock->Now() - x->busy_since);
    End(x, Outcome::kDone, {}, now);
  }
  return x->cursor != begin_cursor || x->state == ExchangeState::kEnded;
}

// False: the peer's memory cannot be read now; the exchange may have been aborted.
bool Executor::Fetch(Exchange* x, const Step& step) {
  const int error = mover_.Fetch(*x, step);
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
  channel.ticks += outcome == Outcome::kDone ? x->schedule->ticks : 1;
  channel.slots += outcome == Outcome::kDone ? x->schedule->slots : 1;
  channel.exchanges += 1;
  if (x->ferry != nullptr && !Land(x, outcome == Outcome::kDone) && outcome == Outcome::kDone) {
    outcome = Outcome::kAborted;  // for the peers it is done
    why = DeviceLoss(*x);
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
  counters_.in_common += x->in_common;
  counters_.wait_begin_ns += x->all_begun_at - x->begun_at;
  counters_.run_ns += now - x->all_begun_at;
}

}  // namespace covey
