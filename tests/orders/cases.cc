#include "tests/orders/cases.h"

namespace covey {

Mappings::Mappings(Execution* execution, int threads, size_t length_bytes) {
  constexpr size_t kLine = 64;
  const size_t words = (length_bytes + 2 * kLine) / sizeof(uint64_t);
  for (int t = 0; t <= threads; ++t) {
    std::vector<uint64_t>& memory = memory_.emplace_back(words);
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    mappings_.push_back(reinterpret_cast<std::byte*>((at + kLine - 1) / kLine * kLine));
  }
  execution->Share(mappings_, length_bytes);
}

}  // namespace covey
