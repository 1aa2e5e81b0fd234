#include "tests/sim/simulator/rank.h"

#include "tests/sim/simulator/mailed_transport.h"

#include <algorithm>
#include <set>

namespace covey {

const Bytes& Job::ExpectedOf(size_t op) {
  if (expected[op].empty()) expected[op] = Expected(seed, program, op);
  return expected[op];
}

namespace {

// The operations that joined ranks take part in, with the reduction's identity element.
bool CanDoWithJoined(const Spec& spec) {
  if (spec.kind == Kind::kBarrier) return true;
  return spec.kind == Kind::kAllreduce &&
         (spec.op == Op::kSum || (spec.prescale == 1.0 && spec.codec.empty()));
}

// Some ranks put what others send as messages.
size_t PutBytes(int32_t rank) { return rank % 3 == 0 ? size_t{8} << 10 : 64; }

}  // namespace

bool Job::AnyLost(const std::vector<int32_t>& members) const {
  return std::any_of(members.begin(), members.end(),
                     [&](int32_t r) { return journal->IsLost(Rank{r}); });
}

SimRank::SimRank(Job* job, int32_t rank)
    : job_(job),
      rank_(rank),
      log_(LogLevel::kOff, Rank{rank}),
      device_(&job->network->clock(), job->seed * 1009 + static_cast<uint64_t>(rank),
              job->swarm.device_delay) {
  const Swarm& swarm = job->swarm;
  transport_ = &job->network->transport(Rank{rank});
  if (swarm.device_memory > 0)
    device_.Share(rank != swarm.opens_nothing,
                  swarm.device_memory / (rank % 2 == 0 ? 1 : size_t{2}));
  if (swarm.mirrored) {
    const Status opened = OpenMailedTransport(
        job->network.get(), Rank{rank}, swarm.per_host,
        {.arena_bytes = swarm.region_bytes, .put_bytes = PutBytes(rank)}, &mirrored_);
    if (!opened.ok()) job->journal->Fail(opened.message());
    transport_ = mirrored_.get();
  }
  runtime_ = std::make_unique<Runtime>(
      Runtime::Options{
          .segment_bytes = swarm.segment_bytes,
          .stall_warning = swarm.stall_warning,
          .fusion = {.threshold_bytes = swarm.fusion_bytes, .window = swarm.fusion_window},
          .retire = swarm.retire,
          .agreed_text = "segment_bytes=" + std::to_string(swarm.segment_bytes),
          .selector = {.flat_bytes = swarm.flat_bytes,
                       .read_bytes = swarm.read_bytes,
                       .algorithm = swarm.algorithm},
          .landing_bytes = swarm.landing_bytes * (rank % 2 == 1 ? 1 : 2),
          .devices = {nullptr, nullptr, &device_},
          .device_arena_bytes = swarm.region_bytes / 16,
          .kernels = &BestKernels(),
          .clock = &job->network->clock(),
          .log = &log_,
          .observer = job->journal.get()},
      transport_, &queue_);
  fiber_ = std::make_unique<Fiber>([this] { Main(); });
}

bool SimRank::Finished() const {
  return next_action_ == job_->program.actions[static_cast<size_t>(rank_)].size() && open_.empty();
}

bool SimRank::IsRunnable() const {
  if (!asleep_ || rung_) return true;
  return until_ <= job_->network->clock().Now() || job_->network->HasArrived(Rank{rank_});
}

bool SimRank::IsAtRest() const { return Finished() && asleep_ && !rung_ && runtime_->Idle(); }

void SimRank::OnRing(bool mail) {
  rung_late_ = true;
  if (listens_ == Bell::kAll || (listens_ == Bell::kMailOnly && mail)) rung_ = true;
}

// ---- Inside the fiber ---------------------------------------------------------------------------

void SimRank::Main() {
  int32_t idle = 0;
  while (!job_->stop) {
    Act();
    if (job_->swarm.leaving && Finished() && !transport_->HasUnsent()) {
      job_->journal->OnLoss(Rank{rank_}, Journal::Loss::kLeft);
      job_->network->Kill(Rank{rank_}, "has left the job");
      return;
    }
    if (Pass()) {
      idle = 0;
    } else if (++idle > job_->swarm.looks) {
      Sleep();
      idle = 0;
    } else {
      Yield();
    }
  }
}

// Goes on in the program as far as it can without waiting.
void SimRank::Act() {
  const std::vector<Action>& actions = job_->program.actions[static_cast<size_t>(rank_)];
  while (next_action_ < actions.size() && thinks_until_ <= job_->network->clock().Now()) {
    const Action& action = actions[next_action_];
    if (action.kind == ActionKind::kWait && IsOpen(action.op)) return;
    ++next_action_;
    if (action.kind == ActionKind::kThink)
      thinks_until_ = job_->network->clock().Now() + action.think;
    if (action.kind == ActionKind::kSubmit) Submit(action.op);
    if (job_->rng.Percent(30)) return;  // some passes in between
  }
  if (next_action_ < actions.size()) return;
  for (Ticket* ticket : open_)
    if (!ticket->by_callback) queue_.Await(ticket->operation);
}

// Whether the operation this rank waits for has not ended. Some have only a callback, and a program
// that waits for that does not tell the runtime.
bool SimRank::IsOpen(size_t op) {
  const auto found =
      std::find_if(open_.begin(), open_.end(), [op](Ticket* t) { return t->op == op; });
  if (found == open_.end()) return false;
  if (!(*found)->by_callback) queue_.Await((*found)->operation);
  return true;
}

void SimRank::JudgeDevice(const Ticket& ticket, const Status& status) {
  if (status.ok() && device_.IsReady(ticket.event) != Device::Answer::kYes)
    Fail(ticket, "done before its input");
  device_.Finish(ticket.event);
  device_.Synchronize(ticket.event);
  for (const Tensor& t : ticket.on_device)
    if (device_.Uses(t.data, t.LengthBytes()))
      Fail(ticket, "the user's stream comes before a copy from or to its memory");
}

const Group* SimRank::GroupOf(const std::vector<int32_t>& members) {
  auto group = std::make_unique<Group>();
  for (size_t i = 0; i < members.size(); ++i) {
    group->members.push_back(Rank{members[i]});
    if (members[i] == rank_) group->my_index = GroupIndex{static_cast<int32_t>(i)};
  }
  group->key =
      static_cast<int32_t>(members.size()) == job_->swarm.size ? 0 : GroupKey(group->members);
  for (const auto& known : groups_)
    if (known->key == group->key) return known.get();
  groups_.push_back(std::move(group));
  return groups_.back().get();
}

// One pass, and what the process does after it.
bool SimRank::Pass() {
  bool moved = false;
  runtime_->RunOnce(&moved);
  Collect();
  return moved;
}

void SimRank::OnCallback(void* context, uint64_t, const Status& status) {
  auto* ticket = static_cast<Ticket*>(context);
  if (++ticket->callbacks > 1) ticket->rank->Fail(*ticket, "its callback ran twice");
  if (ticket->by_callback) ticket->rank->Judge(ticket, status);
}

// Runs callbacks and looks at every operation that has ended, before any other rank moves.
void SimRank::Collect() {
  queue_.RunCallbacks();
  for (Ticket* ticket : open_) {
    if (ticket->by_callback || !ticket->operation->ended.load()) continue;
    Judge(ticket, ticket->operation->status);
    job_->journal->OnForget(Rank{rank_}, *ticket->operation);
    queue_.Release(ticket->handle);
  }
  std::erase_if(open_, [](const Ticket* t) { return t->judged; });
}

void SimRank::Fail(const Ticket& ticket, const std::string& what) {
  const ProgramOp& op = job_->program.ops[ticket.op];
  job_->journal->Fail("operation " + std::to_string(ticket.op) + " (" + NameOf(op.spec.kind) +
                      " '" + job_->program.streams[op.stream].name + "'." +
                      std::to_string(op.occurrence) + ") on rank " + std::to_string(rank_) + ": " +
                      what);
}

void SimRank::Judge(Ticket* ticket, const Status& status) {
  if (job_->stop) return;
  ticket->judged = true;
  const ProgramOp& op = job_->program.ops[ticket->op];
  const StatusCode code = status.code();
  if (ticket->event != nullptr) JudgeDevice(*ticket, status);
  if (status.ok()) {
    if (op.odd >= 0) Fail(*ticket, "rank at index " + std::to_string(op.odd) + " deviated unseen");
    const std::string wrong =
        ticket->payload.CheckDone(job_->ExpectedOf(ticket->op), ticket->operation->gathered.get());
    if (!wrong.empty()) Fail(*ticket, wrong);
    if (!op.spec.codec.empty()) JudgeCoded(*ticket);
    if (op.AnyJoined() && !CanDoWithJoined(op.spec))
      Fail(*ticket, "done without a rank that has joined");
    if (op.spec.kind == Kind::kJoin) JudgeJoin(*ticket);
  } else {
    JudgeFailure(*ticket, status);
  }
  if (!job_->has_outcome[ticket->op]) {
    job_->has_outcome[ticket->op] = true;
    job_->outcomes[ticket->op] = code;
  } else if (job_->outcomes[ticket->op] != code &&
             !job_->AnyLost(job_->program.MembersOf(ticket->op))) {
    Fail(*ticket, std::string("ended ") + NameOf(code) + ", elsewhere " +
                      NameOf(job_->outcomes[ticket->op]));
  }
  ticket->payload.Poison();
}

// Codes are rounded, but decoded and combined to the same bits on all ranks.
void SimRank::JudgeCoded(const Ticket& ticket) {
  Bytes& first = job_->first_result[ticket.op];
  const Bytes mine = ticket.payload.Result();
  if (first.empty()) first = mine;
  if (first != mine) Fail(ticket, "ranks decode to other bits");
}

// All ranks are told of the same one, which took part.
void SimRank::JudgeJoin(const Ticket& ticket) {
  const std::vector<int64_t>& rows = ticket.operation->rows;
  int64_t& first = job_->last_joined[ticket.op];
  if (rows.size() != 1 || rows[0] < 0 || rows[0] >= job_->swarm.size)
    return Fail(ticket, "it does not say who joined last");
  if (first == -1) first = rows[0];
  if (first != rows[0]) Fail(ticket, "ranks disagree who joined last");
}

void SimRank::JudgeFailure(const Ticket& ticket, const Status& status) {
  const ProgramOp& op = job_->program.ops[ticket.op];
  const bool aborted = status.code() == StatusCode::kAborted;
  const std::string written =
      aborted ? ticket.payload.CheckInputsWhole() : ticket.payload.CheckAllWhole();
  if (!written.empty()) Fail(ticket, written + " though it failed: " + status.ToString());
  if (aborted) return;  // the journal judges why
  const std::string& name = job_->program.streams[op.stream].name;
  if (status.message().find(name) == std::string::npos)
    Fail(ticket, "its error does not name it: " + status.message());
  if (status.code() == StatusCode::kExhausted && job_->swarm.small_region()) return;
  if (status.code() == StatusCode::kUnsupported && op.AnyJoined() && !CanDoWithJoined(op.spec)) {
    const auto named = [&](int32_t r) {
      return op.Joined(static_cast<size_t>(r)) &&
             status.message().find("rank " + std::to_string(r) + " has joined") !=
                 std::string::npos;
    };
    const std::vector<int32_t>& members = job_->program.MembersOf(ticket.op);
    if (std::none_of(members.begin(), members.end(), named))
      Fail(ticket, "its error names no rank that has joined: " + status.message());
    return;
  }
  if (op.odd < 0 || status.code() != StatusCode::kMismatch)
    return Fail(ticket, "failed: " + status.ToString());
  const std::string odd =
      "rank " + std::to_string(job_->program.MembersOf(ticket.op)[static_cast<size_t>(op.odd)]);
  if (status.message().find("differ: rank") == std::string::npos ||
      status.message().find(odd + " ha") == std::string::npos)
    Fail(ticket, "its error does not name " + odd + ": " + status.message());
}

// As Engine::DriveUntilIdle: says that it sleeps, looks once more, sleeps.
void SimRank::Sleep() {
  const auto bell = [&] { return runtime_->Idle() ? Bell::kMailOnly : Bell::kAll; };
  rung_ = false;
  listens_ = bell();
  bool moved = false;
  until_ = runtime_->RunOnce(&moved);
  listens_ = bell();
  Collect();
  InprocNetwork& network = *job_->network;
  const bool acts = next_action_ < job_->program.actions[static_cast<size_t>(rank_)].size() &&
                    thinks_until_ > network.clock().Now();
  if (acts) until_ = std::min(until_, thinks_until_);
  if (moved || rung_ || transport_->HasMail() || network.HasArrived(Rank{rank_}) || job_->stop) {
    listens_ = Bell::kNone;
    return;
  }
  asleep_ = true;
  Yield();
  asleep_ = false;
  listens_ = Bell::kNone;
  const auto is_rung = [&] { return rung_ || rung_late_ || network.IsBeingRung(Rank{rank_}); };
  rung_late_ = false;
  const bool by_deadline = !is_rung() && !network.HasArrived(Rank{rank_});
  if (!by_deadline || job_->stop || job_->journal->AnyLost()) return;
  if (job_->swarm.device_delay > 0) return;  // devices ring no thread
  // Awake because of the clock alone: all there may be to do is what the clock asks for.
  const uint64_t sent = job_->journal->sent(Rank{rank_});
  const uint64_t accepted = network.accepted(Rank{rank_});
  const uint64_t received = network.received(Rank{rank_});
  moved = Pass();
  if (moved && !is_rung() && !job_->journal->AnyLost() &&
      job_->journal->sent(Rank{rank_}) == sent && network.accepted(Rank{rank_}) == accepted &&
      network.received(Rank{rank_}) == received)
    job_->journal->Fail("rank " + std::to_string(rank_) +
                        " slept until its deadline though there was something to do");
}

// ---- At rest ------------------------------------------------------------------------------------

void SimRank::CheckRest() {
  for (const auto& ticket : tickets_) {
    const std::string written = ticket->payload.CheckPoison();
    if (!written.empty()) Fail(*ticket, written);
    if (ticket->callbacks != 1)
      Fail(*ticket, "its callback ran " + std::to_string(ticket->callbacks) + " times");
  }
  if (mirrored_ != nullptr) return;  // never gives landing blocks back
  // Once a member is lost, a block that was proposed is kept.
  const auto is_proposed = [](const Stream& s) {
    return s.proposed_slot_bytes != 0 && s.proposed_block != Transport::kNoOffset;
  };
  const DeviceTransfers* transfers = runtime_->executor().transfers(DeviceType::kFake);
  size_t channels = transfers->pinned_buffers().arena_slabs();
  if (transfers->ipc_buffers() != nullptr) channels += transfers->ipc_buffers()->slabs();
  for (const auto& stream : runtime_->negotiator().streams().all())
    channels += (stream->channel.Exists() ? 1 : 0) + (is_proposed(*stream) ? 1 : 0);
  runtime_->negotiator().bundles().ForEachCarrier([&](const Stream& carrier) {
    channels += carrier.channel.Exists() || is_proposed(carrier) ? 1 : 0;
  });
  const size_t pieces = job_->network->shared_pieces(Rank{rank_});
  if (pieces != channels)
    job_->journal->Fail("rank " + std::to_string(rank_) + " holds " + std::to_string(pieces) +
                        " landing blocks for " + std::to_string(channels) + " channels");
}

}  // namespace covey
