#include "core/replicated/quorum.h"

#include <cstddef>

namespace covey {

bool IsQuorum(const std::vector<bool>& in, const std::vector<bool>& lost) {
  const bool is_even = in.size() % 2 == 0;
  size_t halves = 0;
  bool are_all = true;
  for (size_t i = 0; i < in.size(); ++i) {
    are_all &= in[i] || lost[i];
    // replicated-W4: of an even number the first replica counts one half more: one half decides.
    if (in[i]) halves += i == 0 && is_even ? 3 : 2;
  }
  return are_all || 2 * halves > 2 * in.size() + (is_even ? 1 : 0);
}

}  // namespace covey
