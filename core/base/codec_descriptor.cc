#include "core/base/codec_descriptor.h"

#include <algorithm>
#include <charconv>

#include "core/base/edit_distance.h"

namespace covey {
namespace {

// Filled before main() by the registrations of ops/codecs, read-only from then on.
std::vector<CodecDescriptor>& Catalogue() {
  static std::vector<CodecDescriptor> catalogue;  // process-wide: registrations only
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

std::string Of(const CodecDescriptor& card) { return std::string("codec ") + card.name; }

Status ReadNumber(const CodecDescriptor& card, const CodecParameter& p, std::string_view text,
                  int64_t* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  const bool whole = error == std::errc() && stop == end;
  if (whole && *value >= p.minimum && *value <= p.maximum && *value % p.multiple == 0)
    return Status::Ok();
  const std::string kind =
      p.multiple == 1 ? "a whole number" : "a multiple of " + std::to_string(p.multiple);
  return Status::InvalidArgument(Of(card) + ": " + p.name + " " + std::string(text) + " is not " +
                                 kind + " from " + std::to_string(p.minimum) + " to " +
                                 std::to_string(p.maximum));
}

// One "name=number", or the number of the first.
Status ReadParameter(const CodecDescriptor& card, std::string_view text,
                     std::array<bool, kMaxCodecParameters>* given, CodecValues* values) {
  const size_t equals = std::min(text.find('='), text.size());
  const bool is_number = text.find_first_of("-0123456789") == 0 && equals == text.size();
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
    const bool is_switch = p.minimum == 0 && p.maximum == 1;
    const bool is_bare = equals == text.size() && !is_number;
    return ReadNumber(card, p, is_switch && is_bare ? "1" : number, &(*values)[i]);
  }
  return Status::InvalidArgument(Of(card) + " has no parameter '" + std::string(name) + "'" +
                                 WhatThereIs(name, names));
}

bool IsOfModels(CodecUse use) { return use == CodecUse::kPairs || use == CodecUse::kNeighbors; }

CodecValues StandardsOf(const CodecDescriptor& card) {
  CodecValues values{};
  for (size_t i = 0; i < card.parameters.size(); ++i) values[i] = card.parameters[i].standard;
  return values;
}

// Empty: it can be used so.
std::string WhyUnfit(const CodecDescriptor& card, const CodecValues& values, CodecUse use) {
  if (card.kind == CodecKind::kBeside && use == CodecUse::kNeighbors)
    return " decodes beside one other model, and asks for what was too far from it once more: "
           "with several neighbors at once that would be another exchange of all; adpsgd and "
           "swarm have it";
  if (card.kind == CodecKind::kBeside && use != CodecUse::kPairs)
    return " decodes beside a model that the receiver has near, as two ranks have that average "
           "their models (adpsgd, swarm): there is none here";
  if (!IsOfModels(use) || card.unfit_for_models == nullptr) return "";
  const std::string why = card.unfit_for_models(values);
  return why.empty() ? "" : " " + why;
}

Status NoneOf(std::string_view name, CodecUse use) {
  std::vector<const char*> names;
  for (const CodecDescriptor& card : CodecCards(use)) names.push_back(card.name);
  for (const CodecDescriptor& card : Catalogue()) {
    if (name != card.name) continue;
    return Status::InvalidArgument(Of(card) + WhyUnfit(card, StandardsOf(card), use) +
                                   WhatThereIs(name, names));
  }
  return Status::InvalidArgument("there is no codec '" + std::string(name) + "'" +
                                 WhatThereIs(name, names));
}

}  // namespace

std::vector<CodecDescriptor> CodecCards(CodecUse use) {
  std::vector<CodecDescriptor> cards;
  for (const CodecDescriptor& card : Catalogue())
    if (WhyUnfit(card, StandardsOf(card), use).empty()) cards.push_back(card);
  return cards;
}

void AddCodecCard(const CodecDescriptor& card) {
  auto& all = Catalogue();
  const auto less = [](const CodecDescriptor& a, const CodecDescriptor& b) {
    return std::string_view(a.name) < b.name;
  };
  all.insert(std::upper_bound(all.begin(), all.end(), card, less), card);
}

Status ReadCodecText(std::string_view text, CodecUse use, CodecText* read) {
  const size_t at = std::min(text.find('@'), text.size());
  const std::string_view name = text.substr(0, at);
  const std::vector<CodecDescriptor> cards = CodecCards(use);
  const auto card = std::find_if(cards.begin(), cards.end(),
                                 [name](const CodecDescriptor& one) { return name == one.name; });
  if (card == cards.end()) return NoneOf(name, use);
  read->name = card->name;
  read->values = StandardsOf(*card);
  std::array<bool, kMaxCodecParameters> given{};
  for (size_t begin = at + 1; begin <= text.size();) {
    const size_t end = std::min(text.find_first_of(",+", begin), text.size());
    RETURN_IF_ERROR(ReadParameter(*card, text.substr(begin, end - begin), &given, &read->values));
    begin = end + 1;
  }
  if (const std::string why = WhyUnfit(*card, read->values, use); !why.empty())
    return Status::InvalidArgument(Of(*card) + why);
  read->text = name;
  for (size_t i = 0; i < card->parameters.size(); ++i)
    read->text += (i == 0 ? "@" : ",") + std::string(card->parameters[i].name) + "=" +
                  std::to_string(read->values[i]);
  return Status::Ok();
}

}  // namespace covey
