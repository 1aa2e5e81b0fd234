// The types of a method's settings, as a plan has them. Plain values.
#ifndef COVEY_CORE_METHOD_SETTINGS_H_
#define COVEY_CORE_METHOD_SETTINGS_H_

#include <cstdint>

#include "core/base/types.h"

namespace covey {

// Which ranks must have come before a version fires.
struct AdmitRule {
  enum class Kind : uint8_t {
    kFraction,  // `permille` of the ranks, rounded up
    kCount,     // `count` ranks, whichever
    kDrawn,     // one of `count` ranks that are drawn for each version
  };
  Kind kind = Kind::kFraction;
  int32_t count = 0;
  int32_t permille = 1000;

  static constexpr AdmitRule All() { return {}; }
  // How many of `size` ranks are waited for; of drawn ones it is not known which.
  constexpr int32_t Needed(int32_t size) const {
    if (kind == Kind::kDrawn) return 1;
    if (kind == Kind::kCount) return count < size ? count : size;
    return static_cast<int32_t>((int64_t{permille} * size + 999) / 1000);
  }
  friend constexpr bool operator==(const AdmitRule&, const AdmitRule&) = default;
};

// A limit of a wait.
struct Duration {
  enum class Kind : uint8_t {
    kOff,   // there is none
    kAuto,  // by how long the rank's own steps take
    kTime,  // `time`
  };
  Kind kind = Kind::kOff;
  Time time = 0;

  static constexpr Duration Auto() { return {.kind = Kind::kAuto}; }
  static constexpr Duration Of(Time time) { return {.kind = Kind::kTime, .time = time}; }
  friend constexpr bool operator==(const Duration&, const Duration&) = default;
};

}  // namespace covey
#endif  // COVEY_CORE_METHOD_SETTINGS_H_
