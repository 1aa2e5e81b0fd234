// The parameters of every method beside its own. For the files of method.h.
#ifndef COVEY_CORE_METHOD_METHOD_COMMON_H_
#define COVEY_CORE_METHOD_METHOD_COMMON_H_

#include <iterator>

#include "core/method/method.h"

namespace covey {

inline constexpr int64_t kManySteps = 1000000000;
inline constexpr int64_t kGreatNorm = 1000000000000000;  // 1e9
inline constexpr MethodParameter kCommon[] = {
    {.name = "warmup_steps",
     .letter = "",
     .unit = "steps",
     .standard = 0,
     .minimum = 0,
     .maximum = kManySteps,
     .help = "first steps, in which gradients are averaged over all ranks as by allreduce; no step "
             "waits longer than the method's max_wait, if it has one: then a missing rank is left "
             "out until it keeps up again, and its gradient counts later, once"},
    {.name = "clip_norm",
     .letter = "",
     .unit = "",
     .standard = 0,
     .minimum = 0,
     .maximum = kGreatNorm,
     .help =
         "the largest norm, over all parameters, of the gradients of an update: longer ones are "
         "scaled down to it. Averaged gradients once for each update, alike on all ranks; where "
         "models are averaged, each rank's own before its own step. off: any norm",
     .syntax = ValueSyntax::kNorm},
};
enum Common : uint8_t { kWarmup, kClip, kNumCommon };
static_assert(std::size(kCommon) == kNumCommon);

// The setting of methods that take a codec. Its value is a text, read by method_codec.cc.
inline constexpr const char* kCodecSetting = "codec";

// The codec that `text` names, as `method` can use it, with every value and '+' for ','; empty for
// "off". The error says why it is none, and lists those there are.
Status ReadMethodCodec(const Method& method, std::string_view text, std::string* full);
// Whether the settings go with a codec.
Status CheckMethodCodec(const MethodChoice& choice);
// The possible values, in words.
const char* CodecHelp(CodecUse use);

}  // namespace covey
#endif  // COVEY_CORE_METHOD_METHOD_COMMON_H_
