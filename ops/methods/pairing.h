// What methods that average models in pairs have in common: two of their parameters.
#ifndef COVEY_OPS_METHODS_PAIRING_H_
#define COVEY_OPS_METHODS_PAIRING_H_

#include "core/method/method.h"

namespace covey {

inline constexpr MethodParameter kPairSeed = {.name = "seed",
                                              .letter = "",
                                              .unit = "",
                                              .standard = 1,
                                              .minimum = 0,
                                              .maximum = int64_t{1} << 40,
                                              .help = "of what is drawn at random"};
inline constexpr MethodParameter kPairMaxWait = {
    .name = "max_wait",
    .letter = "",
    .unit = "time",
    .standard = 60 * kSecond,
    .minimum = kMillisecond,
    .maximum = 24 * 3600 * kSecond,
    .help = "how long finish(), and each of warmup_steps, waits for the others; nothing else does",
    .syntax = ValueSyntax::kTime};

}  // namespace covey
#endif  // COVEY_OPS_METHODS_PAIRING_H_
