#include "tests/sim/simulator/pair_learning.h"

#include <cstring>

namespace covey {
namespace {

template <typename Number>
void Add(double progress, std::byte* at) {
  Number value;
  std::memcpy(&value, at, sizeof(value));
  value += static_cast<Number>(progress);
  std::memcpy(at, &value, sizeof(value));
}

}  // namespace

std::vector<double> LearnWhole(const RoundLayout& layout, Rng* rng, std::vector<std::byte>* model) {
  std::vector<double> progress;
  for (const RoundLayout::Tile& tile : layout.tiles())
    for (size_t i = 0; i < tile.count; ++i) {
      std::byte* at = model->data() + tile.offset_bytes + i * SizeOf(tile.dtype);
      progress.push_back(1 + static_cast<double>(rng->Below(200)));
      tile.dtype == DType::kF32 ? Add<float>(progress.back(), at)
                                : Add<double>(progress.back(), at);
    }
  return progress;
}

}  // namespace covey
