// The C API over core/base/finite.h and core/run/codec.h.
#include "core/api/c_api.h"
#include "core/api/covey_values.h"
#include "core/base/finite.h"
#include "core/run/codec.h"

namespace covey {
namespace {

Status FindChosen(const char* text, bool feeds_back, ChosenCodec* chosen) {
  if (text == nullptr) return Status::InvalidArgument("a codec is needed, not NULL");
  RETURN_IF_ERROR(ParseCodec(text, chosen));
  if (feeds_back && chosen->Draws())
    return Status::Unsupported("codec " + chosen->text +
                               " rounds at random and is right in expectation: it needs no error "
                               "feedback");
  return Status::Ok();
}

Status CodecResidual(const char* text, const float* contribution, int64_t count, float* residual) {
  ChosenCodec chosen;
  RETURN_IF_ERROR(FindChosen(text, true, &chosen));
  if (count < 0 || (count > 0 && (contribution == nullptr || residual == nullptr)))
    return Status::InvalidArgument("a count that is not negative, and memory, are needed");
  const auto size = static_cast<size_t>(count);
  ResidualOf(chosen, BestKernels(), {contribution, size}, {residual, size});
  return Status::Ok();
}

}  // namespace
}  // namespace covey

int64_t covey_count_not_finite(covey_dtype dtype, const void* data, int64_t count) {
  if (dtype < 0 || dtype >= covey::kNumDTypes || data == nullptr || count <= 0) return 0;
  const auto type = static_cast<covey::DType>(dtype);
  return static_cast<int64_t>(
      covey::CountNotFinite(type, static_cast<const std::byte*>(data), static_cast<size_t>(count)));
}

void covey_copy_past_caches(void* const* to, void* const* from, const int64_t* lengths_bytes,
                            size_t count) {
  for (size_t i = 0; i < count; ++i)
    covey::BestKernels().copy(static_cast<std::byte*>(to[i]), static_cast<std::byte*>(from[i]),
                              static_cast<size_t>(lengths_bytes[i]), covey::Stores::kStreaming);
}

size_t covey_codecs(char* json, size_t capacity) {
  return covey::Fill(covey::CodecsJson(), json, capacity);
}

covey_code covey_codec_check(const char* codec, int32_t feeds_back, covey_error* error) {
  covey::ChosenCodec chosen;
  return covey::Report(covey::FindChosen(codec, feeds_back != 0, &chosen), error);
}

covey_code covey_codec_residual(const char* codec, const float* contribution, int64_t count,
                                float* residual, covey_error* error) {
  return covey::Report(covey::CodecResidual(codec, contribution, count, residual), error);
}
