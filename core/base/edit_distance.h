// The word that a mistyped one stands for. Pure; any thread.
#ifndef COVEY_CORE_BASE_EDIT_DISTANCE_H_
#define COVEY_CORE_BASE_EDIT_DISTANCE_H_

#include <cstddef>
#include <string_view>

namespace covey {

// Levenshtein's distance: insertions, deletions and replacements from a to b.
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace covey
#endif  // COVEY_CORE_BASE_EDIT_DISTANCE_H_
