#include "tests/sim/simulator/late_communicators.h"

#include <algorithm>
#include <cstring>

#include "core/base/collective.h"
#include "core/base/kernels.h"
#include "core/base/types.h"
#include "tests/sim/simulator/late_device.h"

namespace covey {
namespace {

std::byte* Host(const void* on_device) {
  return LateDevice::OnDevice(static_cast<const std::byte*>(on_device));
}

}  // namespace

bool CommunicatorCables::Line::IsWhole() const {
  return std::find(ranks.begin(), ranks.end(), -1) == ranks.end();
}

bool CommunicatorCables::Line::IsBroken() const {
  return std::find(aborted.begin(), aborted.end(), true) != aborted.end();
}

size_t CommunicatorCables::Join(const CommunicatorId& id, int32_t rank, uint64_t device, int32_t me,
                                int32_t size) {
  size_t at = 0;
  while (at < lines_.size() && lines_[at].id != id) ++at;
  const auto n = static_cast<size_t>(size);
  if (at == lines_.size())
    lines_.push_back({id,
                      std::vector<int32_t>(n, -1),
                      {},
                      std::vector<uint64_t>(n, 0),
                      std::vector<bool>(n, false)});
  Line& line = lines_[at];
  if (line.ranks.size() != n || line.ranks[static_cast<size_t>(me)] != -1)
    wrong_ = "a communicator is opened twice, or by other members";
  line.ranks[static_cast<size_t>(me)] = rank;
  for (const uint64_t other : line.devices)
    if (other == device) wrong_ = "two members of a communicator use one device";
  line.devices.push_back(device);
  return at;
}

void CommunicatorCables::Hand(int32_t rank, Item item) {
  queues_[static_cast<size_t>(rank)].push_back(std::move(item));
}

void CommunicatorCables::Abort(size_t number, int32_t me) {
  Line& line = lines_[number];
  line.aborted[static_cast<size_t>(me)] = true;
  std::erase_if(queues_[static_cast<size_t>(line.ranks[static_cast<size_t>(me)])],
                [number](const Item& item) { return item.line == number; });
}

void CommunicatorCables::Kill(int32_t rank) { dead_[static_cast<size_t>(rank)] = true; }

void CommunicatorCables::Advance() {
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < lines_.size(); ++i) moved |= DoOne(&lines_[i], i);
  }
}

bool CommunicatorCables::DoOne(Line* line, size_t number) {
  std::vector<const Item*> items;
  for (const int32_t rank : line->ranks) {
    if (rank < 0 || dead_[static_cast<size_t>(rank)]) return false;
    const std::deque<Item>& queue = queues_[static_cast<size_t>(rank)];
    if (queue.empty() || queue.front().line != number) return false;
    for (void* event : queue.front().after)
      if (!has_completed_(event)) return false;
    items.push_back(&queue.front());
  }
  Do(items);
  for (size_t i = 0; i < line->ranks.size(); ++i) {
    line->done[i] = items[i]->number;
    queues_[static_cast<size_t>(line->ranks[i])].pop_front();
  }
  return true;
}

void CommunicatorCables::Do(const std::vector<const Item*>& items) {
  const covey_circuit_work& work = items[0]->work;
  for (const Item* item : items)
    if (item->number != items[0]->number || item->work.kind != work.kind ||
        item->work.op != work.op || item->parts.size() != items[0]->parts.size())
      wrong_ = "members have launched different work";
  const Kind kind{static_cast<uint8_t>(work.kind)};
  const DType dtype{static_cast<uint8_t>(work.dtype)};
  const size_t size = items.size();
  for (size_t p = 0; p < items[0]->parts.size() && wrong_.empty(); ++p) {
    const size_t count = items[0]->parts[p].count;
    const size_t in_count = kind == Kind::kReducescatter ? count * size : count;
    std::vector<std::vector<std::byte>> inputs;
    std::vector<const std::byte*> sources;
    for (const Item* item : items) {
      if (item->parts[p].count != count) wrong_ = "members have launched other lengths";
      const std::byte* from = Host(item->parts[p].from);
      inputs.emplace_back(from, from + in_count * SizeOf(dtype));
    }
    for (const auto& input : inputs) sources.push_back(input.data());
    std::vector<std::byte> result(in_count * SizeOf(dtype));
    std::byte* target = result.data();
    if (kind == Kind::kBroadcast) {
      result = inputs[static_cast<size_t>(work.root)];
    } else {
      const bool average = work.op == static_cast<int32_t>(Op::kAverage);
      const Op op = average ? Op::kSum : Op{static_cast<uint8_t>(work.op)};
      ScalarKernels().reduce({dtype, op, 1.0, 1.0, average ? static_cast<int32_t>(size) : 1},
                             sources, {&target, 1}, in_count, Stores::kCached);
    }
    const size_t bytes = count * SizeOf(dtype);
    for (size_t j = 0; j < size; ++j)
      std::memcpy(Host(items[j]->parts[p].to),
                  result.data() + (kind == Kind::kReducescatter ? j * bytes : 0), bytes);
  }
}

bool CommunicatorCables::Uses(int32_t rank, const void* on_device) const {
  const std::deque<Item>& queue = queues_[static_cast<size_t>(rank)];
  return std::any_of(queue.begin(), queue.end(), [on_device](const Item& item) {
    return std::any_of(item.parts.begin(), item.parts.end(), [on_device](const auto& part) {
      return part.from == on_device || part.to == on_device;
    });
  });
}

Time LateCommunicators::Later() {
  return clock_->Now() + 1 + static_cast<Time>(rng_.Below(static_cast<uint64_t>(options_.longest)));
}

Communicators::Answer LateCommunicators::Offers() {
  if (found_at_ == 0) found_at_ = Later();
  if (clock_->Now() < found_at_) return Answer::kNotYet;
  return options_.there ? Answer::kYes : Answer::kFailed;
}

Communicators::Answer LateCommunicators::MakeId(CommunicatorId* id) {
  if (id_at_ == 0) id_at_ = Later();
  if (clock_->Now() < id_at_) return Answer::kNotYet;
  id_at_ = 0;
  for (char& c : *id) c = static_cast<char>(rng_.Below(256));
  return Answer::kYes;
}

Communicator* LateCommunicators::Open(const CommunicatorId& id, int32_t me, int32_t size) {
  Held* held = held_.emplace_back(std::make_unique<Held>()).get();
  held->line = cables_->Join(id, options_.rank, options_.device, me, size);
  held->me = me;
  held->ready_at = Later();
  return reinterpret_cast<Communicator*>(held);
}

Communicators::Answer LateCommunicators::IsReady(Communicator* communicator) {
  const Held* held = Of(communicator);
  if (options_.never_ready || !cables_->line(held->line).IsWhole()) return Answer::kNotYet;
  return clock_->Now() >= held->ready_at ? Answer::kYes : Answer::kNotYet;
}

bool LateCommunicators::After(Communicator* communicator, void* event) {
  Of(communicator)->item.after.push_back(event);
  return true;
}

bool LateCommunicators::Launch(Communicator* communicator, const covey_circuit_work& work) {
  Held* held = Of(communicator);
  if (options_.fails_after >= 0 && static_cast<int>(held->launched) >= options_.fails_after)
    held->failed = true;
  if (held->failed) return false;
  held->item.line = held->line;
  held->item.number = ++held->launched;
  held->item.work = work;
  held->item.parts.assign(work.parts, work.parts + work.num_parts);
  held->launching = true;
  held->handed_at = Later();
  return true;
}

Communicators::Answer LateCommunicators::IsLaunched(Communicator* communicator, uint64_t* mark) {
  Held* held = Of(communicator);
  if (held->failed) return Answer::kFailed;
  if (clock_->Now() < held->handed_at) return Answer::kNotYet;
  *mark = held->item.number;
  cables_->Hand(options_.rank, std::move(held->item));
  held->item = {};
  held->launching = false;
  return Answer::kYes;
}

Communicators::Answer LateCommunicators::IsDone(Communicator* communicator, uint64_t mark) {
  Held* held = Of(communicator);
  cables_->Advance();
  const CommunicatorCables::Line& line = cables_->line(held->line);
  if (line.done[static_cast<size_t>(held->me)] >= mark) return Answer::kYes;
  held->failed |= line.IsBroken() && rng_.Percent(30);
  return held->failed ? Answer::kFailed : Answer::kNotYet;
}

void LateCommunicators::Abort(Communicator* communicator) {
  Held* held = Of(communicator);
  if (held->over_at == 0) held->over_at = Later();
}

bool LateCommunicators::IsOver(Communicator* communicator) {
  Held* held = Of(communicator);
  if (held->over_at == 0 || clock_->Now() < held->over_at) return false;
  cables_->Abort(held->line, held->me);
  return true;
}

std::string LateCommunicators::Failure(Communicator* communicator) {
  return Of(communicator)->failed ? "the cable has come off" : "";
}

}  // namespace covey
