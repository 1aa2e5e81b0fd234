// device-F1 to device-F3 (core/device/device_transfers.h).
#include <algorithm>

#include "core/run/device_staging.h"

namespace covey {
namespace {

// Where not all of the input is needed at the begin it comes in parts of so many landing slots: a
// copy of less costs more than it moves.
constexpr size_t kSlotsOfChunk = 4;

// How far into the own input a step reads.
size_t InputEnd(const Step& step) {
  switch (step.kind) {
    case StepKind::kCopy:
    case StepKind::kPush:
      return step.src.place == Place::kInput ? step.src.offset + step.length_bytes : 0;
    case StepKind::kReduce:
      return (step.src.place == Place::kInput ? step.src.offset : step.input_offset) +
             step.length_bytes;
    case StepKind::kReduceFetched:
      return step.dst.offset + step.length_bytes;
    case StepKind::kBeginSum:
    case StepKind::kAddToSum:
    case StepKind::kSumHost:
    case StepKind::kEncode:
    case StepKind::kMix:
    case StepKind::kMixCoded:
      return step.input_offset + step.length_bytes;
    default:
      return 0;
  }
}

}  // namespace

// The user's events have completed, and the begin's part is in the buffer.
DataPath::Answer HostStagingPath::Stage(Exchange* x) {
  const size_t length = x->transfer->from.length_bytes();
  // device-F2: peers that share memory read the whole buffer from the begin on: all of it has come.
  const bool shown = Reduces(x->request->kind) && x->shares_memory;
  const size_t needed = shown ? length : std::min<size_t>(length, x->channel->slot_bytes);
  if (x->transfer->fetched) return HasCome(x, needed);
  size_t event = 0;
  for (const auto* tensors : {&x->request->inputs, &x->request->outputs}) {
    for (const Tensor& t : *tensors) {
      if (event++ < x->transfer->events_complete) continue;
      const Answer ready =
          t.ready_event == nullptr ? Answer::kYes : x->transfers->IsReady(t.ready_event);
      if (ready == Answer::kFailed) return Lost(*x);
      // device-F1: memory is touched only after the ready events of all tensors of the request.
      if (ready != Answer::kYes) return ready;
      ++x->transfer->events_complete;
    }
  }
  if (x->transfers->Fetch(x->transfer, shown ? 0 : x->channel->slot_bytes * kSlotsOfChunk))
    return HasCome(x, needed);
  return Lost(*x);
}

DataPath::Answer HostStagingPath::HasCome(Exchange* x, size_t end) {
  const Answer come = x->transfers->HasCome(x->transfer, end);
  return come == Answer::kFailed ? Lost(*x) : come;
}

DataPath::Answer HostStagingPath::MayRun(Exchange* x, const Step& step) {
  // device-F2: a step runs only once the input it reads lies in the buffer.
  return HasCome(x, InputEnd(step));
}

// Where members write each other's outputs nothing is whole before the end.
DataPath::Answer HostStagingPath::DidRun(Exchange* x, const Step& step) {
  if (step.dst.place != Place::kOutput || x->schedule->touches_peers) return Answer::kYes;
  const bool wrote = x->transfers->Wrote(x->transfer, step.dst.offset, step.length_bytes);
  return wrote ? Answer::kYes : Lost(*x);
}

bool HostStagingPath::Finish(Exchange* x, bool done) {
  const bool whole = done && x->schedule->touches_peers;
  const bool wrote = !whole || x->transfers->Wrote(x->transfer, 0, x->transfer->to.length_bytes());
  const bool left = x->transfers->Unmap(x->transfer, *x->request, done && wrote);
  if (wrote && left) return true;
  Lost(*x);
  return false;
}

DataPath::Answer HostStagingPath::Lost(const Exchange& x) {
  failure_ = {self_, "has lost its device: " + x.transfers->Failure()};
  return Answer::kFailed;
}

}  // namespace covey
