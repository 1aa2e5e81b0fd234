// Parameters that several methods have: name, range, default and syntax stand here, the help with
// each method. For ops/methods.
#ifndef COVEY_CORE_METHOD_SHARED_PARAMETERS_H_
#define COVEY_CORE_METHOD_SHARED_PARAMETERS_H_

#include "core/method/method.h"

namespace covey {

// A smaller `minimum` allows drawn ranks too, see AdmitOf.
constexpr MethodParameter AdmitParameter(int64_t standard, int64_t minimum, const char* help) {
  return {.name = "admit",
          .letter = "",
          .unit = "ranks",
          .standard = standard,
          .minimum = minimum,
          .maximum = 1 << 20,
          .help = help,
          .syntax = ValueSyntax::kAdmission};
}

constexpr MethodParameter GraceParameter(const char* help) {
  return {.name = "grace",
          .letter = "",
          .unit = "time",
          .standard = kAutoTime,
          .minimum = kAutoTime,
          .maximum = 3600 * kSecond,
          .help = help,
          .syntax = ValueSyntax::kTimeOrAuto};
}

// `standard` is kOff with kLimit, and kAutoTime with kTimeOrAuto.
constexpr MethodParameter MaxWaitParameter(int64_t standard, ValueSyntax syntax, const char* help) {
  return {.name = "max_wait",
          .letter = "",
          .unit = "time",
          .standard = standard,
          .minimum = kAutoTime,
          .maximum = 24 * 3600 * kSecond,
          .help = help,
          .syntax = syntax};
}

constexpr MethodParameter LogParameter(const char* help) {
  return {.name = "log",
          .letter = "",
          .unit = "results",
          .standard = kAuto,
          .minimum = kAuto,
          .maximum = 16384,
          .help = help,
          .syntax = ValueSyntax::kOrAuto};
}

constexpr MethodParameter MaxStalenessParameter(const char* unit, const char* help) {
  return {.name = "max_staleness",
          .letter = "L",
          .unit = unit,
          .standard = 32,
          .minimum = 1,
          .maximum = 1 << 30,
          .help = help};
}

constexpr MethodParameter ProgressParameter(const char* help) {
  return {.name = "progress",
          .letter = "",
          .unit = "",
          .standard = 0,
          .minimum = 0,
          .maximum = 1,
          .help = help,
          .syntax = ValueSyntax::kProgress};
}

constexpr MethodParameter SeedParameter(const char* help) {
  return {.name = "seed",
          .letter = "",
          .unit = "",
          .standard = 1,
          .minimum = 0,
          .maximum = int64_t{1} << 40,
          .help = help};
}

inline constexpr MethodParameter kCrossEvery = {
    .name = "cross_every",
    .letter = "",
    .unit = "rounds",
    .standard = 1,
    .minimum = 1,
    .maximum = kMostCrossEvery,
    .help =
        "a rank averages with ranks of its own host, and in every so-many-th round with ranks "
        "of other hosts; 1: hosts make no difference",
    .syntax = ValueSyntax::kEvery};

}  // namespace covey
#endif  // COVEY_CORE_METHOD_SHARED_PARAMETERS_H_
