#include "core/run/communicator_path.h"

#include <algorithm>
#include <vector>

#include "core/run/problem.h"

namespace covey {
namespace {

const Schedule& CommunicatorSchedule() {
  static const Schedule schedule = [] {
    Schedule s;
    s.algorithm = "communicator";
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

void CommunicatorPath::SetCommunicators(DeviceType type, Communicators* communicators) {
  communicators_ = communicators;
  communicators_of_ = type;
  registry_.SetCommunicators(communicators);
}

void CommunicatorPath::RequestCommunicator(Exchange* x) {
  const Request& r = *x->request;
  x->communicator_word = 0;
  x->for_communicator = false;
  x->phase = CommunicatorPhase::kProposed;
  x->failed_at = 0;
  if (x->entry == 0 || !IsOfDevice(r) || r.inputs[0].device != communicators_of_) return;
  x->communicator_word = registry_.Word(*r.group, FitsCommunicator(r, options_.least_bytes));
  x->for_communicator = CommunicatorRegistry::ReadinessOf(x->communicator_word) ==
                        CommunicatorRegistry::Readiness::kReady;
}

void CommunicatorPath::Publish(Exchange* x) {
  uint64_t* word = &x->CellOf(x->Me())->communicator[x->Turn()];
  *word = x->communicator_word;
  if (!x->shares_memory && IsOfDevice(*x->request))
    regions_->Push(x->request->group->members, reinterpret_cast<std::byte*>(word), sizeof(*word));
  const CommunicatorId* id = nullptr;
  if (x->Me() == 0 && CommunicatorRegistry::ReadinessOf(x->communicator_word) ==
                          CommunicatorRegistry::Readiness::kWilling)
    id = registry_.OfferedId(*x->request->group);
  if (id == nullptr) return;
  std::byte* buffer = x->blocks[0] + CommunicatorIdOffset(x->size());
  const auto* bytes = reinterpret_cast<const std::byte*>(id->data());
  std::copy(bytes, bytes + id->size(), buffer);
  if (!x->shares_memory) regions_->Push(x->request->group->members, buffer, id->size());
}

CommunicatorVerdict CommunicatorPath::Judge(Exchange* x) {
  const Request& r = *x->request;
  if (!IsOfDevice(r)) return CommunicatorVerdict::kStaged;
  std::vector<uint64_t> words;
  for (size_t j = 0; j < x->size(); ++j) words.push_back(x->CellOf(j)->communicator[x->Turn()]);
  const auto* id = reinterpret_cast<const char*>(x->blocks[0] + CommunicatorIdOffset(x->size()));
  const CommunicatorVerdict verdict =
      registry_.Judge(*r.group, words, id, FitsCommunicator(r, options_.least_bytes));
  if (verdict == CommunicatorVerdict::kAgain)
    x->communicator_word = registry_.Word(*r.group, false);
  return verdict;
}

void CommunicatorPath::Propose(Exchange* x) {
  x->schedule = &CommunicatorSchedule();
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
  x->phase = CommunicatorPhase::kSettled;
}

Communicators::Answer CommunicatorPath::Advance(Exchange* x) {
  Communicator* communicator = registry_.CommunicatorOf(*x->request->group);
  if (x->phase == CommunicatorPhase::kSettled) {
    if (!order_.IsNext(x)) return Communicators::Answer::kNotYet;
    x->phase = CommunicatorPhase::kLaunching;
    if (!Launch(x)) return Communicators::Answer::kFailed;
  }
  if (x->phase == CommunicatorPhase::kLaunching) {
    const Communicators::Answer launched =
        communicators_->IsLaunched(communicator, &x->launch_mark);
    if (launched != Communicators::Answer::kYes) return launched;
    x->phase = CommunicatorPhase::kLaunched;
    order_.Remove(x);
  }
  return communicators_->IsDone(communicator, x->launch_mark);
}

bool CommunicatorPath::Launch(Exchange* x) {
  const Request& r = *x->request;
  Communicator* communicator = registry_.CommunicatorOf(*r.group);
  for (const auto* tensors : {&r.inputs, &r.outputs})
    for (const Tensor& t : *tensors)
      // device-F1: the communicator's work comes after the user's events, or it reads unfinished
      // input.
      if (t.ready_event != nullptr && !communicators_->After(communicator, t.ready_event))
        return false;
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
  return communicators_->Launch(communicator, work);
}

bool CommunicatorPath::IsAborted(const Group& group, PeerLoss* why) const {
  if (!registry_.IsAborted(group)) return false;
  *why = {registry_.AbortedBy(group), registry_.AbortedHow(group)};
  return true;
}

bool CommunicatorPath::Abort(Exchange* x, const PeerLoss& why, Time now) {
  order_.Remove(x);
  // device-C3: members launch the same work in order; after a gap the communicator cannot go on.
  registry_.Abort(*x->request->group, why.rank, why.how, now);
  return x->phase >= CommunicatorPhase::kLaunching;
}

}  // namespace covey
