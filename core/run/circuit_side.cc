// The executor's part that deals with circuits: what of core/device/switchboard.h and
// core/device/launch_order.h an exchange goes through.
//
// Ticks of an exchange over a circuit: 1 begun, 2 its turn is proposed, 3 the device has done it
// here. A member that is lost before its tick 3 ends the exchange, and the circuit with it.
#include <algorithm>

#include "core/run/executor.h"
#include "core/run/problem.h"

namespace covey {
namespace {

// A device notices the end of a peer before this rank hears of it from the transport: so long the
// news is waited for, so that whoever has gone is named.
constexpr Time kNews = kSecond;

constexpr uint32_t kTurnTick = 2;
constexpr uint32_t kDoneTick = 3;

const Schedule& CircuitSchedule() {
  static const Schedule schedule = [] {
    Schedule s;
    s.algorithm = "circuit";
    s.ticks = kDoneTick;
    s.slots = 1;
    return s;
  }();
  return schedule;
}

int32_t WorkType(DType dtype) {
  return static_cast<int32_t>(dtype == DType::kBool ? DType::kU8 : dtype);
}

}  // namespace

// Whether the exchange begins for a circuit: what its header will say.
void Executor::Dial(Exchange* x) {
  const Request& r = *x->request;
  x->circuit_word = 0;
  x->for_circuit = false;
  x->leg = CircuitLeg::kProposed;
  x->failed_at = 0;
  if (x->entry == 0 || r.inputs.empty() || r.inputs[0].device == DeviceType::kCpu) return;
  if (r.inputs[0].device != circuits_of_) return;
  x->circuit_word = board_.Word(*r.group, FitsCircuit(r, options_.circuit_bytes));
  x->for_circuit = Switchboard::StandOf(x->circuit_word) == Switchboard::Stand::kReady;
}

// The header's part, before tick 1.
void Executor::OfferCircuit(Exchange* x) {
  x->CellOf(x->Me())->circuit[x->Turn()] = x->circuit_word;
  const CircuitId* id = nullptr;
  if (x->Me() == 0 && Switchboard::StandOf(x->circuit_word) == Switchboard::Stand::kWilling)
    id = board_.Offer(*x->request->group);
  if (id == nullptr) return;
  std::byte* room = x->blocks[0] + CircuitIdOffset(x->size());
  const auto* bytes = reinterpret_cast<const std::byte*>(id->data());
  std::copy(bytes, bytes + id->size(), room);
  if (!x->shares_memory) transport_->Push(x->request->group->members, room, id->size());
}

// All have begun alike. False: the exchange goes over the circuit, begins once more, or has ended.
bool Executor::JudgeCircuit(Exchange* x, Time now) {
  const Request& r = *x->request;
  if (r.inputs.empty() || r.inputs[0].device == DeviceType::kCpu) return true;
  std::vector<uint64_t> words;
  for (size_t j = 0; j < x->size(); ++j) words.push_back(x->CellOf(j)->circuit[x->Turn()]);
  const auto* id = reinterpret_cast<const char*>(x->blocks[0] + CircuitIdOffset(x->size()));
  switch (board_.Judge(*r.group, words, id, FitsCircuit(r, options_.circuit_bytes))) {
    case CircuitVerdict::kStaged:
      return true;
    case CircuitVerdict::kRefused:
      x->for_circuit = false;
      End(x, Outcome::kAborted, Status::Unsupported(board_.Refusal(*r.group)), now);
      return false;
    case CircuitVerdict::kAgain:
      x->channel->ticks += 1;
      x->channel->slots += 1;
      x->channel->exchanges += 1;
      x->circuit_word = board_.Word(*r.group, false);
      if (x->for_circuit) {
        x->for_circuit = false;
        Board(x);
      }
      x->state = ExchangeState::kAwaitReady;
      ++counters_.again;
      return false;
    case CircuitVerdict::kCircuit:
      break;
  }
  x->schedule = &CircuitSchedule();
  x->state = ExchangeState::kCircuit;
  Cell* cell = x->CellOf(x->Me());
  uint64_t* turn = &cell->turn[x->Turn()];
  *turn = order_.Propose(x);
  if (!x->shares_memory)
    transport_->Push(r.group->members, reinterpret_cast<std::byte*>(turn), sizeof(*turn));
  Signal(*x, kTurnTick);
  return false;
}

void Executor::Settle(Exchange* x) {
  uint64_t turn = 0;
  for (size_t j = 0; j < x->size(); ++j) turn = std::max(turn, x->CellOf(j)->turn[x->Turn()]);
  order_.Settle(x, turn);
  x->leg = CircuitLeg::kSettled;
}

bool Executor::RunCircuit(Exchange* x, Time now) {
  const Group& group = *x->request->group;
  const CircuitLeg before = x->leg;
  if (board_.IsDropped(group)) {
    Abort(x, board_.DroppedBy(group), board_.DroppedHow(group));
    return true;
  }
  if (x->leg == CircuitLeg::kProposed) {
    if (!Await(x, kTurnTick, kEveryRank)) return x->state != ExchangeState::kCircuit;
    Settle(x);
  }
  if (LooksForLost(x)) return true;
  if (x->failed_at != 0 || !AdvanceLaunch(x, now)) FailCircuit(x, now);
  if (x->state != ExchangeState::kCircuit) return true;
  awaits_device_ = true;
  return x->leg != before;
}

// Whether a member that has not done it never will: the exchange has been aborted. Whoever gave up
// because of another, and may have gone since, is not to blame.
bool Executor::LooksForLost(Exchange* x) {
  const uint64_t done = x->channel->ticks + kDoneTick;
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
    AbortIfInVain(x, done, j);
    if (x->state != ExchangeState::kCircuit) return true;
  }
  return false;
}

// False: the circuit has failed.
bool Executor::AdvanceLaunch(Exchange* x, Time now) {
  Circuit* circuit = board_.CircuitOf(*x->request->group);
  if (x->leg == CircuitLeg::kSettled) {
    if (!order_.IsNext(x)) return true;
    x->leg = CircuitLeg::kLaunching;
    if (!Launch(x)) return false;
  }
  if (x->leg == CircuitLeg::kLaunching) {
    const Circuits::Answer launched = circuits_->IsLaunched(circuit, &x->launch_mark);
    if (launched != Circuits::Answer::kYes) return launched != Circuits::Answer::kFailed;
    x->leg = CircuitLeg::kLaunched;
    order_.Remove(x);
  }
  const Circuits::Answer is_done = circuits_->IsDone(circuit, x->launch_mark);
  if (is_done != Circuits::Answer::kYes) return is_done != Circuits::Answer::kFailed;
  Signal(*x, kDoneTick);
  ++counters_.by_circuit;
  End(x, Outcome::kDone, {}, now);
  return true;
}

bool Executor::Launch(Exchange* x) {
  const Request& r = *x->request;
  Circuit* circuit = board_.CircuitOf(*r.group);
  for (const auto* tensors : {&r.inputs, &r.outputs})
    for (const Tensor& t : *tensors)
      if (t.ready_event != nullptr && !circuits_->After(circuit, t.ready_event)) return false;
  std::vector<covey_circuit_part> parts;
  for (size_t i = 0; i < r.inputs.size(); ++i) {
    const auto count = static_cast<size_t>(r.outputs[i].shape.Elems());
    if (count > 0) parts.push_back({r.inputs[i].data, r.outputs[i].data, count});
  }
  const auto root = std::lower_bound(r.group->members.begin(), r.group->members.end(), r.root);
  const covey_circuit_work work = {
      .kind = static_cast<int32_t>(r.kind),
      .dtype = WorkType(r.inputs[0].dtype),
      .op = static_cast<int32_t>(r.average ? Op::kAverage : r.op),
      .root = HasRoot(r.kind) ? static_cast<int32_t>(root - r.group->members.begin()) : 0,
      .parts = parts.data(),
      .num_parts = parts.size()};
  return circuits_->Launch(circuit, work);
}

// RunCircuit has looked for members that are lost.
void Executor::FailCircuit(Exchange* x, Time now) {
  if (x->failed_at == 0) x->failed_at = now;
  if (now - x->failed_at < kNews) return;
  Abort(x, transport_->rank(),
        "could not go on: " + circuits_->Failure(board_.CircuitOf(*x->request->group)));
}

// What is launched on some member will never be on this one: the circuit is over. True: the device
// may still write the memory of this exchange.
bool Executor::LeaveCircuit(Exchange* x, Rank lost, const std::string& how) {
  if (x->state != ExchangeState::kCircuit) return false;
  order_.Remove(x);
  board_.Drop(*x->request->group, lost, how, options_.clock->Now());
  return x->leg >= CircuitLeg::kLaunching;
}

}  // namespace covey
