// The work of one thread of a kernel: its share of the elements, 16 bytes at a time where addresses
// allow it, the rest one by one. Compiled for the card by kernels.cu and for the host by tests.
//
// Threads take turns over the elements (a grid-stride loop), so any number of them does all; no two
// write the same element, and each has read what it needs of an element before it writes it.
#ifndef COVEY_OPS_DEVICES_CUDA_LOOPS_H_
#define COVEY_OPS_DEVICES_CUDA_LOOPS_H_

#include "ops/devices/cuda/element.h"
#include "ops/devices/cuda/kernel_args.h"

namespace covey::cuda {

inline constexpr unsigned kQuadBytes = 16;

// Which of the threads that work together this is.
struct Share {
  uint64_t thread;
  uint64_t threads;
};

// The bytes that are loaded and stored at once, of any elements.
struct alignas(kQuadBytes) [[gnu::may_alias]] Quad {
  uint32_t words[4];
};
template <class T, unsigned kCount>
struct alignas(kCount > 1 ? kQuadBytes : sizeof(T)) Elems {
  T of[kCount];
};
template <class T, unsigned kCount>
struct Quads {
  Quad of[kCount * sizeof(T) / kQuadBytes];
};
template <class T>
constexpr unsigned ElemsOfQuad() {
  return kQuadBytes / sizeof(T);
}

// kCount elements from `index` on: 1, or as many as fill quads, which are loaded whole.
// REQUIRES (more than 1): the first is at a multiple of 16.
template <class T, unsigned kCount>
constexpr Elems<T, kCount> Load(uint64_t address, uint64_t index) {
  if constexpr (kCount > 1) {
    Quads<T, kCount> quads = {};
    const uint64_t first = index / ElemsOfQuad<T>();
    for (unsigned q = 0; q < kCount / ElemsOfQuad<T>(); ++q)
      quads.of[q] = reinterpret_cast<const Quad*>(address)[first + q];
    return __builtin_bit_cast(Elems<T, kCount>, quads);
  } else {
    return {{reinterpret_cast<const T*>(address)[index]}};
  }
}

// As a pointer and an index: of a sum of integers nvcc (13.0) stores element by element.
template <class T, unsigned kCount>
constexpr void Store(uint64_t address, uint64_t index, const Elems<T, kCount>& elems) {
  if constexpr (kCount > 1) {
    const auto quads = __builtin_bit_cast(Quads<T, kCount>, elems);
    const uint64_t first = index / ElemsOfQuad<T>();
    for (unsigned q = 0; q < kCount / ElemsOfQuad<T>(); ++q)
      reinterpret_cast<Quad*>(address)[first + q] = quads.of[q];
  } else {
    reinterpret_cast<T*>(address)[index] = elems.of[0];
  }
}

// Does `part` of as many elements as fill quads, then of one: part(count, index), where count is a
// constant.
template <unsigned kCount>
struct Count {
  static constexpr unsigned kValue = kCount;
};
template <unsigned kCount, class Part>
constexpr void ForShare(uint64_t count_elems, bool is_aligned, Share share, const Part& part) {
  const uint64_t parts = is_aligned ? count_elems / kCount : 0;
  for (uint64_t p = share.thread; p < parts; p += share.threads) part(Count<kCount>{}, p * kCount);
  for (uint64_t i = parts * kCount + share.thread; i < count_elems; i += share.threads)
    part(Count<1>{}, i);
}

// ---- covey_reduce ----

template <class T, unsigned kOp>
struct ReducePart {
  const CudaReduceArgs& args;

  template <unsigned kCount>
  constexpr void operator()(Count<kCount>, uint64_t index) const {
    Elems<Acc<T>, kCount> sum = {};
    const Elems<T, kCount> first = Load<T, kCount>(args.inputs[0], index);
    for (unsigned e = 0; e < kCount; ++e) sum.of[e] = Scale(Read(first.of[e]), args.prescale);
    for (uint32_t k = 1; k < args.num_inputs; ++k) {
      const Elems<T, kCount> next = Load<T, kCount>(args.inputs[k], index);
      for (unsigned e = 0; e < kCount; ++e)
        sum.of[e] = Combine<kOp>(sum.of[e], Scale(Read(next.of[e]), args.prescale));
    }
    Elems<T, kCount> result = {};
    for (unsigned e = 0; e < kCount; ++e)
      result.of[e] = Write<T>(Canonical(Divide(Scale(sum.of[e], args.postscale), args.divisor)));
    for (uint32_t k = 0; k < args.num_outputs; ++k)
      Store<T, kCount>(args.outputs[k], index, result);
  }
};

// Calls f(Count<op>): the code of each element does not ask which it is.
template <class F>
constexpr void WithOp(uint32_t op, const F& f) {
  if (op == kSum) return f(Count<kSum>{});
  if (op == kMin) return f(Count<kMin>{});
  if (op == kMax) return f(Count<kMax>{});
  f(Count<kProduct>{});
}

template <class T>
constexpr void ReduceShare(const CudaReduceArgs& args, Share share) {
  WithOp(args.op, [&](auto op) {
    ForShare<ElemsOfQuad<T>()>(args.count_elems, args.is_aligned != 0, share,
                               ReducePart<T, decltype(op)::kValue>{args});
  });
}

// ---- Many tensors at once ----

constexpr bool IsAligned(const CudaRow& row) { return (row.to | row.from) % kQuadBytes == 0; }

template <class From, class To>
struct ConvertPart {
  const CudaRow& row;
  double scale;

  template <unsigned kCount>
  constexpr void operator()(Count<kCount>, uint64_t index) const {
    const Elems<From, kCount> from = Load<From, kCount>(row.from, index);
    Elems<To, kCount> to = {};
    for (unsigned e = 0; e < kCount; ++e)
      to.of[e] = Write<To>(Canonical(Scale(Read(from.of[e]), scale)));
    Store<To, kCount>(row.to, index, to);
  }
};

// covey_scale, where From is To, and covey_cast.
template <class From, class To>
constexpr void ConvertShare(const CudaRow& row, double scale, Share share) {
  constexpr unsigned kCount =
      ElemsOfQuad<From>() > ElemsOfQuad<To>() ? ElemsOfQuad<From>() : ElemsOfQuad<To>();
  ForShare<kCount>(row.count_elems, IsAligned(row), share, ConvertPart<From, To>{row, scale});
}

template <class T, unsigned kOp>
struct AddPart {
  const CudaRow& row;
  double scale;

  template <unsigned kCount>
  constexpr void operator()(Count<kCount>, uint64_t index) const {
    const Elems<T, kCount> from = Load<T, kCount>(row.from, index);
    Elems<Acc<T>, kCount> sum = Load<Acc<T>, kCount>(row.to, index);
    for (unsigned e = 0; e < kCount; ++e)
      sum.of[e] = Canonical(Combine<kOp>(sum.of[e], Scale(Read(from.of[e]), scale)));
    Store<Acc<T>, kCount>(row.to, index, sum);
  }
};

template <class T>
constexpr void AddShare(const CudaRow& row, uint32_t op, double scale, Share share) {
  WithOp(op, [&](auto op_of) {
    ForShare<ElemsOfQuad<T>()>(row.count_elems, IsAligned(row), share,
                               AddPart<T, decltype(op_of)::kValue>{row, scale});
  });
}

}  // namespace covey::cuda
#endif  // COVEY_OPS_DEVICES_CUDA_LOOPS_H_
