// By IPC: each device copies its input to a buffer that the others reach, reduces its piece of all
// inputs and writes it to all, as `direct` does in the arena. No device waits for a peer: ticks
// tell the finished work, as everywhere, so one that dies can hang no card.
//
// `buffer` of a begin's placement: 0 = nothing by IPC; kNoBuffer = there was no memory
// for one; else the word of a buffer (core/device/ipc_buffers.h), before kYes of one to try, with
// bit 0 when this rank has opened all that it has tried.
#include "core/run/device_staging.h"

#include <algorithm>

#include "core/device/communicator_registry.h"

namespace covey {
namespace {

constexpr uint64_t kNoBuffer = 2;
constexpr uint64_t kOpenedAll = 1;

bool CanGoByIpc(const Exchange& x) {
  const Request& r = *x.request;
  return Reduces(r.kind) && x.codec == nullptr && x.size() > 1 &&
         x.size() <= IpcMemory::kMaxMembers && IsReducedByDevices(x.reduction.dtype) &&
         x.input.length_bytes() > 0;
}

}  // namespace

void DeviceStaging::AddDevice(DeviceType type, Device* device) {
  transfers_[static_cast<size_t>(type)] =
      std::make_unique<DeviceTransfers>(device, regions_, options_.arena_bytes);
}

void DeviceStaging::Forget(Rank lost) {
  for (const auto& transfers : transfers_)
    if (transfers != nullptr && transfers->ipc_buffers() != nullptr)
      transfers->ipc_buffers()->Forget(lost);
}

// An exchange that begins void, or goes over a communicator, needs no buffer.
void DeviceStaging::Map(Exchange* x) {
  const bool has_tensors = !x->request->inputs.empty();
  const auto type = has_tensors ? x->request->inputs[0].device : DeviceType::kCpu;
  const bool none = x->entry == 0 || x->for_communicator;
  x->transfers = none ? nullptr : transfers_[static_cast<size_t>(type)].get();
  x->transfer = nullptr;
  MapByIpc(x);
  x->path = nullptr;
  if (x->transfers == nullptr) return;
  x->path = x->by_ipc ? static_cast<DataPath*>(&ipc_) : &host_;
  if (!x->by_ipc) x->transfer = x->transfers->Map(*x->request, &x->input, &x->output);
}

IpcBuffers* DeviceStaging::IpcOf(const Exchange& x) const {
  const bool may = x.transfers != nullptr && CanGoByIpc(x) &&
                   x.input.length_bytes() >= options_.ipc_bytes;  // equal on all ranks
  return may ? x.transfers->ipc_buffers() : nullptr;
}

// Of a begin on a channel that has agreed.
void DeviceStaging::MapByIpc(Exchange* x) {
  x->by_ipc = x->channel->by_ipc == IpcState::kYes && IpcOf(*x) != nullptr;
  x->reduced_mark = 0;
  if (!x->by_ipc) return;
  x->transfer = x->transfers->MapByIpc(*x->request, &x->input, &x->output);
  if (x->transfer != nullptr) return;
  x->entry = 0;
  x->transfers = nullptr;
}

uint64_t DeviceStaging::BufferWord(const Exchange& x) const {
  if (x.by_ipc)
    return x.transfer == nullptr ? kNoBuffer
                                 : x.transfers->ipc_buffers()->WordOf(x.transfer->buffer);
  IpcBuffers* ipc = IpcOf(x);
  if (ipc == nullptr || x.channel->by_ipc >= IpcState::kYes) return 0;
  const uint64_t word = ipc->Probe();
  return word == 0 ? 0 : word | (x.channel->opened_all ? kOpenedAll : 0);
}

bool DeviceStaging::JudgeBuffers(Exchange* x) {
  const bool has_none = x->CellOf(x->Me())->placement[x->Turn()].buffer == 0;
  // A begin without a buffer decides nothing. Each word of another rank is a cache miss.
  if (has_none && x->channel->by_ipc != IpcState::kYes) return true;
  for (size_t j = 0; j < x->size(); ++j)
    if (CommunicatorRegistry::ReadinessOf(x->CellOf(j)->communicator[x->Turn()]) ==
        CommunicatorRegistry::Readiness::kReady)
      // device-O4: a begin for a communicator says nothing of buffers: nothing is decided by it.
      return true;
  IpcState& state = x->channel->by_ipc;
  bool all = true, opened = true, any = false;
  for (size_t j = 0; j < x->size(); ++j) {
    const uint64_t word = x->CellOf(j)->placement[x->Turn()].buffer;
    all &= word > kNoBuffer;
    any |= word != 0;
    opened &= (word & kOpenedAll) != 0;
  }
  // device-O4: if a member has no buffer, all members send this message through the host.
  if (state == IpcState::kYes && any && !all) {
    state = IpcState::kNo;
    return false;
  }
  if (!all || state >= IpcState::kYes) return true;
  if (state == IpcState::kTried) {
    state = opened ? IpcState::kYes : IpcState::kNo;
  } else {
    state = IpcState::kTried;
    x->channel->opened_all = ipc_.FindBuffers(*x);
  }
  return true;
}

bool IpcStagingPath::FindBuffers(const Exchange& x) {
  buffers_.clear();
  for (size_t j = 0; j < x.size(); ++j) {
    const uint64_t word = x.CellOf(j)->placement[x.Turn()].buffer & ~kOpenedAll;
    buffers_.push_back(x.transfers->ipc_buffers()->Find(x.request->group->members[j], word));
  }
  return std::find(buffers_.begin(), buffers_.end(), nullptr) == buffers_.end();
}

DataPath::Answer IpcStagingPath::MayRun(Exchange* x, const Step& step) {
  x->transfer->is_open = true;
  if (step.kind != StepKind::kSignal || x->reduced_mark == 0) return Answer::kYes;
  const Answer reached = x->transfers->device()->IsReached(Device::Queue::kToHost, x->reduced_mark);
  // device-O2: peers are told only once the device has reached the mark behind its work.
  return reached == Answer::kFailed ? Lost(*x) : reached;
}

DataPath::Answer IpcStagingPath::Reduce(Exchange* x) {
  const std::vector<Step>& steps = x->schedule->steps;
  const Step& first = steps[x->cursor];
  size_t length = first.length_bytes;
  for (; steps[x->cursor + 1].kind == StepKind::kReduce; ++x->cursor)
    length += steps[x->cursor + 1].length_bytes;
  if (!FindBuffers(*x)) {
    const auto lost = std::find(buffers_.begin(), buffers_.end(), nullptr) - buffers_.begin();
    failure_ = {x->request->group->members[static_cast<size_t>(lost)],
                "has memory on its device that cannot be opened from here"};
    return Answer::kFailed;
  }
  const bool to_all = first.dst.index == kEveryRank;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  for (std::byte* buffer : buffers_) {
    inputs.push_back(buffer + first.src.offset);
    if (to_all) outputs.push_back(buffer + first.dst.offset);
  }
  if (!to_all) outputs.push_back(x->transfer->output + first.dst.offset);
  const auto queue = Device::Queue::kToHost;
  const bool ok = x->transfers->ipc_buffers()->ipc_memory()->Reduce(
      queue, x->reduction, inputs, outputs, length / SizeOf(x->reduction.dtype));
  x->reduced_mark = ok ? x->transfers->device()->Mark(queue) : 0;
  return x->reduced_mark != 0 ? Answer::kYes : Lost(*x);
}

}  // namespace covey
