#include "core/memory_in_use.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/tensor_queue.h"

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
  known.begin = known.extents.empty() ? nullptr : known.extents.front().begin;
  known.end = nullptr;
  for (const Extent& extent : known.extents) known.end = std::max(known.end, extent.end);
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
  if (a.begin >= b.end || b.begin >= a.end) return false;
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
  return a.name.empty() && b.name.empty() && a.group->key == b.group->key;
}

}  // namespace

const Operation* MemoryInUse::ConflictOf(Operation* operation) {
  if (operations_.empty()) return nullptr;
  const Footprint& wanted = FootprintOf(operation);
  for (Operation* other : operations_)
    if (Conflict(wanted, FootprintOf(other)) && !RunsInOrder(*operation, *other)) return other;
  return nullptr;
}

void MemoryInUse::Add(Operation* operation) {
  CHECK(!operation->footprint.is_counted, "an operation is in flight twice");
  operation->footprint.is_counted = true;
  operation->footprint.place = operations_.size();
  operations_.push_back(operation);
}

void MemoryInUse::Remove(Operation* operation) {
  Footprint& footprint = operation->footprint;
  footprint.is_known = false;
  if (!footprint.is_counted) return;
  operations_.back()->footprint.place = footprint.place;
  operations_[footprint.place] = operations_.back();
  operations_.pop_back();
  footprint.is_counted = false;
}

}  // namespace covey
