// Two parameters that all methods which average models in pairs have.
#ifndef COVEY_OPS_METHODS_PAIRING_H_
#define COVEY_OPS_METHODS_PAIRING_H_

#include "core/method/method.h"
#include "core/method/shared_parameters.h"

namespace covey {

inline constexpr MethodParameter kPairSeed = {.name = "seed",
                                              .letter = "",
                                              .unit = "",
                                              .standard = 1,
                                              .minimum = 0,
                                              .maximum = int64_t{1} << 40,
                                              .help = "seed of the random numbers"};
inline constexpr MethodParameter kPairMaxWait = {
    .name = "max_wait",
    .letter = "",
    .unit = "time",
    .standard = 60 * kSecond,
    .minimum = kMillisecond,
    .maximum = 24 * 3600 * kSecond,
    .help =
        "longest wait of finish(), and of each of warmup_steps, for the other ranks; nothing "
        "else waits",
    .syntax = ValueSyntax::kTime};

}  // namespace covey
#endif  // COVEY_OPS_METHODS_PAIRING_H_
