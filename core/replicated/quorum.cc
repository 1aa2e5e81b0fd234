#include "core/replicated/quorum.h"

#include <cstddef>

namespace covey {

bool IsQuorum(const std::vector<bool>& in, const std::vector<bool>& lost, Half half) {
  const bool is_even = in.size() % 2 == 0;
  const bool has_first = is_even && half == Half::kOfTheFirst;
  // replicated-W22: in a job with a witness that half is the witness's.
  size_t halves = is_even && half == Half::kWithThem ? 1 : 0;
  bool are_all = true;
  for (size_t i = 0; i < in.size(); ++i) {
    are_all &= in[i] || lost[i];
    // replicated-W4: of an even number the first replica counts one half more: one half decides.
    if (in[i]) halves += i == 0 && has_first ? 3 : 2;
  }
  return are_all || 2 * halves > 2 * in.size() + (is_even ? 1 : 0);
}

}  // namespace covey
