#include "core/run/reference_codec.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace covey {
namespace {

constexpr double kForgotten = 0.98;  // of the largest distance, with each one
constexpr double kSmallestStep = 0x1p-100, kLargestStep = 0x1p+100;

// Filled before main() by the registrations of ops/codecs, read-only from then on.
std::vector<const ReferenceCodec*>& Catalogue() {
  static std::vector<const ReferenceCodec*> catalogue;  // process-wide: registrations only
  return catalogue;
}

}  // namespace

ReferenceCodecRegistration::ReferenceCodecRegistration(const ReferenceCodec& codec) {
  Catalogue().push_back(&codec);
  AddCodecCard({.name = codec.name, .kind = CodecKind::kBeside, .parameters = codec.parameters});
}

std::span<const ReferenceCodec* const> ReferenceCodecs() { return Catalogue(); }

const ReferenceCodec* FindReferenceCodec(std::string_view name) {
  for (const ReferenceCodec* codec : Catalogue())
    if (codec->name == name) return codec;
  return nullptr;
}

void ReferenceStep::OnDistance(double distance) {
  if (!std::isfinite(distance)) return;
  largest_ = std::max(largest_ * kForgotten, distance);
  step_ = static_cast<float>(std::clamp(2 * largest_ / reach_, kSmallestStep, kLargestStep));
}

}  // namespace covey
