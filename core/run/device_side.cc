// The executor's part that deals with tensors of devices: rules F1-F3 of core/device/ferry.h.
#include <algorithm>

#include "core/run/executor.h"

namespace covey {
namespace {

// Where not all of the input is needed at the begin it comes in parts of so many landing slots: a
// copy of less costs more than it moves.
constexpr size_t kSlotsOfLeg = 4;

// How far into the own input a step reads.
size_t InputEnd(const Step& step) {
  switch (step.kind) {
    case StepKind::kCopy:
      return step.src.place == Place::kInput ? step.src.offset + step.length_bytes : 0;
    case StepKind::kReduce:
      return (step.src.place == Place::kInput ? step.src.offset : step.input_offset) +
             step.length_bytes;
    case StepKind::kReduceFetched:
      return step.dst.offset + step.length_bytes;
    case StepKind::kBeginSum:
    case StepKind::kAddToSum:
    case StepKind::kEncode:
    case StepKind::kMix:
    case StepKind::kMixCoded:
      return step.input_offset + step.length_bytes;
    default:
      return 0;
  }
}

bool WritesOutput(const Step& step) {
  switch (step.kind) {
    case StepKind::kCopy:
    case StepKind::kFetch:
      return step.dst.place == Place::kOutput;
    case StepKind::kReduce:
    case StepKind::kReduceFetched:
    case StepKind::kReduceCoded:
    case StepKind::kFinishSum:
    case StepKind::kMix:
    case StepKind::kMixCoded:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Executor::AddDevice(DeviceType type, Device* device) {
  ferries_[static_cast<size_t>(type)] =
      std::make_unique<Ferry>(device, transport_, options_.device_arena_bytes);
  if (device->circuits() == nullptr) return;
  circuits_ = device->circuits();
  circuits_of_ = type;
  board_.SetCircuits(circuits_);
}

// What begins void, or goes over a circuit, needs no room.
void Executor::Board(Exchange* x) {
  const bool has_tensors = !x->request->inputs.empty();
  const auto type = has_tensors ? x->request->inputs[0].device : DeviceType::kCpu;
  const bool none = x->entry == 0 || x->for_circuit;
  x->ferry = none ? nullptr : ferries_[static_cast<size_t>(type)].get();
  x->passage = nullptr;
  BoardInCommon(x);
  if (x->ferry != nullptr && !x->in_common)
    x->passage = x->ferry->Board(*x->request, &x->input, &x->output);
}

// Whether the exchange may begin: the user's events have completed, and what goes with the begin is
// in the room. Peers that share memory reach into the rest from then on where inputs are reduced.
bool Executor::HasInput(Exchange* x) {
  const size_t length = x->passage->from.length_bytes();
  const bool shown = Reduces(x->request->kind) && x->shares_memory;
  const size_t needed = shown ? length : std::min<size_t>(length, x->channel->slot_bytes);
  if (x->passage->fetched) return IsHere(x, needed);
  size_t event = 0;
  for (const auto* tensors : {&x->request->inputs, &x->request->outputs}) {
    for (const Tensor& t : *tensors) {
      if (event++ < x->passage->events_complete) continue;
      const Device::Answer ready =
          t.ready_event == nullptr ? Device::Answer::kYes : x->ferry->IsReady(t.ready_event);
      if (ready == Device::Answer::kFailed) LoseDevice(x);
      if (ready != Device::Answer::kYes) return false;
      ++x->passage->events_complete;
    }
  }
  if (x->ferry->Fetch(x->passage, shown ? 0 : x->channel->slot_bytes * kSlotsOfLeg))
    return IsHere(x, needed);
  LoseDevice(x);
  return false;
}

// False: wait for the device, or the exchange has been aborted.
bool Executor::IsHere(Exchange* x, size_t end) {
  const Device::Answer come = x->ferry->HasCome(x->passage, end);
  if (come == Device::Answer::kFailed) LoseDevice(x);
  awaits_device_ |= come == Device::Answer::kNotYet;
  return come == Device::Answer::kYes;
}

bool Executor::MayRun(Exchange* x, const Step& step) {
  if (x->in_common) {
    x->passage->is_open = true;
    return step.kind != StepKind::kSignal || HasReduced(x);
  }
  return IsHere(x, InputEnd(step));
}

// Where members write each other's outputs nothing is whole before the end.
bool Executor::DidRun(Exchange* x, const Step& step) {
  if (!WritesOutput(step) || x->schedule->shares_memory) return true;
  if (x->ferry->Wrote(x->passage, step.dst.offset, step.length_bytes)) return true;
  LoseDevice(x);
  return false;
}

// The end of the exchange. False: the device has failed.
bool Executor::Land(Exchange* x, bool done) {
  const bool whole = done && x->schedule->shares_memory;
  const bool wrote = !whole || x->ferry->Wrote(x->passage, 0, x->passage->to.length_bytes());
  const bool left = x->ferry->Leave(x->passage, *x->request, done && wrote);
  return wrote && left;
}

void Executor::LoseDevice(Exchange* x) {
  Abort(x, transport_->rank(), "has lost its device: " + x->ferry->Failure());
}

Status Executor::DeviceLoss(const Exchange& x) const {
  const Rank self = transport_->rank();
  return Status::Aborted(
      "rank " + std::to_string(ToInt(self)) + " has lost its device: " + x.ferry->Failure(), self);
}

}  // namespace covey
