// The executor's part for device tensors that the devices of a host reduce among themselves: each
// copies its input to a room that the others reach, reduces its piece of everybody's and writes it
// to all, as `direct` does in the arena. No device waits for a peer: ticks say what is done, as
// everywhere, so one that dies can hang no card.
//
// What a begin's placement says as `room`: 0 = nothing in common; kNoRoom = there was no memory for
// one; else the word of a room (core/device/common_rooms.h), before kYes of one to try, with bit 0
// when this rank has opened all that it has tried.
#include <algorithm>

#include "core/run/executor.h"

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

CommonRooms* Executor::CommonOf(const Exchange& x) const {
  const bool may = options_.device_commons && x.ferry != nullptr && CanBeInCommon(x);
  return may ? x.ferry->common() : nullptr;
}

// Of a begin on a channel that has agreed. Without a room it begins void: then all do, once.
void Executor::BoardInCommon(Exchange* x) {
  x->in_common = x->channel->in_common == InCommon::kYes && CommonOf(*x) != nullptr;
  x->reduced_mark = 0;
  if (!x->in_common) return;
  x->passage = x->ferry->BoardInCommon(*x->request, &x->input, &x->output);
  if (x->passage != nullptr) return;
  x->entry = 0;
  x->ferry = nullptr;
}

uint64_t Executor::RoomWord(const Exchange& x) const {
  if (x.in_common)
    return x.passage == nullptr ? kNoRoom : x.ferry->common()->WordOf(x.passage->room);
  CommonRooms* common = CommonOf(x);
  if (common == nullptr || x.channel->in_common >= InCommon::kYes) return 0;
  const uint64_t word = common->Probe();
  return word == 0 ? 0 : word | (x.channel->opened_all ? kOpenedAll : 0);
}

// All have begun: what they say of their rooms, of which every member judges alike. False: they do
// not agree where this message lies, and it begins again through the host. Who has begun for a
// circuit says nothing of rooms: then nothing is decided here (see core/device/switchboard.h).
bool Executor::JudgeRooms(Exchange* x) {
  for (size_t j = 0; j < x->size(); ++j)
    if (Switchboard::StandOf(x->CellOf(j)->circuit[x->Turn()]) == Switchboard::Stand::kReady)
      return true;
  InCommon& state = x->channel->in_common;
  bool all = true, opened = true, any = false;
  for (size_t j = 0; j < x->size(); ++j) {
    const uint64_t word = x->CellOf(j)->placement[x->Turn()].room;
    all &= word > kNoRoom;
    any |= word != 0;
    opened &= (word & kOpenedAll) != 0;
  }
  if (state == InCommon::kYes && any && !all) {
    state = InCommon::kNo;
    return false;
  }
  if (!all || state >= InCommon::kYes) return true;
  if (state == InCommon::kTried) {
    state = opened ? InCommon::kYes : InCommon::kNo;
  } else {
    state = InCommon::kTried;
    x->channel->opened_all = FindRooms(*x);
  }
  return true;
}

// False: some member's cannot be reached; rooms_[i] is null then.
bool Executor::FindRooms(const Exchange& x) {
  rooms_.clear();
  for (size_t j = 0; j < x.size(); ++j) {
    const uint64_t word = x.CellOf(j)->placement[x.Turn()].room & ~kOpenedAll;
    rooms_.push_back(x.ferry->common()->Find(x.request->group->members[j], word));
  }
  return std::find(rooms_.begin(), rooms_.end(), nullptr) == rooms_.end();
}

// All steps that reduce, which follow each other, as one. False: the exchange has been aborted.
bool Executor::ReduceInCommon(Exchange* x) {
  const std::vector<Step>& steps = x->schedule->steps;
  const Step& first = steps[x->cursor];
  size_t length = first.length_bytes;
  for (; steps[x->cursor + 1].kind == StepKind::kReduce; ++x->cursor)
    length += steps[x->cursor + 1].length_bytes;
  if (!FindRooms(*x)) {
    const auto lost = std::find(rooms_.begin(), rooms_.end(), nullptr) - rooms_.begin();
    Abort(x, x->request->group->members[static_cast<size_t>(lost)],
          "has memory on its device that cannot be opened from here");
    return false;
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
  if (x->reduced_mark != 0) return true;
  LoseDevice(x);
  return false;
}

// Whether the device has done what this rank is about to tell its peers of.
bool Executor::HasReduced(Exchange* x) {
  if (x->reduced_mark == 0) return true;
  const auto reached = x->ferry->device()->IsReached(Device::Queue::kToHost, x->reduced_mark);
  if (reached == Device::Answer::kFailed) LoseDevice(x);
  awaits_device_ |= reached == Device::Answer::kNotYet;
  return reached == Device::Answer::kYes;
}

}  // namespace covey
