#include "core/train/clip_norm.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace covey {
namespace {

constexpr size_t kBlock = 1024;  // elements
constexpr double kTiny = 1e-6;

template <typename T>
double SumOfSquares(const std::byte* data, size_t count) {
  const T* numbers = reinterpret_cast<const T*>(data);
  double sum = 0;
  for (size_t i = 0; i < count; ++i)
    sum += static_cast<double>(numbers[i]) * static_cast<double>(numbers[i]);
  return sum;
}

}  // namespace

double GradientNorm(const TrainerLayout& layout, const std::byte* gradients,
                    const Kernels& kernels) {
  alignas(8) std::array<std::byte, kBlock * sizeof(double)> block;
  double sum = 0;
  for (const TrainerLayout::Piece& piece : layout.pieces()) {
    const bool is_wide = AccumulatorOf(piece.dtype) == DType::kF64;
    const auto count = static_cast<size_t>(piece.count);
    for (size_t at = 0; at < count; at += kBlock) {
      const size_t elems = std::min(kBlock, count - at);
      kernels.begin({.dtype = piece.dtype, .op = Op::kSum},
                    gradients + piece.offset_bytes + at * SizeOf(piece.dtype), block.data(), elems);
      sum += is_wide ? SumOfSquares<double>(block.data(), elems)
                     : SumOfSquares<float>(block.data(), elems);
    }
  }
  return std::sqrt(sum);
}

void ClipNorm(const TrainerLayout& layout, double limit, const Kernels& kernels,
              std::byte* gradients) {
  const double scale = limit / (GradientNorm(layout, gradients, kernels) + kTiny);
  if (!(scale < 1)) return;
  for (const TrainerLayout::Piece& piece : layout.pieces()) {
    std::byte* data = gradients + piece.offset_bytes;
    const std::byte* from = data;
    kernels.reduce({.dtype = piece.dtype, .op = Op::kSum, .prescale = scale}, {&from, 1},
                   {&data, 1}, static_cast<size_t>(piece.count), Stores::kCached);
  }
}

}  // namespace covey
