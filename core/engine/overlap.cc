#include "core/engine/overlap.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

namespace covey {
namespace {

struct Extent {
  const std::byte* begin;
  const std::byte* end;
  size_t index;  // in the request
};

Extent ExtentOf(const std::vector<Tensor>& tensors, size_t i) {
  return {tensors[i].data, tensors[i].data + tensors[i].LengthBytes(), i};
}

// By address; of equal ones the first mention first. Empty tensors share nothing.
std::vector<Extent> SortedExtents(const std::vector<Tensor>& tensors) {
  std::vector<Extent> extents;
  extents.reserve(tensors.size());
  bool is_sorted = true;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Extent extent = ExtentOf(tensors, i);
    if (extent.begin == extent.end) continue;
    is_sorted &= extents.empty() || extents.back().begin < extent.begin;
    extents.push_back(extent);
  }
  if (!is_sorted)
    std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.index < b.index;
    });
  return extents;
}

Status Shared(const char* what, size_t a, size_t b, const std::string& why) {
  return Status::InvalidArgument(std::string(what) + " " + std::to_string(std::min(a, b)) +
                                 " and " + std::to_string(std::max(a, b)) +
                                 " of the request share memory: " + why);
}

// The tensor was mentioned before: it is reduced from a copy, and the result is not looked at.
void Move(Operation* operation, size_t i) {
  Tensor& in = operation->inputs[i];
  const size_t length = in.LengthBytes();
  operation->apart.push_back(std::make_unique_for_overwrite<std::byte[]>(length));
  std::byte* own = operation->apart.back().get();
  if (in.data != nullptr) std::memcpy(own, in.data, length);  // null: broadcast, not the root
  in.data = own;
  operation->outputs[i].data = own;
}

// An input that is not its own output must lie apart from all outputs.
Status CheckInputs(const Operation& operation, const std::vector<Extent>& outputs) {
  for (size_t i = 0; i < operation.inputs.size(); ++i) {
    const std::byte* data = operation.inputs[i].data;
    if (data == nullptr || data == operation.outputs[i].data) continue;
    const Extent in = ExtentOf(operation.inputs, i);
    if (in.begin == in.end) continue;
    const auto after =
        std::lower_bound(outputs.begin(), outputs.end(), in.end,
                         [](const Extent& e, const std::byte* end) { return e.begin < end; });
    if (after != outputs.begin() && std::prev(after)->end > in.begin)
      return Shared("input and output", i, std::prev(after)->index,
                    "an output may be its own input, and nothing else");
  }
  return Status::Ok();
}

}  // namespace

Status SeparateTensors(Operation* operation) {
  if (operation->outputs.size() < 2) return Status::Ok();
  const std::vector<Extent> outputs = SortedExtents(operation->outputs);
  RETURN_IF_ERROR(CheckInputs(*operation, outputs));
  for (size_t k = 1, first = 0; k < outputs.size(); ++k) {
    const Extent& a = outputs[first];
    const Extent& b = outputs[k];
    if (b.begin >= a.end) {
      first = k;
      continue;
    }
    const bool is_same = a.begin == b.begin && a.end == b.end &&
                         operation->inputs[a.index].data == operation->inputs[b.index].data;
    if (!is_same)
      return Shared("tensors", a.index, b.index,
                    "a part of each, so that a result would depend on the order of writing; give "
                    "whole tensors, or one that covers both");
    if (operation->inputs[b.index].device != DeviceType::kCpu)
      return Shared("tensors", a.index, b.index, "they are one tensor on a device; list it once");
    Move(operation, b.index);
  }
  return Status::Ok();
}

}  // namespace covey
