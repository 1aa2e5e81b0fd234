#include "tests/sim/simulator/split_kernels.h"

#include <utility>
#include <vector>

namespace covey {
namespace {

std::function<void()> in_the_middle;  // the kernels know nothing else

void Pause() {
  if (in_the_middle) in_the_middle();
}

void ReduceInHalves(const Reduction& reduction, std::span<const std::byte* const> inputs,
                    std::span<std::byte* const> outputs, size_t count, Stores stores) {
  const size_t half = count / 2;
  const size_t half_bytes = half * SizeOf(reduction.dtype);
  ScalarKernels().reduce(reduction, inputs, outputs, half, stores);
  Pause();
  std::vector<const std::byte*> rest_in(inputs.begin(), inputs.end());
  std::vector<std::byte*> rest_out(outputs.begin(), outputs.end());
  for (const std::byte*& input : rest_in) input += half_bytes;
  for (std::byte*& output : rest_out) output += half_bytes;
  ScalarKernels().reduce(reduction, rest_in, rest_out, count - half, stores);
}

void AddAfterAPause(const Reduction& reduction, const std::byte* input, std::byte* acc,
                    size_t count) {
  Pause();
  ScalarKernels().add(reduction, input, acc, count);
}

}  // namespace

void OnWorkDo(std::function<void()> what) { in_the_middle = std::move(what); }

void CopyInHalves(std::byte* to, const std::byte* from, size_t length_bytes, Stores stores) {
  const size_t half = length_bytes / 2;
  ScalarKernels().copy(to, from, half, stores);
  Pause();
  ScalarKernels().copy(to + half, from + half, length_bytes - half, stores);
}

const Kernels& SplitKernels() {
  static const Kernels kernels = [] {
    Kernels k = ScalarKernels();
    k.copy = CopyInHalves;
    k.reduce = ReduceInHalves;
    k.add = AddAfterAPause;
    return k;
  }();
  return kernels;
}

}  // namespace covey
