#include "core/api/pairs_shelf.h"

#include <utility>

namespace covey {
namespace {

void Add(const CodedCounters& more, CodedCounters* sum) {
  sum->decoded += more.decoded;
  sum->repaired += more.repaired;
  sum->bytes += more.bytes;
}

}  // namespace

uint64_t PairsShelf::Keep(std::unique_ptr<PairsPort> port, Time now) {
  const std::lock_guard lock(mutex_);
  if (last_ == 0) last_ = static_cast<uint64_t>(now);
  open_.emplace(++last_, std::move(port));
  return last_;
}

PairsPort* PairsShelf::Find(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(number);
  return found == open_.end() ? nullptr : found->second.get();
}

void PairsShelf::Close(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  Add(found->second->coded(), &past_);
  found->second->Close();
  closed_.push_back(std::move(found->second));
  open_.erase(found);
}

std::vector<uint64_t> PairsShelf::TakeUnused() {
  const std::lock_guard lock(mutex_);
  std::vector<uint64_t> blocks;
  std::erase_if(closed_, [&](const std::unique_ptr<PairsPort>& port) {
    if (!port->CanBeFreed()) return false;
    blocks.push_back(port->offset());
    return true;
  });
  return blocks;
}

CodedCounters PairsShelf::Coded() {
  const std::lock_guard lock(mutex_);
  CodedCounters sum = past_;
  for (const auto& [number, port] : open_) Add(port->coded(), &sum);
  return sum;
}

void PairsShelf::Interrupt() {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, port] : open_) port->Interrupt();
}

}  // namespace covey
