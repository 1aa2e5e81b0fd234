#include "tests/sim/simulator/late_device.h"

#include <algorithm>
#include <cstring>

#include "core/base/kernels.h"

namespace covey {

void* LateDevice::Compute(Time at, std::function<void()> compute) {
  events_.push_back({at, std::move(compute), false});
  return &events_.back();
}

void LateDevice::Finish(void* recorded) {
  auto* event = static_cast<Event*>(recorded);
  if (event->completed) return;
  event->completed = true;
  if (event->compute) event->compute();
}

void LateDevice::Synchronize(void* stream) {
  for (const Order& order : orders_[stream])
    while (Of(order.queue).done + 1 < order.mark && !Of(order.queue).copies.empty())
      DoOne(&Of(order.queue));
  orders_.erase(stream);
}

bool LateDevice::Uses(const std::byte* memory, size_t length_bytes) const {
  const auto overlaps = [&](const std::byte* begin, size_t length) {
    return begin < memory + length_bytes && memory < begin + length;
  };
  return std::any_of(queues_.begin(), queues_.end(), [&](const Line& line) {
    return std::any_of(line.copies.begin(), line.copies.end(), [&](const Pending& copy) {
      return overlaps(copy.to, copy.length_bytes) || overlaps(copy.from, copy.length_bytes);
    });
  });
}

void* LateDevice::Record(void*) { return Fails() ? nullptr : Compute(clock_->Now(), nullptr); }

Device::Answer LateDevice::IsReady(void* recorded) {
  if (Fails()) return Answer::kFailed;
  auto* event = static_cast<Event*>(recorded);
  if (event->at <= clock_->Now()) Finish(event);
  return event->completed ? Answer::kYes : Answer::kNotYet;
}

bool LateDevice::Copy(Queue queue, std::byte* to, const std::byte* from, size_t length_bytes) {
  if (Fails()) return false;
  if (watch_) watch_(queue);
  HandOver(queue, {.to = OnHost(to), .from = OnHost(from), .length_bytes = length_bytes});
  return true;
}

void LateDevice::HandOver(Queue queue, Pending work) {
  Line& line = Of(queue);
  const auto takes = longest_ == 0 ? 0 : rng_.Below(static_cast<uint64_t>(longest_));
  const Time at = clock_->Now() + static_cast<Time>(takes);
  work.at = line.copies.empty() ? at : std::max(at, line.copies.back().at);
  line.copies.push_back(std::move(work));
}

std::byte* LateDevice::Alloc(size_t length_bytes, IpcKey* key) {
  if (length_bytes > memory_left_) return nullptr;
  memory_left_ -= length_bytes;
  memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(length_bytes));
  std::byte* address = OnDevice(memory_.back().get());
  std::memcpy(key->bytes, &address, sizeof(address));
  return address;
}

std::byte* LateDevice::Open(const IpcKey& key) {
  if (!opens_) return nullptr;
  std::byte* address;
  std::memcpy(&address, key.bytes, sizeof(address));
  return address;
}

bool LateDevice::Reduce(Queue queue, const Reduction& reduction,
                        std::span<const std::byte* const> inputs,
                        std::span<std::byte* const> outputs, size_t count_elems) {
  if (Fails()) return false;
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (const std::byte* input : inputs) from.push_back(OnHost(input));
  for (std::byte* output : outputs) to.push_back(OnHost(output));
  HandOver(queue, {.reduce = [=] {
             ScalarKernels().reduce(reduction, from, to, count_elems, Stores::kCached);
           }});
  return true;
}

uint64_t LateDevice::Mark(Queue queue) {
  return Fails() ? 0 : Of(queue).done + Of(queue).copies.size() + 1;
}

Device::Answer LateDevice::IsReached(Queue queue, uint64_t mark) {
  if (Fails()) return Answer::kFailed;
  Line& line = Of(queue);
  while (!line.copies.empty() && line.copies.front().at <= clock_->Now()) DoOne(&line);
  return line.done + 1 >= mark ? Answer::kYes : Answer::kNotYet;
}

bool LateDevice::OrderAfter(void* stream, Queue queue, uint64_t mark) {
  if (Fails()) return false;
  orders_[stream].push_back({queue, mark});
  return true;
}

bool LateDevice::Fails() {
  failed_ |= calls_left_ == 0;
  calls_left_ -= calls_left_ > 0;
  return failed_;
}

void LateDevice::DoOne(Line* line) {
  const Pending copy = line->copies.front();
  line->copies.pop_front();
  ++line->done;
  if (copy.reduce) return copy.reduce();
  std::memcpy(copy.to, copy.from, copy.length_bytes);
}

}  // namespace covey
