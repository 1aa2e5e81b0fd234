// The part of a simulated rank that submits.
#include "tests/sim/simulator/rank.h"

#include <algorithm>
#include <set>

namespace covey {

void SimRank::Submit(size_t number) {
  const ProgramOp& op = job_->program.ops[number];
  const std::vector<int32_t>& members = job_->program.MembersOf(number);
  const auto index = std::find(members.begin(), members.end(), rank_) - members.begin();
  // Where memory lies is the operation's: members in the arena must be so together to be `direct`.
  const uint64_t draw = Rng(job_->seed * 1000003 + number).Next();
  // Ranks that share no memory reach no arena of each other's.
  const auto where = job_->swarm.mirrored || draw % 100 < 50 ? Payload::Where::kHeap
                     : draw % 100 < 90                       ? Payload::Where::kArena
                                                             : Payload::Where::kArenaAskew;
  std::set<int32_t> hosts;
  for (const int32_t rank : members)
    hosts.insert(job_->swarm.mirrored ? rank / job_->swarm.per_host : 0);
  const Contributor who{job_->seed, number, static_cast<size_t>(index), members.size(),
                        hosts.size()};
  tickets_.push_back(std::unique_ptr<Ticket>(new Ticket{
      .rank = this,
      .op = number,
      .index = who.index,
      .by_callback =
          !Gathers(op.SpecOf(who.index).kind) && op.spec.kind != Kind::kJoin && draw / 100 % 4 == 0,
      .payload = Payload(who, op, where, job_->rng.Percent(70), transport_)}));
  Ticket* ticket = tickets_.back().get();
  Operation* operation = queue_.New();
  operation->group = GroupOf(members);
  operation->name = job_->program.streams[op.stream].name;
  ticket->payload.FillIn(operation);
  ticket->operation = operation;
  if (job_->swarm.device_delay > 0 && op.spec.codec.empty() && op.odd_spec.codec.empty())
    MakeLate(ticket);
  const bool waits = draw / 1000 % 4 > 0;  // for it at once, as its program says
  if (job_->swarm.repeats && waits && !ticket->by_callback && ticket->event == nullptr)
    ticket->operation = operation = AgainOr(operation);
  operation->callback = OnCallback;
  operation->callback_only = ticket->by_callback;
  operation->context = ticket;
  open_.push_back(ticket);
  job_->journal->OnSubmit(Rank{rank_}, *operation, op.occurrence);
  const Status status = HandIn(operation, &ticket->handle);
  if (!status.ok()) return Fail(*ticket, "refused: " + status.message());
  if (ticket->by_callback) queue_.Release(ticket->handle);
}

// As covey_submit with covey_request.waits: the operation kept under this name, with the memory of
// `fresh`, if its request is equal; else `fresh`.
Operation* SimRank::AgainOr(Operation* fresh) {
  Operation* again = queue_.TakeRepeatable(fresh->group->key, fresh->name);
  if (again == nullptr) return fresh;
  if (!fresh->refusal.ok() || !Matches(*fresh, SignatureOf(*again))) {
    queue_.Discard(again);
    return fresh;
  }
  again->inputs = fresh->inputs;
  again->outputs = fresh->outputs;
  queue_.Discard(fresh);
  return again;
}

// As Engine::SubmitRepeat.
Status SimRank::HandIn(Operation* operation, uint64_t* handle) {
  if (!operation->repeats || queue_.in_flight() > 0 || !runtime_->MayRepeat())
    return queue_.Submit(operation, handle);
  bool is_taken = false;
  const Status status = queue_.SubmitTaken(operation, handle, &is_taken);
  if (is_taken) runtime_->Repeat(operation, 0);
  return status;
}

// A device of this rank makes the inputs, by and by, and wants to be told of the results.
void SimRank::MakeLate(Ticket* ticket) {
  Operation* operation = ticket->operation;
  if (operation->inputs.empty()) return;
  const auto longest = static_cast<uint64_t>(job_->swarm.device_delay);
  const Time at = job_->network->clock().Now() + static_cast<Time>(job_->rng.Below(longest));
  ticket->payload.Hide();
  ticket->event = device_.Compute(at, [this, ticket] {
    if (!ticket->payload.Show()) Fail(*ticket, "an input was written before it was computed");
  });
  for (auto* tensors : {&operation->inputs, &operation->outputs})
    for (Tensor& t : *tensors) {
      ticket->on_device.push_back(t);
      t.device = DeviceType::kFake;
      t.data = LateDevice::OnDevice(t.data);
      t.stream = ticket->event;
    }
  for (Tensor& t : operation->inputs) t.ready_event = ticket->event;
}

}  // namespace covey
