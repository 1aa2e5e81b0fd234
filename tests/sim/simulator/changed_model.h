// A local update of a simulated model in flat memory.
#ifndef COVEY_TESTS_SIM_SIMULATOR_CHANGED_MODEL_H_
#define COVEY_TESTS_SIM_SIMULATOR_CHANGED_MODEL_H_

#include <cstring>

#include "core/base/rng.h"
#include "core/base/wire.h"
#include "core/partial/layout.h"

namespace covey {

template <typename T>
void AddTo(std::byte* at, double change) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  value += static_cast<T>(change);
  std::memcpy(at, &value, sizeof(value));
}

// Adds a drawn number to each element, float32 or float64. `model` is as long as the layout says.
inline void ChangeAtRandom(const RoundLayout& layout, Rng* rng, Bytes* model) {
  for (const RoundLayout::Tile& tile : layout.tiles()) {
    for (size_t i = 0; i < tile.count; ++i) {
      std::byte* at = model->data() + tile.offset_bytes + i * SizeOf(tile.dtype);
      const double change = static_cast<double>(rng->Below(2000)) / 7.0 - 140.0;
      if (tile.dtype == DType::kF32)
        AddTo<float>(at, change);
      else
        AddTo<double>(at, change);
    }
  }
}

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_CHANGED_MODEL_H_
