#include "core/base/codec_card.h"

#include <algorithm>
#include <charconv>

#include "core/base/nearest.h"

namespace covey {
namespace {

// Filled before main() by the registrations of ops/codecs, read-only from then on.
std::vector<CodecCard>& Catalogue() {
  static std::vector<CodecCard> catalogue;  // process-wide: registrations only
  return catalogue;
}

// "; there are bf16, fp16, int8; the nearest is int8"
std::string WhatThereIs(std::string_view mistyped, const std::vector<const char*>& names) {
  std::string text;
  const char* nearest = nullptr;
  for (const char* name : names) {
    text += (nearest == nullptr ? "; there are " : ", ") + std::string(name);
    if (nearest == nullptr || EditDistance(mistyped, name) < EditDistance(mistyped, nearest))
      nearest = name;
  }
  return nearest == nullptr ? "; there are none" : text + "; the nearest is " + nearest;
}

std::string Of(const CodecCard& card) { return std::string("codec ") + card.name; }

Status ReadNumber(const CodecCard& card, const CodecParameter& p, std::string_view text,
                  int64_t* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  const bool whole = error == std::errc() && stop == end;
  if (whole && *value >= p.minimum && *value <= p.maximum && *value % p.multiple == 0)
    return Status::Ok();
  return Status::InvalidArgument(Of(card) + ": " + p.name + " " + std::string(text) +
                                 " is not a multiple of " + std::to_string(p.multiple) + " from " +
                                 std::to_string(p.minimum) + " to " + std::to_string(p.maximum));
}

// One "name=number", or the number of the first.
Status ReadParameter(const CodecCard& card, std::string_view text,
                     std::array<bool, kMaxCodecParameters>* given, CodecValues* values) {
  const size_t equals = std::min(text.find('='), text.size());
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  const std::string_view name = is_number && !card.parameters.empty()
                                    ? std::string_view(card.parameters[0].name)
                                    : text.substr(0, equals);
  const std::string_view number = is_number ? text : text.substr(std::min(equals + 1, text.size()));
  std::vector<const char*> names;
  for (size_t i = 0; i < card.parameters.size(); ++i) {
    const CodecParameter& p = card.parameters[i];
    names.push_back(p.name);
    if (name != p.name) continue;
    if ((*given)[i]) return Status::InvalidArgument(Of(card) + ": " + p.name + " is given twice");
    (*given)[i] = true;
    return ReadNumber(card, p, number, &(*values)[i]);
  }
  return Status::InvalidArgument(Of(card) + " has no parameter '" + std::string(name) + "'" +
                                 WhatThereIs(name, names));
}

Status NoneOf(std::string_view name, CodecKind kind) {
  std::vector<const char*> names;
  for (const CodecCard& card : CodecCards(kind)) names.push_back(card.name);
  for (const CodecCard& card : Catalogue()) {
    if (name != card.name) continue;
    const std::string why =
        kind == CodecKind::kAlone
            ? " decodes beside a model that the receiver has near, as two ranks have that average "
              "their models (adpsgd, swarm): there is none here"
            : " is of a scale of its own: what it makes of a model would stay wrong however near "
              "two models are";
    return Status::InvalidArgument(Of(card) + why + WhatThereIs(name, names));
  }
  return Status::InvalidArgument("there is no codec '" + std::string(name) + "'" +
                                 WhatThereIs(name, names));
}

}  // namespace

std::vector<CodecCard> CodecCards(CodecKind kind) {
  std::vector<CodecCard> cards;
  for (const CodecCard& card : Catalogue())
    if (card.kind == kind) cards.push_back(card);
  return cards;
}

void AddCodecCard(const CodecCard& card) {
  auto& all = Catalogue();
  const auto less = [](const CodecCard& a, const CodecCard& b) {
    return std::string_view(a.name) < b.name;
  };
  all.insert(std::upper_bound(all.begin(), all.end(), card, less), card);
}

Status ReadCodecText(std::string_view text, CodecKind kind, CodecText* read) {
  const size_t at = std::min(text.find('@'), text.size());
  const std::string_view name = text.substr(0, at);
  const std::vector<CodecCard> cards = CodecCards(kind);
  const auto card = std::find_if(cards.begin(), cards.end(),
                                 [name](const CodecCard& one) { return name == one.name; });
  if (card == cards.end()) return NoneOf(name, kind);
  read->name = card->name;
  for (size_t i = 0; i < card->parameters.size(); ++i)
    read->values[i] = card->parameters[i].standard;
  std::array<bool, kMaxCodecParameters> given{};
  for (size_t begin = at + 1; begin <= text.size();) {
    const size_t end = std::min(text.find_first_of(",+", begin), text.size());
    RETURN_IF_ERROR(ReadParameter(*card, text.substr(begin, end - begin), &given, &read->values));
    begin = end + 1;
  }
  read->text = name;
  for (size_t i = 0; i < card->parameters.size(); ++i)
    read->text += (i == 0 ? "@" : ",") + std::string(card->parameters[i].name) + "=" +
                  std::to_string(read->values[i]);
  return Status::Ok();
}

}  // namespace covey
