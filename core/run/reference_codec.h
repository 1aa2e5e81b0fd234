// The interface a codec implements that decodes beside something near: the receiver's own model is
// the reference, so that what travels needs no scale of its own, and its error no more than the
// step it was encoded with.
//
// Elements are coded in chunks, each with its step, on a lattice of that step: an element is
// rounded to k steps, k at random one of the two whole numbers it lies between. Rules:
//  codec-N1. Determinism: as codec-D1 of core/run/codec.h. k is rounding element/step + u down,
//      where u depends on seed and place alone: two models that are encoded with one seed and step
//      differ by the difference of their elements, right in expectation, wrong by less than a step;
//      equal elements do not differ at all.
//  codec-N2. A chunk whose elements all lie within reach of their references is decoded to k times
//      the step. One with an element that does not is not `is_right`, but for one in 2^(64 - bits);
//      neither is one with a NaN or an infinity.
// Keeps no state, allocates nothing; any thread.
#ifndef COVEY_CORE_RUN_REFERENCE_CODEC_H_
#define COVEY_CORE_RUN_REFERENCE_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/codec_descriptor.h"
#include "core/base/kernels.h"

namespace covey {

// The outcome for one chunk.
struct ReferenceChunk {
  bool is_right = false;  // else `to` has something else, and the chunk is to be sent whole
  double distance = 0;    // the largest |decoded - reference|
};

struct ReferenceCodec {
  const char* name;  // "lattice"
  const char* card;  // for users: for what, bytes per element, error, what happens to NaN; one line
  std::span<const CodecParameter> parameters;
  size_t chunk_elems;  // of a chunk, at most
  size_t (*chunk_bytes)(const CodecValues&, size_t count);
  double (*reach)(const CodecValues&);  // how far an element may be from its reference, in steps
  // One chunk. REQUIRES: step > 0.
  void (*encode)(const Kernels&, const CodecValues&, float step, std::span<const float> elements,
                 uint64_t seed, std::byte* out);
  // `to` may be the reference.
  ReferenceChunk (*decode)(const Kernels&, const CodecValues&, const std::byte* in,
                           std::span<const float> reference, std::span<float> to);
};

std::span<const ReferenceCodec* const> ReferenceCodecs();
const ReferenceCodec* FindReferenceCodec(std::string_view name);  // null: none of that name

struct ReferenceCodecRegistration {
  explicit ReferenceCodecRegistration(const ReferenceCodec& codec);
};

// The step of one chunk, which follows the distances that there are: twice the largest of late is
// within reach.
class ReferenceStep {
 public:
  explicit ReferenceStep(double reach) : reach_(reach) {}

  // The least there is until a distance is known.
  float step() const { return step_; }
  // Of two that were near enough, or were sent whole.
  void OnDistance(double distance);

 private:
  double reach_;
  float step_ = 0x1p-100f;
  double largest_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_REFERENCE_CODEC_H_
