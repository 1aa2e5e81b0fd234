#include "core/run/near_codec.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace covey {
namespace {

constexpr double kForgotten = 0.98;  // of the largest distance, with each one
constexpr double kSmallestStep = 0x1p-100, kLargestStep = 0x1p+100;

// Filled before main() by the registrations of ops/codecs, read-only from then on.
std::vector<const NearCodec*>& Catalogue() {
  static std::vector<const NearCodec*> catalogue;  // process-wide: registrations only
  return catalogue;
}

}  // namespace

NearCodecRegistration::NearCodecRegistration(const NearCodec& codec) {
  Catalogue().push_back(&codec);
  AddCodecCard({.name = codec.name, .kind = CodecKind::kBeside, .parameters = codec.parameters});
}

std::span<const NearCodec* const> NearCodecs() { return Catalogue(); }

const NearCodec* FindNearCodec(std::string_view name) {
  for (const NearCodec* codec : Catalogue())
    if (codec->name == name) return codec;
  return nullptr;
}

void NearStep::OnDistance(double distance) {
  if (!std::isfinite(distance)) return;
  largest_ = std::max(largest_ * kForgotten, distance);
  step_ = static_cast<float>(std::clamp(2 * largest_ / reach_, kSmallestStep, kLargestStep));
}

}  // namespace covey
