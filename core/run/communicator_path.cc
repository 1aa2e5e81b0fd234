#include "core/run/communicator_path.h"

#include <algorithm>
#include <vector>

#include "core/run/problem.h"

namespace covey {
namespace {

const Schedule& CircuitSchedule() {
  static const Schedule schedule = [] {
    Schedule s;
    s.algorithm = "circuit";
    s.ticks = CommunicatorPath::kDoneTick;
    s.slots = 1;
    return s;
  }();
  return schedule;
}

int32_t WorkType(DType dtype) {
  return static_cast<int32_t>(dtype == DType::kBool ? DType::kU8 : dtype);
}

bool IsOfDevice(const Request& r) {
  return !r.inputs.empty() && r.inputs[0].device != DeviceType::kCpu;
}

}  // namespace

void CommunicatorPath::SetCircuits(DeviceType type, Circuits* circuits) {
  circuits_ = circuits;
  circuits_of_ = type;
  board_.SetCircuits(circuits);
}

void CommunicatorPath::Dial(Exchange* x) {
  const Request& r = *x->request;
  x->circuit_word = 0;
  x->for_circuit = false;
  x->leg = CircuitLeg::kProposed;
  x->failed_at = 0;
  if (x->entry == 0 || !IsOfDevice(r) || r.inputs[0].device != circuits_of_) return;
  x->circuit_word = board_.Word(*r.group, FitsCircuit(r, options_.least_bytes));
  x->for_circuit = Switchboard::StandOf(x->circuit_word) == Switchboard::Stand::kReady;
}

void CommunicatorPath::Offer(Exchange* x) {
  x->CellOf(x->Me())->circuit[x->Turn()] = x->circuit_word;
  const CircuitId* id = nullptr;
  if (x->Me() == 0 && Switchboard::StandOf(x->circuit_word) == Switchboard::Stand::kWilling)
    id = board_.Offer(*x->request->group);
  if (id == nullptr) return;
  std::byte* room = x->blocks[0] + CircuitIdOffset(x->size());
  const auto* bytes = reinterpret_cast<const std::byte*>(id->data());
  std::copy(bytes, bytes + id->size(), room);
  if (!x->shares_memory) regions_->Push(x->request->group->members, room, id->size());
}

CircuitVerdict CommunicatorPath::Judge(Exchange* x) {
  const Request& r = *x->request;
  if (!IsOfDevice(r)) return CircuitVerdict::kStaged;
  std::vector<uint64_t> words;
  for (size_t j = 0; j < x->size(); ++j) words.push_back(x->CellOf(j)->circuit[x->Turn()]);
  const auto* id = reinterpret_cast<const char*>(x->blocks[0] + CircuitIdOffset(x->size()));
  const CircuitVerdict verdict =
      board_.Judge(*r.group, words, id, FitsCircuit(r, options_.least_bytes));
  if (verdict == CircuitVerdict::kAgain) x->circuit_word = board_.Word(*r.group, false);
  return verdict;
}

void CommunicatorPath::Propose(Exchange* x) {
  x->schedule = &CircuitSchedule();
  uint64_t* turn = &x->CellOf(x->Me())->turn[x->Turn()];
  // agree-N12: members that share no memory learn the proposal only by a push.
  *turn = order_.Propose(x);
  if (!x->shares_memory)
    regions_->Push(x->request->group->members, reinterpret_cast<std::byte*>(turn), sizeof(*turn));
}

void CommunicatorPath::Settle(Exchange* x) {
  uint64_t turn = 0;
  // agree-N12: the turn is the largest proposal, which is the same on all members.
  for (size_t j = 0; j < x->size(); ++j) turn = std::max(turn, x->CellOf(j)->turn[x->Turn()]);
  order_.Settle(x, turn);
  x->leg = CircuitLeg::kSettled;
}

Circuits::Answer CommunicatorPath::Advance(Exchange* x) {
  Circuit* circuit = board_.CircuitOf(*x->request->group);
  if (x->leg == CircuitLeg::kSettled) {
    if (!order_.IsNext(x)) return Circuits::Answer::kNotYet;
    x->leg = CircuitLeg::kLaunching;
    if (!Launch(x)) return Circuits::Answer::kFailed;
  }
  if (x->leg == CircuitLeg::kLaunching) {
    const Circuits::Answer launched = circuits_->IsLaunched(circuit, &x->launch_mark);
    if (launched != Circuits::Answer::kYes) return launched;
    x->leg = CircuitLeg::kLaunched;
    order_.Remove(x);
  }
  return circuits_->IsDone(circuit, x->launch_mark);
}

bool CommunicatorPath::Launch(Exchange* x) {
  const Request& r = *x->request;
  Circuit* circuit = board_.CircuitOf(*r.group);
  for (const auto* tensors : {&r.inputs, &r.outputs})
    for (const Tensor& t : *tensors)
      // device-F1: the circuit's work comes after the user's events, or it reads unfinished input.
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

bool CommunicatorPath::IsDropped(const Group& group, PeerLoss* why) const {
  if (!board_.IsDropped(group)) return false;
  *why = {board_.DroppedBy(group), board_.DroppedHow(group)};
  return true;
}

bool CommunicatorPath::Leave(Exchange* x, const PeerLoss& why, Time now) {
  order_.Remove(x);
  // device-C3: members launch the same work in order; after a gap the circuit cannot go on.
  board_.Drop(*x->request->group, why.rank, why.how, now);
  return x->leg >= CircuitLeg::kLaunching;
}

}  // namespace covey
