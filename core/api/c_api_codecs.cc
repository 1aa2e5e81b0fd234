// The C API of codecs by themselves: core/api/covey_values.h over core/run/codec.h and
// reference_codec.h.
#include <algorithm>

#include "core/api/c_api.h"
#include "core/api/covey_values.h"
#include "core/run/codec.h"
#include "core/run/reference_codec.h"

namespace covey {
namespace {

// Of either kind.
struct Coder {
  ChosenCodec alone;
  const ReferenceCodec* near = nullptr;  // null: it is `alone`
  CodecValues values{};

  static Status Find(const char* text, int64_t count, Coder* coder);
  size_t Bytes(size_t count) const;
  void Encode(std::span<const float> elements, uint64_t seed, float step, std::byte* codes) const;
  bool Decode(const std::byte* codes, std::span<float> elements) const;
};

Status Coder::Find(const char* text, int64_t count, Coder* coder) {
  if (text == nullptr) return Status::InvalidArgument("a codec is needed, not NULL");
  if (count < 0) return Status::InvalidArgument("a count that is not negative is needed");
  CodecText read;
  const bool is_near = ReadCodecText(text, CodecUse::kPairs, &read).ok();
  coder->near = is_near ? FindReferenceCodec(read.name) : nullptr;
  coder->values = read.values;
  return coder->near != nullptr ? Status::Ok() : ParseCodec(text, &coder->alone);
}

size_t Coder::Bytes(size_t count) const {
  if (near == nullptr) return alone.form.EncodedBytes(count);
  const size_t whole = count / near->chunk_elems;
  const size_t rest = count % near->chunk_elems;
  return whole * near->chunk_bytes(values, near->chunk_elems) +
         (rest > 0 ? near->chunk_bytes(values, rest) : 0);
}

void Coder::Encode(std::span<const float> elements, uint64_t seed, float step,
                   std::byte* codes) const {
  if (near == nullptr)
    return alone.codec->encode(BestKernels(), alone.values, elements, seed, codes);
  for (size_t at = 0; at < elements.size(); at += near->chunk_elems) {
    const auto chunk = elements.subspan(at, std::min(near->chunk_elems, elements.size() - at));
    near->encode(BestKernels(), values, step, chunk, seed + at, codes);
    codes += near->chunk_bytes(values, chunk.size());
  }
}

bool Coder::Decode(const std::byte* codes, std::span<float> elements) const {
  if (near == nullptr) {
    alone.codec->decode(BestKernels(), alone.values, codes, elements);
    return true;
  }
  bool is_right = true;
  for (size_t at = 0; at < elements.size(); at += near->chunk_elems) {
    const auto chunk = elements.subspan(at, std::min(near->chunk_elems, elements.size() - at));
    is_right &= near->decode(BestKernels(), values, codes, chunk, chunk).is_right;
    codes += near->chunk_bytes(values, chunk.size());
  }
  return is_right;
}

Status Encode(const char* text, const float* elements, int64_t count, uint64_t seed, float step,
              void* codes) {
  Coder coder;
  RETURN_IF_ERROR(Coder::Find(text, count, &coder));
  if (count > 0 && (elements == nullptr || codes == nullptr))
    return Status::InvalidArgument("memory is needed, not NULL");
  if (coder.near != nullptr && !(step > 0))
    return Status::InvalidArgument("a codec that decodes beside something near needs a step");
  coder.Encode({elements, static_cast<size_t>(count)}, seed, step, static_cast<std::byte*>(codes));
  return Status::Ok();
}

Status Decode(const char* text, const void* codes, int64_t count, float* elements) {
  Coder coder;
  RETURN_IF_ERROR(Coder::Find(text, count, &coder));
  if (count > 0 && (elements == nullptr || codes == nullptr))
    return Status::InvalidArgument("memory is needed, not NULL");
  const auto* bytes = static_cast<const std::byte*>(codes);
  if (coder.Decode(bytes, {elements, static_cast<size_t>(count)})) return Status::Ok();
  return Status::Mismatch("what was encoded lies too far from the reference, or is not finite");
}

}  // namespace
}  // namespace covey

covey_code covey_codec_bytes(const char* codec, int64_t count, int64_t* bytes, covey_error* error) {
  covey::Coder coder;
  covey::Status found = covey::Coder::Find(codec, count, &coder);
  if (bytes == nullptr) found = covey::Status::InvalidArgument("bytes is NULL");
  if (found.ok()) *bytes = static_cast<int64_t>(coder.Bytes(static_cast<size_t>(count)));
  return covey::Report(found, error);
}

covey_code covey_codec_encode(const char* codec, const float* elements, int64_t count,
                              uint64_t seed, float step, void* codes, covey_error* error) {
  return covey::Report(covey::Encode(codec, elements, count, seed, step, codes), error);
}

covey_code covey_codec_decode(const char* codec, const void* codes, int64_t count, float* elements,
                              covey_error* error) {
  return covey::Report(covey::Decode(codec, codes, count, elements), error);
}
