// How the values of a method's parameters are read and written. Pure; any thread.
#ifndef COVEY_CORE_METHOD_NOTATION_H_
#define COVEY_CORE_METHOD_NOTATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/method/method.h"

namespace covey {

// Nothing when `text` is no such value. Negative admissions are not written as numbers.
std::optional<int64_t> ReadAs(Notation notation, std::string_view text);

// What ReadAs reads as `value`; equal values give equal texts.
std::string WriteAs(Notation notation, int64_t value);

// Whether its values are two words.
bool IsOneOfTwo(Notation notation);

}  // namespace covey
#endif  // COVEY_CORE_METHOD_NOTATION_H_
