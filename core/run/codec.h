// The interface a codec implements, and the catalogue of those linked in.
//
// A codec makes float32 elements smaller before they travel and makes float32 of them again, in
// which they are reduced: codes are never added to each other. It is one file of ops/codecs,
// registers itself and is found by name. It keeps no state, allocates nothing; any thread.
//
// Rules, which tests/unit/ops/codecs proves for every codec of the catalogue:
//  codec-D1. Determinism: the bytes written are a function of the values of the parameters, the
//      elements and the seed, whatever the kernels; decoded elements are a function of those bytes.
//      So all ranks that decode the same bytes hold the same bits.
//  codec-D2. Layout: exactly form.EncodedBytes(count) bytes are written, padding as zeros, and
//      read. Blocks are coded on their own: coding a message in pieces that begin with a block is
//      coding it at once, but for random numbers. Random numbers are a function of the seed and of
//      the place in the message that is encoded at once, and of no element: two models that are
//      encoded with one seed are rounded alike.
//  codec-D3. |decoded - element| <= bound(values, largest magnitude of its block) where all
//      elements of the block are finite. A number that is not finite never becomes finite.
//  codec-D4. bound(values, a + b) <= bound(values, a) + bound(values, b), where it is finite: the
//      code of a sum errs no more than the codes of its terms.
#ifndef COVEY_CORE_RUN_CODEC_H_
#define COVEY_CORE_RUN_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/codec_descriptor.h"
#include "core/base/encoded_layout.h"
#include "core/base/kernels.h"
#include "core/base/status.h"

namespace covey {

struct Codec {
  const char* name;  // "int8"
  const char* card;  // for users: bytes per element, error, what happens to NaN; one line
  std::span<const CodecParameter> parameters;  // at most kMaxCodecParameters
  EncodedLayout (*form)(const CodecValues&);   // ENSURES: Possible()
  // Of codec-D3.
  double (*bound)(const CodecValues&, double largest_magnitude);
  // `seed` is for codecs that round at random: it differs between ranks, occurrences and pieces of
  // a message, and repeats when a run is repeated.
  void (*encode)(const Kernels&, const CodecValues&, std::span<const float> elements, uint64_t seed,
                 std::byte* out);
  void (*decode)(const Kernels&, const CodecValues&, const std::byte* in,
                 std::span<float> elements);
  // Whether it rounds at random, so that the expectation of an element is the element; null: no.
  bool (*draws)(const CodecValues&) = nullptr;
  // Why models as they are cannot be averaged by it; null, or an empty text: they can.
  const char* (*unfit_for_models)(const CodecValues&) = nullptr;
  // Whether it is biased, so that what it leaves out has to be sent with the next contribution.
  // Sums of contributions may be encoded by the others only, instead of each.
  bool feeds_back = false;
};

// All codecs, sorted by name.
std::span<const Codec* const> Codecs();
const Codec* FindCodec(std::string_view name);  // null: none of that name

struct CodecRegistration {
  explicit CodecRegistration(const Codec& codec);
};

// A codec with values for its parameters.
struct ChosenCodec {
  const Codec* codec = nullptr;
  CodecValues values{};
  EncodedLayout form;
  std::string text;  // with every value, so equal texts are equal codecs: "int8@block=256"

  bool Draws() const { return codec->draws != nullptr && codec->draws(values); }
};

// Reads the text of core/base/codec_descriptor.h. The error says what there is and what is nearest.
Status ParseCodec(std::string_view text, ChosenCodec* chosen);

// All codecs, then those of reference_codec.h: a JSON array of {name, card, parameters: [{name,
// default, minimum, maximum, multiple}]}.
std::string CodecsJson();

// The part of a contribution that a codec leaves out is lost to the others; error feedback adds it
// to the next contribution. residual[i] = elements[i] - decoded[i]; 0 where that is not finite.
// REQUIRES: !Draws(); equal sizes; no overlap.
void ResidualOf(const ChosenCodec& chosen, const Kernels& kernels, std::span<const float> elements,
                std::span<float> residual);

}  // namespace covey
#endif  // COVEY_CORE_RUN_CODEC_H_
