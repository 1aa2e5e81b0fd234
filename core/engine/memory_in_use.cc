#include "core/engine/memory_in_use.h"

#include <algorithm>

#include "core/base/check.h"

namespace covey {
namespace {

using Extent = Footprint::Extent;

void Append(const Tensor& tensor, bool is_written, Footprint* to) {
  const size_t length = tensor.LengthBytes();
  if (tensor.data == nullptr || length == 0) return;
  to->extents.push_back({tensor.data, tensor.data + length, is_written});
}

Footprint& FootprintOf(Operation* operation) {
  Footprint& known = operation->footprint;
  if (known.is_known) return known;
  known.is_known = true;
  known.extents.clear();
  for (const Tensor& output : operation->outputs) Append(output, true, &known);
  for (size_t i = 0; i < operation->inputs.size(); ++i) {
    const Tensor& input = operation->inputs[i];
    const bool in_place = i < operation->outputs.size() &&
                          operation->outputs[i].data == input.data &&
                          operation->outputs[i].LengthBytes() == input.LengthBytes();
    if (!in_place) Append(input, false, &known);
  }
  std::sort(known.extents.begin(), known.extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  known.whole = {};
  if (!known.extents.empty()) known.whole.begin = known.extents.front().begin;
  for (const Extent& extent : known.extents)
    known.whole.end = std::max(known.whole.end, extent.end);
  return known;
}

// How far what has been walked reaches.
struct Reach {
  const std::byte* any = nullptr;
  const std::byte* written = nullptr;

  bool Covers(const Extent& e) const { return (e.is_written ? any : written) > e.begin; }
  void Add(const Extent& e) {
    any = std::max(any, e.end);
    if (e.is_written) written = std::max(written, e.end);
  }
};

// Two extents share memory if the later one begins before the earlier one ends.
bool Conflict(const Footprint& a, const Footprint& b) {
  Reach reach_a, reach_b;
  size_t i = 0;
  size_t j = 0;
  while (i < a.extents.size() || j < b.extents.size()) {
    const bool is_a =
        j == b.extents.size() || (i < a.extents.size() && a.extents[i].begin < b.extents[j].begin);
    const Extent& next = is_a ? a.extents[i++] : b.extents[j++];
    if ((is_a ? reach_b : reach_a).Covers(next)) return true;
    (is_a ? reach_a : reach_b).Add(next);
  }
  return false;
}

bool RunsInOrder(const Operation& a, const Operation& b) {
  return a.name == b.name && a.group->key == b.group->key;
}

}  // namespace

const Operation* MemoryInUse::ConflictOf(Operation* operation) {
  if (operations_.empty()) return nullptr;
  if (operations_.size() == 1) Place(operations_[0], 0);
  const Footprint& wanted = FootprintOf(operation);
  for (size_t begin = 0; begin < operations_.size(); begin += kBlock) {
    if (!wanted.whole.Meets(blocks_[begin / kBlock])) continue;
    const size_t end = std::min(begin + kBlock, operations_.size());
    for (size_t i = begin; i < end; ++i) {
      if (!wanted.whole.Meets(wholes_[i]) || RunsInOrder(*operation, *operations_[i])) continue;
      if (Conflict(wanted, operations_[i]->footprint)) return operations_[i];
    }
  }
  return nullptr;
}

void MemoryInUse::Add(Operation* operation) {
  CHECK(!operation->footprint.is_counted, "an operation is in flight twice");
  operation->footprint.is_counted = true;
  operations_.push_back(operation);
  wholes_.push_back({});
  if (operations_.size() > blocks_.size() * kBlock) blocks_.push_back({});
  operation->footprint.place = operations_.size() - 1;
  if (operations_.size() > 1) Place(operation, operations_.size() - 1);
}

void MemoryInUse::Place(Operation* operation, size_t at) {
  const MemorySpan& whole = FootprintOf(operation).whole;
  operations_[at] = operation;
  operation->footprint.place = at;
  wholes_[at] = whole;
  if (whole.end == nullptr) return;
  MemorySpan& block = blocks_[at / kBlock];
  block.begin = block.end == nullptr ? whole.begin : std::min(block.begin, whole.begin);
  block.end = std::max(block.end, whole.end);
}

void MemoryInUse::Remove(Operation* operation) {
  Footprint& footprint = operation->footprint;
  if (footprint.is_counted) {
    if (footprint.place + 1 < operations_.size()) Place(operations_.back(), footprint.place);
    operations_.pop_back();
    wholes_.pop_back();
    if (operations_.size() % kBlock == 0) blocks_.resize(operations_.size() / kBlock);
    footprint.is_counted = false;
  }
  footprint.is_known = false;
}

}  // namespace covey
