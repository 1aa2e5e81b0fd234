// The loops of every instruction set, written once over vectors of Isa::kBytes bytes.
//
// Included by sse4.cc, avx2.cc, avx512.cc and neon.cc only; see vectors-inl.h for why all of it is
// unnamed.
//
// How one pass runs (begin = alignment of the first output, a vector has kLanes elements):
//
//      0     begin                                 end      count
//      |--head--|                                      |--tail--|   one vector each, computed
//            |========= body: aligned vectors =========|            FIRST, stored LAST
//
// Head and tail overlap the body, so nothing is left to do element by element. This holds in place
// as well: they are computed before the body overwrites their inputs, and what they store again
// over the body is the same values. Fewer elements than one vector go through vectors of 16 bytes.
#ifndef COVEY_OPS_KERNELS_LEAVES_INL_H_
#define COVEY_OPS_KERNELS_LEAVES_INL_H_

#include <cstddef>
#include <cstdint>

#include "core/base/types.h"
#include "ops/kernels/leaves.h"
#include "ops/kernels/vectors-inl.h"

namespace covey {
namespace {

// First is the storage of inputs[0], Rest of the other inputs, Out of the outputs. kInputs and
// kOutputs are compile-time copies of the counts, or 0.
template <class IsaT, class FirstT, class RestT, class OutT, Op kOpT, Scaling kScalingT,
          size_t kInputsT = 0, size_t kOutputsT = 0>
struct Shape {
  using Isa = IsaT;
  using First = FirstT;
  using Rest = RestT;
  using Out = OutT;
  using FirstElement = Element<IsaT, First>;
  using RestElement = Element<IsaT, Rest>;
  using OutElement = Element<IsaT, Out>;
  using Acc = typename OutElement::Acc;
  static constexpr size_t kLanes = OutElement::kLanes;
  using V = Vec<Acc, kLanes>;
  static constexpr Op kOp = kOpT;
  static constexpr Scaling kScaling = kScalingT;
  static constexpr bool kScalesInputs = kScaling == Scaling::kPre || kScaling == Scaling::kAll;
  static constexpr bool kScalesResult = kScaling == Scaling::kPost || kScaling == Scaling::kAll;
  static constexpr bool kDivides = kScaling == Scaling::kDivide || kScaling == Scaling::kAll;
  static constexpr size_t kInputs = kInputsT;
  static constexpr size_t kOutputs = kOutputsT;
  static constexpr size_t kStrip = 4;  // vectors in flight: hides the latency of load and add
};

// The pass with everything a strip needs in registers: as far as the compiler knows, stores to the
// outputs may alias `Pass`, so it would read counts, scales and pointers again after each of them.
template <class S>
struct Strips {
  const Pass& pass;
  typename S::V first_scale;
  typename S::V rest_scale;
  typename S::V postscale;
  typename S::V divisor;
  const std::byte* inputs[S::kInputs + 1];  // + 1: an array needs an element
  std::byte* outputs[S::kOutputs + 1];

  [[gnu::always_inline]] explicit Strips(const Pass& p) : pass(p) {
    if constexpr (S::kScalesInputs) {
      first_scale = Broadcast<typename S::Acc, S::kLanes>(p.first_scale);
      rest_scale = Broadcast<typename S::Acc, S::kLanes>(p.rest_scale);
    }
    if constexpr (S::kScalesResult) {
      postscale = Broadcast<typename S::Acc, S::kLanes>(p.postscale);
    }
    if constexpr (S::kDivides) divisor = Broadcast<typename S::Acc, S::kLanes>(p.divisor);
    for (size_t k = 0; k < S::kInputs; ++k) inputs[k] = p.inputs[k];
    for (size_t k = 0; k < S::kOutputs; ++k) outputs[k] = p.outputs[k];
  }

  [[gnu::always_inline]] size_t NumInputs() const {
    return S::kInputs != 0 ? S::kInputs : pass.num_inputs;
  }
  [[gnu::always_inline]] size_t NumOutputs() const {
    return S::kOutputs != 0 ? S::kOutputs : pass.num_outputs;
  }
  [[gnu::always_inline]] const std::byte* Input(size_t k) const {
    return S::kInputs != 0 ? inputs[k] : pass.inputs[k];
  }
  [[gnu::always_inline]] std::byte* Output(size_t k) const {
    return S::kOutputs != 0 ? outputs[k] : pass.outputs[k];
  }
};

// Where a vector of elements comes from: memory that holds all of it ...
struct WholeReader {
  template <class E, class T>
  [[gnu::always_inline]] static typename E::Stored Read(const std::byte* from) {
    return Load<typename E::Stored>(from);
  }
};
// ... or memory that holds only the first `count_elems` < lanes of one of 16 bytes.
struct PartReader {
  size_t count_elems;
  template <class E, class T>
  [[gnu::always_inline]] typename E::Stored Read(const std::byte* from) const {
    return LoadPart<typename E::Stored>(from, count_elems * sizeof(T));
  }
};

// acc[j] = the combined values of elements at + j*kLanes ...
template <class S, class Reader, size_t kCount>
[[gnu::always_inline]] inline void Combine(const Strips<S>& strips, const Reader& reader, size_t at,
                                           typename S::V (&acc)[kCount]) {
  using First = typename S::First;
  using Rest = typename S::Rest;
  using FirstElement = typename S::FirstElement;
  using RestElement = typename S::RestElement;
  const std::byte* first = strips.Input(0) + at * sizeof(First);
#pragma GCC unroll 8
  for (size_t j = 0; j < kCount; ++j) {
    const std::byte* from = first + j * S::kLanes * sizeof(First);
    acc[j] = FirstElement::Widen(reader.template Read<FirstElement, First>(from));
    if constexpr (S::kScalesInputs) acc[j] *= strips.first_scale;
  }
  const size_t num_inputs = strips.NumInputs();
  for (size_t k = 1; k < num_inputs; ++k) {
    const std::byte* rest = strips.Input(k) + at * sizeof(Rest);
#pragma GCC unroll 8
    for (size_t j = 0; j < kCount; ++j) {
      const std::byte* from = rest + j * S::kLanes * sizeof(Rest);
      typename S::V x = RestElement::Widen(reader.template Read<RestElement, Rest>(from));
      if constexpr (S::kScalesInputs) x *= strips.rest_scale;
      acc[j] = Apply<S::kOp, typename S::Acc, S::kLanes>(acc[j], x);
    }
  }
#pragma GCC unroll 8
  for (size_t j = 0; j < kCount; ++j) {
    if constexpr (S::kScalesResult) acc[j] *= strips.postscale;
    if constexpr (S::kDivides) acc[j] /= strips.divisor;
    acc[j] = Canonical<typename S::Acc, S::kLanes>(acc[j]);
  }
}

template <class S, bool kStreaming, size_t kCount>
[[gnu::always_inline]] inline void WriteAll(const Strips<S>& strips, size_t at,
                                            const typename S::V (&acc)[kCount]) {
  const size_t num_outputs = strips.NumOutputs();
  for (size_t k = 0; k < num_outputs; ++k) {
    std::byte* output = strips.Output(k) + at * sizeof(typename S::Out);
#pragma GCC unroll 8
    for (size_t j = 0; j < kCount; ++j) {
      const auto stored = S::OutElement::Narrow(acc[j]);
      if constexpr (kStreaming) {
        S::Isa::Stream(output + j * sizeof(stored), stored);
      } else {
        Store(output + j * sizeof(stored), stored);
      }
    }
  }
}

// The elements [at, end), whole vectors. All inputs of a strip are read before any output is
// written: they may be the same memory.
template <class S, bool kStreaming>
[[gnu::always_inline]] inline void RunBody(const Strips<S>& strips, size_t at, size_t end) {
  constexpr size_t kStripElems = S::kStrip * S::kLanes;
  for (; end - at >= kStripElems; at += kStripElems) {
    typename S::V acc[S::kStrip];
    Combine<S>(strips, WholeReader{}, at, acc);
    WriteAll<S, kStreaming>(strips, at, acc);
  }
  for (; at < end; at += S::kLanes) {
    typename S::V acc[1];
    Combine<S>(strips, WholeReader{}, at, acc);
    WriteAll<S, kStreaming>(strips, at, acc);
  }
}

// One vector at `at`. The rare parts of a pass are functions of their own: inlined into each of the
// hundreds of passes they were most of the code.
template <class S>
[[gnu::noinline]] void CombineOne(const Pass& pass, size_t at, typename S::V (&acc)[1]) {
  Combine<S>(Strips<S>(pass), WholeReader{}, at, acc);
}

// Fewer elements than lanes. `S` is a shape of 16-byte vectors.
template <class S>
[[gnu::noinline]] void RunSmall(const Pass& pass) {
  const Strips<S> strips(pass);
  const size_t count = pass.count_elems;
  typename S::V tail[1];
  if (count < S::kLanes) {
    Combine<S>(strips, PartReader{count}, 0, tail);
    const auto stored = S::OutElement::Narrow(tail[0]);
    for (size_t k = 0; k < strips.NumOutputs(); ++k) {
      StorePart(strips.Output(k), stored, count * sizeof(typename S::Out));
    }
    return;
  }
  Combine<S>(strips, WholeReader{}, count - S::kLanes, tail);
  for (size_t at = 0; at < count - S::kLanes; at += S::kLanes) {
    typename S::V acc[1];
    Combine<S>(strips, WholeReader{}, at, acc);
    WriteAll<S, false>(strips, at, acc);
  }
  WriteAll<S, false>(strips, count - S::kLanes, tail);
}

// Elements before the first aligned vector of output 0. Memory that is not even aligned to its
// elements has none: 0.
template <class S>
[[gnu::always_inline]] inline size_t MisalignedElems(const std::byte* output) {
  constexpr size_t kVectorBytes = sizeof(typename S::OutElement::Stored);
  const size_t bytes = -reinterpret_cast<uintptr_t>(output) & (kVectorBytes - 1);
  return bytes % sizeof(typename S::Out) == 0 ? bytes / sizeof(typename S::Out) : 0;
}

template <class S>
[[gnu::always_inline]] inline bool AllAligned(const Strips<S>& strips, size_t at) {
  constexpr size_t kVectorBytes = sizeof(typename S::OutElement::Stored);
  uintptr_t bits = 0;
  for (size_t k = 0; k < strips.NumOutputs(); ++k) {
    bits |= reinterpret_cast<uintptr_t>(strips.Output(k) + at * sizeof(typename S::Out));
  }
  return bits % kVectorBytes == 0;
}

// See the drawing at the top. Streaming needs outputs that are aligned alike; others are stored as
// usual.
template <class S>
void Run(const Pass& pass) {
  const size_t count = pass.count_elems;
  if (count == 0) return;
  if (count < S::kLanes) {
    return RunSmall<Shape<typename S::Isa::Small, typename S::First, typename S::Rest,
                          typename S::Out, S::kOp, S::kScaling>>(pass);
  }
  const Strips<S> strips(pass);
  const size_t begin = MisalignedElems<S>(strips.Output(0));
  const size_t end = count - (count - begin) % S::kLanes;
  const size_t last = count - S::kLanes;
  typename S::V head[1];
  typename S::V tail[1];
  if (begin != 0) CombineOne<S>(pass, 0, head);
  if (end != count) CombineOne<S>(pass, last, tail);
  if (pass.streaming && AllAligned<S>(strips, begin)) {
    RunBody<S, true>(strips, begin, end);
    S::Isa::EndStream();
  } else {
    RunBody<S, false>(strips, begin, end);
  }
  if (begin != 0) WriteAll<S, false>(strips, 0, head);
  if (end != count) WriteAll<S, false>(strips, last, tail);
}

// ---- The table ----------------------------------------------------------------------------------

// The two shapes of a pair of ranks get their own code: pointers in registers, no inner loop.
template <class Isa, class T, Op kOp, Scaling kScaling>
void RunReduce(const Pass& pass) {
  if constexpr (kOp == Op::kSum && (kScaling == Scaling::kNone || kScaling == Scaling::kPost) &&
                kIsFloat<typename Element<Isa, T>::Acc>) {
    if (pass.num_inputs == 2 && pass.num_outputs == 1) {
      return Run<Shape<Isa, T, T, T, kOp, kScaling, 2, 1>>(pass);
    }
    if (pass.num_inputs == 2 && pass.num_outputs == 2) {
      return Run<Shape<Isa, T, T, T, kOp, kScaling, 2, 2>>(pass);
    }
  }
  Run<Shape<Isa, T, T, T, kOp, kScaling>>(pass);
}

template <class Isa, class T, Op kOp>
constexpr void FillOp(Leaves& leaves, DType dtype) {
  Leaf(&row)[kNumScalings] = leaves.reduce[static_cast<int>(dtype)][static_cast<int>(kOp)];
  row[static_cast<int>(Scaling::kNone)] = RunReduce<Isa, T, kOp, Scaling::kNone>;
  if constexpr (kIsFloat<typename Element<Isa, T>::Acc>) {
    row[static_cast<int>(Scaling::kPost)] = RunReduce<Isa, T, kOp, Scaling::kPost>;
    row[static_cast<int>(Scaling::kPre)] = RunReduce<Isa, T, kOp, Scaling::kPre>;
    row[static_cast<int>(Scaling::kAll)] = RunReduce<Isa, T, kOp, Scaling::kAll>;
    row[static_cast<int>(Scaling::kDivide)] = RunReduce < Isa, T, kOp,
    kOp == Op::kSum ? Scaling::kDivide : Scaling::kAll > ;
  }
}

template <class Isa, class T>
constexpr void FillReduce(Leaves& leaves, DType dtype) {
  FillOp<Isa, T, Op::kSum>(leaves, dtype);
  FillOp<Isa, T, Op::kMin>(leaves, dtype);
  FillOp<Isa, T, Op::kMax>(leaves, dtype);
  FillOp<Isa, T, Op::kProduct>(leaves, dtype);
}

template <class Isa, class T, Op kOp>
constexpr void FillAdd(Leaves& leaves, DType dtype) {
  leaves.add[static_cast<int>(dtype)][static_cast<int>(kOp)] =
      Run<Shape<Isa, float, T, float, kOp, Scaling::kPre, 2, 1>>;
}

template <class Isa, class T>
constexpr void FillHops(Leaves& leaves, DType dtype) {
  const int type = static_cast<int>(dtype);
  leaves.begin[type] = Run<Shape<Isa, T, T, float, Op::kSum, Scaling::kPre, 1, 1>>;
  leaves.finish[type] = Run<Shape<Isa, float, T, T, Op::kSum, Scaling::kAll, 1, 1>>;
  FillAdd<Isa, T, Op::kSum>(leaves, dtype);
  FillAdd<Isa, T, Op::kMin>(leaves, dtype);
  FillAdd<Isa, T, Op::kMax>(leaves, dtype);
  FillAdd<Isa, T, Op::kProduct>(leaves, dtype);
}

// Bytes are the elements of a sum of one input: that is a copy.
template <class Isa>
void StreamCopy(std::byte* dst, const std::byte* src, size_t length_bytes) {
  using Bytes = Shape<Isa, uint8_t, uint8_t, uint8_t, Op::kSum, Scaling::kNone, 1, 1>;
  Run<Bytes>({&src, 1, &dst, 1, length_bytes, 1, 1, 1, 1, true});
}

template <class Isa>
constexpr Leaves MakeLeaves() {
  Leaves leaves{};
  FillReduce<Isa, float>(leaves, DType::kF32);
  FillReduce<Isa, double>(leaves, DType::kF64);
  FillReduce<Isa, F16>(leaves, DType::kF16);
  FillReduce<Isa, BF16>(leaves, DType::kBF16);
  FillReduce<Isa, uint8_t>(leaves, DType::kU8);
  FillReduce<Isa, int8_t>(leaves, DType::kI8);
  FillReduce<Isa, int32_t>(leaves, DType::kI32);
  FillReduce<Isa, int64_t>(leaves, DType::kI64);
  FillReduce<Isa, int16_t>(leaves, DType::kI16);
  FillReduce<Isa, uint16_t>(leaves, DType::kU16);
  FillReduce<Isa, uint32_t>(leaves, DType::kU32);
  FillReduce<Isa, uint64_t>(leaves, DType::kU64);
  FillHops<Isa, F16>(leaves, DType::kF16);
  FillHops<Isa, BF16>(leaves, DType::kBF16);
  leaves.stream_copy = StreamCopy<Isa>;
  return leaves;
}

}  // namespace
}  // namespace covey
#endif  // COVEY_OPS_KERNELS_LEAVES_INL_H_
