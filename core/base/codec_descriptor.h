// The names and settings of codecs: the text of a codec, for code that reads it and encodes
// nothing.
//
// NAME, NAME@PARAMETER=NUMBER,..., or NAME@NUMBER, which is of the first parameter; PARAMETER alone
// switches on one that is 0 or 1: "bf16@random". Within the text of a method, where a comma ends a
// setting, '+' stands for it: "topk@bits=2+block=512".
// Any thread: the catalogue is constant once main() runs.
#ifndef COVEY_CORE_BASE_CODEC_DESCRIPTOR_H_
#define COVEY_CORE_BASE_CODEC_DESCRIPTOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace covey {

inline constexpr size_t kMaxCodecParameters = 4;
using CodecValues = std::array<int64_t, kMaxCodecParameters>;  // in the order of the parameters

// A whole number that a user may choose: `int8@block=256`.
struct CodecParameter {
  const char* name;
  int64_t standard;  // when it is not given
  int64_t minimum;
  int64_t maximum;
  int64_t multiple;
};

enum class CodecKind : uint8_t {
  kAlone,   // decodes what it has encoded, and nothing else: core/run/codec.h
  kBeside,  // decodes beside something near that the receiver has: core/run/reference_codec.h
};

// The data that a codec is asked to encode.
enum class CodecUse : uint8_t {
  kNone,
  kGradients,  // a sum of contributions, each of which is encoded by itself
  kModels,     // likewise, of what models have moved since they were equal
  kPairs,      // models as they are, of two ranks that average
  kNeighbors,  // models as they are, of ranks that average with several others at once
};

struct CodecDescriptor {
  const char* name;  // "int8"
  CodecKind kind;
  std::span<const CodecParameter> parameters;
  // Why models as they are cannot be averaged by it; null, or an empty text: they can.
  const char* (*unfit_for_models)(const CodecValues&) = nullptr;
};

// All that can be used so, with the values they have when none are given; sorted by name.
std::vector<CodecDescriptor> CodecCards(CodecUse use);

// Before main().
void AddCodecCard(const CodecDescriptor& card);

struct CodecText {
  const char* name = nullptr;
  CodecValues values{};
  std::string text;  // with every value, so equal texts are equal codecs: "int8@block=256"
};
// The error says what there is for this use and what is nearest, and of one that is for another use
// why it is none. REQUIRES: use is not kNone.
Status ReadCodecText(std::string_view text, CodecUse use, CodecText* read);

}  // namespace covey
#endif  // COVEY_CORE_BASE_CODEC_DESCRIPTOR_H_
