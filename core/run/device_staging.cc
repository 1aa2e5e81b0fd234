// The rooms in common: each device copies its input to a room that the others reach, reduces its
// piece of everybody's and writes it to all, as `direct` does in the arena. No device waits for a
// peer: ticks say what is done, as everywhere, so one that dies can hang no card.
//
// What a begin's placement says as `room`: 0 = nothing in common; kNoRoom = there was no memory for
// one; else the word of a room (core/device/common_rooms.h), before kYes of one to try, with bit 0
// when this rank has opened all that it has tried.
#include "core/run/device_staging.h"

#include <algorithm>

#include "core/device/switchboard.h"

namespace covey {
namespace {

constexpr uint64_t kNoRoom = 2;
constexpr uint64_t kOpenedAll = 1;

bool CanBeInCommon(const Exchange& x) {
  const Request& r = *x.request;
  return Reduces(r.kind) && x.codec == nullptr && x.size() > 1 &&
         x.size() <= Commons::kMaxMembers && IsReducedByDevices(x.reduction.dtype) &&
         x.input.length_bytes() > 0;
}

}  // namespace

void DeviceStaging::AddDevice(DeviceType type, Device* device) {
  ferries_[static_cast<size_t>(type)] =
      std::make_unique<Ferry>(device, regions_, options_.arena_bytes);
}

void DeviceStaging::Forget(Rank lost) {
  for (const auto& ferry : ferries_)
    if (ferry != nullptr && ferry->common() != nullptr) ferry->common()->Forget(lost);
}

// What begins void, or goes over a communicator, needs no room.
void DeviceStaging::Board(Exchange* x) {
  const bool has_tensors = !x->request->inputs.empty();
  const auto type = has_tensors ? x->request->inputs[0].device : DeviceType::kCpu;
  const bool none = x->entry == 0 || x->for_circuit;
  x->ferry = none ? nullptr : ferries_[static_cast<size_t>(type)].get();
  x->passage = nullptr;
  BoardInCommon(x);
  x->path = nullptr;
  if (x->ferry == nullptr) return;
  x->path = x->in_common ? static_cast<DataPath*>(&common_) : &host_;
  if (!x->in_common) x->passage = x->ferry->Board(*x->request, &x->input, &x->output);
}

CommonRooms* DeviceStaging::CommonOf(const Exchange& x) const {
  const bool may = options_.commons && x.ferry != nullptr && CanBeInCommon(x);
  return may ? x.ferry->common() : nullptr;
}

// Of a begin on a channel that has agreed.
void DeviceStaging::BoardInCommon(Exchange* x) {
  x->in_common = x->channel->in_common == InCommon::kYes && CommonOf(*x) != nullptr;
  x->reduced_mark = 0;
  if (!x->in_common) return;
  x->passage = x->ferry->BoardInCommon(*x->request, &x->input, &x->output);
  if (x->passage != nullptr) return;
  x->entry = 0;
  x->ferry = nullptr;
}

uint64_t DeviceStaging::RoomWord(const Exchange& x) const {
  if (x.in_common)
    return x.passage == nullptr ? kNoRoom : x.ferry->common()->WordOf(x.passage->room);
  CommonRooms* common = CommonOf(x);
  if (common == nullptr || x.channel->in_common >= InCommon::kYes) return 0;
  const uint64_t word = common->Probe();
  return word == 0 ? 0 : word | (x.channel->opened_all ? kOpenedAll : 0);
}

bool DeviceStaging::JudgeRooms(Exchange* x) {
  for (size_t j = 0; j < x->size(); ++j)
    if (Switchboard::StandOf(x->CellOf(j)->circuit[x->Turn()]) == Switchboard::Stand::kReady)
      // device-O4: a begin for a circuit says nothing of rooms: nothing is decided by it.
      return true;
  InCommon& state = x->channel->in_common;
  bool all = true, opened = true, any = false;
  for (size_t j = 0; j < x->size(); ++j) {
    const uint64_t word = x->CellOf(j)->placement[x->Turn()].room;
    all &= word > kNoRoom;
    any |= word != 0;
    opened &= (word & kOpenedAll) != 0;
  }
  // device-O4: if a member has no room, all members send this message through the host.
  if (state == InCommon::kYes && any && !all) {
    state = InCommon::kNo;
    return false;
  }
  if (!all || state >= InCommon::kYes) return true;
  if (state == InCommon::kTried) {
    state = opened ? InCommon::kYes : InCommon::kNo;
  } else {
    state = InCommon::kTried;
    x->channel->opened_all = common_.FindRooms(*x);
  }
  return true;
}

bool CommonRoomPath::FindRooms(const Exchange& x) {
  rooms_.clear();
  for (size_t j = 0; j < x.size(); ++j) {
    const uint64_t word = x.CellOf(j)->placement[x.Turn()].room & ~kOpenedAll;
    rooms_.push_back(x.ferry->common()->Find(x.request->group->members[j], word));
  }
  return std::find(rooms_.begin(), rooms_.end(), nullptr) == rooms_.end();
}

DataPath::Answer CommonRoomPath::MayRun(Exchange* x, const Step& step) {
  x->passage->is_open = true;
  if (step.kind != StepKind::kSignal || x->reduced_mark == 0) return Answer::kYes;
  const Answer reached = x->ferry->device()->IsReached(Device::Queue::kToHost, x->reduced_mark);
  // device-O2: peers are told only once the device has reached the mark behind its work.
  return reached == Answer::kFailed ? Lost(*x) : reached;
}

DataPath::Answer CommonRoomPath::Reduce(Exchange* x) {
  const std::vector<Step>& steps = x->schedule->steps;
  const Step& first = steps[x->cursor];
  size_t length = first.length_bytes;
  for (; steps[x->cursor + 1].kind == StepKind::kReduce; ++x->cursor)
    length += steps[x->cursor + 1].length_bytes;
  if (!FindRooms(*x)) {
    const auto lost = std::find(rooms_.begin(), rooms_.end(), nullptr) - rooms_.begin();
    failure_ = {x->request->group->members[static_cast<size_t>(lost)],
                "has memory on its device that cannot be opened from here"};
    return Answer::kFailed;
  }
  const bool to_all = first.dst.index == kEveryRank;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  for (std::byte* room : rooms_) {
    inputs.push_back(room + first.src.offset);
    if (to_all) outputs.push_back(room + first.dst.offset);
  }
  if (!to_all) outputs.push_back(x->passage->output + first.dst.offset);
  const auto queue = Device::Queue::kToHost;
  const bool ok = x->ferry->common()->commons()->Reduce(queue, x->reduction, inputs, outputs,
                                                        length / SizeOf(x->reduction.dtype));
  x->reduced_mark = ok ? x->ferry->device()->Mark(queue) : 0;
  return x->reduced_mark != 0 ? Answer::kYes : Lost(*x);
}

}  // namespace covey
