#include "core/run/codec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "core/base/json.h"
#include "core/base/nearest.h"

namespace covey {
namespace {

// Filled before main() by the registrations of ops/codecs, read-only from then on.
std::vector<const Codec*>& Catalogue() {
  static std::vector<const Codec*> catalogue;  // process-wide: registrations only
  return catalogue;
}

// "; there are bf16, fp16, int8; the nearest is int8"
template <typename Names>
std::string WhatThereIs(std::string_view mistyped, const Names& names) {
  std::string text;
  const char* nearest = nullptr;
  for (const char* name : names) {
    text += (nearest == nullptr ? "; there are " : ", ") + std::string(name);
    if (nearest == nullptr || EditDistance(mistyped, name) < EditDistance(mistyped, nearest))
      nearest = name;
  }
  return nearest == nullptr ? "; there are none" : text + "; the nearest is " + nearest;
}

Status ReadNumber(const Codec& codec, const CodecParameter& p, std::string_view text,
                  int64_t* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  const bool whole = error == std::errc() && stop == end;
  if (whole && *value >= p.minimum && *value <= p.maximum && *value % p.multiple == 0)
    return Status::Ok();
  return Status::InvalidArgument(std::string("codec ") + codec.name + ": " + p.name + " " +
                                 std::string(text) + " is not a multiple of " +
                                 std::to_string(p.multiple) + " from " + std::to_string(p.minimum) +
                                 " to " + std::to_string(p.maximum));
}

// One "name=number".
Status ReadParameter(const Codec& codec, std::string_view text, std::array<bool, 4>* given,
                     CodecValues* values) {
  const size_t equals = std::min(text.find('='), text.size());
  const std::string_view name = text.substr(0, equals);
  std::vector<const char*> names;
  for (size_t i = 0; i < codec.parameters.size(); ++i) {
    const CodecParameter& p = codec.parameters[i];
    names.push_back(p.name);
    if (name != p.name) continue;
    if ((*given)[i])
      return Status::InvalidArgument(std::string("codec ") + codec.name + ": " + p.name +
                                     " is given twice");
    (*given)[i] = true;
    return ReadNumber(codec, p, text.substr(std::min(equals + 1, text.size())), &(*values)[i]);
  }
  return Status::InvalidArgument("codec " + std::string(codec.name) + " has no parameter '" +
                                 std::string(name) + "'" + WhatThereIs(name, names));
}

}  // namespace

CodecRegistration::CodecRegistration(const Codec& codec) {
  auto& all = Catalogue();
  const auto less = [](const Codec* a, const Codec* b) {
    return std::string_view(a->name) < b->name;
  };
  all.insert(std::upper_bound(all.begin(), all.end(), &codec, less), &codec);
}

std::span<const Codec* const> Codecs() { return Catalogue(); }

const Codec* FindCodec(std::string_view name) {
  for (const Codec* codec : Catalogue())
    if (codec->name == name) return codec;
  return nullptr;
}

Status ParseCodec(std::string_view text, ChosenCodec* chosen) {
  const size_t at = std::min(text.find('@'), text.size());
  const std::string_view name = text.substr(0, at);
  const Codec* codec = FindCodec(name);
  if (codec == nullptr) {
    std::vector<const char*> names;
    for (const Codec* c : Catalogue()) names.push_back(c->name);
    return Status::InvalidArgument("there is no codec '" + std::string(name) + "'" +
                                   WhatThereIs(name, names));
  }
  chosen->codec = codec;
  for (size_t i = 0; i < codec->parameters.size(); ++i)
    chosen->values[i] = codec->parameters[i].standard;
  std::array<bool, kMaxCodecParameters> given{};
  for (size_t begin = at + 1; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    RETURN_IF_ERROR(
        ReadParameter(*codec, text.substr(begin, end - begin), &given, &chosen->values));
    begin = end + 1;
  }
  chosen->form = codec->form(chosen->values);
  chosen->text = name;
  for (size_t i = 0; i < codec->parameters.size(); ++i)
    chosen->text += (i == 0 ? "@" : ",") + std::string(codec->parameters[i].name) + "=" +
                    std::to_string(chosen->values[i]);
  return Status::Ok();
}

std::string CodecsJson() {
  std::string json = "[";
  for (const Codec* codec : Codecs()) {
    json += json.size() > 1 ? ",\n{\"name\":" : "{\"name\":";
    AppendJsonString(codec->name, &json);
    json += ",\"card\":";
    AppendJsonString(codec->card, &json);
    json += ",\"parameters\":[";
    for (const CodecParameter& p : codec->parameters) {
      json += json.ends_with('[') ? "{\"name\":" : ",{\"name\":";
      AppendJsonString(p.name, &json);
      json += ",\"default\":" + std::to_string(p.standard) +
              ",\"minimum\":" + std::to_string(p.minimum) +
              ",\"maximum\":" + std::to_string(p.maximum) +
              ",\"multiple\":" + std::to_string(p.multiple) + "}";
    }
    json += "]}";
  }
  return json + "]";
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
