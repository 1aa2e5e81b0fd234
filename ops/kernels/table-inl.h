// Makes a Kernels table of a set of leaves. Included by best_x86_64.cc and best_aarch64.cc only;
// one of them is compiled.
#ifndef COVEY_OPS_KERNELS_TABLE_INL_H_
#define COVEY_OPS_KERNELS_TABLE_INL_H_

#include <cstring>

#include "core/base/check.h"
#include "core/base/kernels.h"
#include "ops/kernels/leaves.h"

namespace covey {
namespace {

constexpr char kNoLeaf[] = "no arithmetic on bool, and an average is a sum with a divisor";

// The factor and the divisor of a combined value. A product with 2^-k equals the quotient, bit for
// bit, and is cheaper.
struct Last {
  explicit Last(const Reduction& r) : postscale(r.postscale), divisor(r.divisor) {
    const bool is_power = (r.divisor & (r.divisor - 1)) == 0;
    if (postscale != 1 || !is_power) return;
    postscale = 1 / divisor;
    divisor = 1;
  }
  double postscale;
  double divisor;
};

Scaling ScalingOf(double prescale, const Last& last) {
  const bool scales = last.postscale != 1, divides = last.divisor != 1;
  if (prescale != 1) return scales || divides ? Scaling::kAll : Scaling::kPre;
  if (divides) return scales ? Scaling::kAll : Scaling::kDivide;
  return scales ? Scaling::kPost : Scaling::kNone;
}

// Integers with a scale are rare (the average of a counter) and left to the reference.
bool NeedsScalar(DType dtype, Scaling scaling) {
  const bool is_float =
      dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 || dtype == DType::kBF16;
  return scaling != Scaling::kNone && !is_float;
}

template <const Leaves& kLeaves>
Leaf ReduceLeaf(DType dtype, Op op, Scaling scaling) {
  return kLeaves.reduce[static_cast<int>(dtype)][static_cast<int>(op)][static_cast<int>(scaling)];
}

template <const Leaves& kLeaves>
void Reduce(const Reduction& r, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs, size_t count_elems, Stores stores) {
  const Last last(r);
  const Scaling scaling = ScalingOf(r.prescale, last);
  if (NeedsScalar(r.dtype, scaling)) {
    return ScalarKernels().reduce(r, inputs, outputs, count_elems, stores);
  }
  const Leaf leaf = ReduceLeaf<kLeaves>(r.dtype, r.op, scaling);
  CHECK(leaf != nullptr, kNoLeaf);
  CHECK(!inputs.empty() && !outputs.empty());
  leaf({inputs.data(), inputs.size(), outputs.data(), outputs.size(), count_elems, r.prescale,
        r.prescale, last.postscale, last.divisor, stores == Stores::kStreaming});
}

// A hop of a dtype that is its own accumulator is a reduce with one output and one input or two.
template <const Leaves& kLeaves>
void Begin(const Reduction& r, const std::byte* input, std::byte* acc, size_t count_elems) {
  const Scaling scaling = ScalingOf(r.prescale, Last({r.dtype, r.op}));
  if (NeedsScalar(r.dtype, scaling)) return ScalarKernels().begin(r, input, acc, count_elems);
  const Leaf half = kLeaves.begin[static_cast<int>(r.dtype)];
  const Leaf leaf = half != nullptr ? half : ReduceLeaf<kLeaves>(r.dtype, Op::kSum, scaling);
  CHECK(leaf != nullptr, kNoLeaf);
  leaf({&input, 1, &acc, 1, count_elems, r.prescale, r.prescale, 1, 1, false});
}

template <const Leaves& kLeaves>
void Add(const Reduction& r, const std::byte* input, std::byte* acc, size_t count_elems) {
  const Scaling scaling = ScalingOf(r.prescale, Last({r.dtype, r.op}));
  if (NeedsScalar(r.dtype, scaling)) return ScalarKernels().add(r, input, acc, count_elems);
  const Leaf half = kLeaves.add[static_cast<int>(r.dtype)][static_cast<int>(r.op)];
  const Leaf leaf = half != nullptr ? half : ReduceLeaf<kLeaves>(r.dtype, r.op, scaling);
  CHECK(leaf != nullptr, kNoLeaf);
  const std::byte* const inputs[] = {acc, input};
  leaf({inputs, 2, &acc, 1, count_elems, 1, r.prescale, 1, 1, false});
}

template <const Leaves& kLeaves>
void Finish(const Reduction& r, const std::byte* acc, std::byte* output, size_t count_elems) {
  const Last last(r);
  const Scaling scaling = ScalingOf(1, last);
  if (NeedsScalar(r.dtype, scaling)) return ScalarKernels().finish(r, acc, output, count_elems);
  const Leaf half = kLeaves.finish[static_cast<int>(r.dtype)];
  const Leaf leaf = half != nullptr ? half : ReduceLeaf<kLeaves>(r.dtype, Op::kSum, scaling);
  CHECK(leaf != nullptr, kNoLeaf);
  leaf({&acc, 1, &output, 1, count_elems, 1, 1, last.postscale, last.divisor, false});
}

template <const Leaves& kLeaves>
void Copy(std::byte* dst, const std::byte* src, size_t length_bytes, Stores stores) {
  if (length_bytes == 0) return;
  if (stores == Stores::kStreaming) return kLeaves.stream_copy(dst, src, length_bytes);
  std::memcpy(dst, src, length_bytes);
}

template <const Leaves& kLeaves, const Leaves& kCopyLeaves = kLeaves>
constexpr Kernels MakeKernels(const char* name) {
  return {name, Reduce<kLeaves>, Begin<kLeaves>, Add<kLeaves>, Finish<kLeaves>, Copy<kCopyLeaves>};
}

}  // namespace
}  // namespace covey
#endif  // COVEY_OPS_KERNELS_TABLE_INL_H_
