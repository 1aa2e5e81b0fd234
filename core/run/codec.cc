#include "core/run/codec.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/json.h"
#include "core/run/reference_codec.h"

namespace covey {
namespace {

// Filled before main() by the registrations of ops/codecs, read-only from then on.
std::vector<const Codec*>& Catalogue() {
  static std::vector<const Codec*> catalogue;  // process-wide: registrations only
  return catalogue;
}

void AppendCodec(const char* name, const char* card, std::span<const CodecParameter> parameters,
                 std::string* json) {
  *json += json->empty() ? "{\"name\":" : ",\n{\"name\":";
  AppendJsonString(name, json);
  *json += ",\"card\":";
  AppendJsonString(card, json);
  *json += ",\"parameters\":[";
  for (const CodecParameter& p : parameters) {
    *json += json->ends_with('[') ? "{\"name\":" : ",{\"name\":";
    AppendJsonString(p.name, json);
    *json += ",\"default\":" + std::to_string(p.standard) +
             ",\"minimum\":" + std::to_string(p.minimum) +
             ",\"maximum\":" + std::to_string(p.maximum) +
             ",\"multiple\":" + std::to_string(p.multiple) + "}";
  }
  *json += "]}";
}

}  // namespace

CodecRegistration::CodecRegistration(const Codec& codec) {
  auto& all = Catalogue();
  const auto less = [](const Codec* a, const Codec* b) {
    return std::string_view(a->name) < b->name;
  };
  all.insert(std::upper_bound(all.begin(), all.end(), &codec, less), &codec);
  AddCodecCard({.name = codec.name,
                .kind = CodecKind::kAlone,
                .parameters = codec.parameters,
                .unfit_for_models = codec.unfit_for_models});
}

std::span<const Codec* const> Codecs() { return Catalogue(); }

const Codec* FindCodec(std::string_view name) {
  for (const Codec* codec : Catalogue())
    if (codec->name == name) return codec;
  return nullptr;
}

Status ParseCodec(std::string_view text, ChosenCodec* chosen) {
  CodecText read;
  RETURN_IF_ERROR(ReadCodecText(text, CodecUse::kGradients, &read));
  chosen->codec = FindCodec(read.name);
  chosen->values = read.values;
  chosen->form = chosen->codec->form(chosen->values);
  chosen->text = read.text;
  return Status::Ok();
}

std::string CodecsJson() {
  std::string json;
  for (const Codec* codec : Codecs())
    AppendCodec(codec->name, codec->card, codec->parameters, &json);
  for (const ReferenceCodec* codec : ReferenceCodecs())
    AppendCodec(codec->name, codec->card, codec->parameters, &json);
  return "[" + json + "]";
}

void ResidualOf(const ChosenCodec& chosen, const Kernels& kernels, std::span<const float> elements,
                std::span<float> residual) {
  constexpr size_t kPieceElems = 16384;  // about; it stays in the cache
  const size_t block = chosen.form.block_elems;
  const size_t piece = std::max<size_t>(1, kPieceElems / block) * block;
  std::vector<std::byte> code(chosen.form.EncodedBytes(std::min(piece, elements.size())));
  for (size_t at = 0; at < elements.size(); at += piece) {
    const size_t count = std::min(piece, elements.size() - at);
    const std::span<const float> own = elements.subspan(at, count);
    const std::span<float> left = residual.subspan(at, count);
    chosen.codec->encode(kernels, chosen.values, own, 0, code.data());
    chosen.codec->decode(kernels, chosen.values, code.data(), left);
    for (size_t i = 0; i < count; ++i) {
      const float lost = own[i] - left[i];
      left[i] = std::isfinite(lost) ? lost : 0.0f;
    }
  }
}

}  // namespace covey
