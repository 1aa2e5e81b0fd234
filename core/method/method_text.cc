#include "core/method/method.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/edit_distance.h"
#include "core/method/method_common.h"
#include "core/method/value_syntax.h"

namespace covey {
namespace {

// Filled before main() by the registrations of ops/methods, read-only from then on.
std::vector<const Method*>& Catalogue() {
  static std::vector<const Method*> catalogue;  // process-wide: registrations only
  return catalogue;
}

std::string Quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

std::string InLowerCase(std::string_view word) {
  std::string text(word);
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

// REQUIRES: names is not empty.
std::string_view Nearest(std::string_view word, const std::vector<std::string_view>& names) {
  const std::string lower = InLowerCase(word);
  return *std::min_element(names.begin(), names.end(), [&lower](auto a, auto b) {
    return EditDistance(lower, a) < EditDistance(lower, b);
  });
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

Status UnknownMethod(std::string_view name) {
  std::vector<std::string_view> names;
  std::vector<std::string> shown;
  for (const Method* method : Catalogue()) {
    names.emplace_back(method->name);
    shown.emplace_back(method->name);
  }
  std::string text = "there is no method " + Quoted(name) + "; there are: " + Joined(shown);
  if (!names.empty()) text += "; the nearest is " + Quoted(Nearest(name, names));
  return Status::InvalidArgument(std::move(text));
}

constexpr std::string_view kThen = "then";

Status UnknownParameter(const Method& method, std::string_view name) {
  std::vector<std::string_view> names;
  std::vector<std::string> shown;
  for (const MethodParameter& parameter : method.parameters) {
    const std::string letter = parameter.letter;
    names.emplace_back(parameter.name);
    shown.push_back(parameter.name + (letter.empty() ? "" : " (" + letter + ")"));
  }
  if (method.codecs != CodecUse::kNone) shown.emplace_back(kCodecSetting);
  for (std::string_view common :
       {std::string_view(kCommon[kWarmup].name), std::string_view(kCommon[kClip].name), kThen}) {
    names.push_back(common);
    shown.emplace_back(common);
  }
  if (method.codecs != CodecUse::kNone) names.emplace_back(kCodecSetting);
  return Status::InvalidArgument("the method " + Quoted(method.name) + " has no parameter " +
                                 Quoted(name) + "; it has " + Joined(shown) + "; the nearest is " +
                                 Quoted(Nearest(name, names)));
}

Status ReadValue(const MethodParameter& parameter, std::string_view text, int64_t* value) {
  const std::optional<int64_t> read = ReadAs(parameter.syntax, text);
  if (read.has_value() && *read >= parameter.minimum && *read <= parameter.maximum) {
    *value = *read;
    return Status::Ok();
  }
  const std::string unit = parameter.unit;
  std::string range = unit.empty() ? "a whole number" : "a number of " + unit;
  if (parameter.syntax == ValueSyntax::kTime) range = "a time such as 20ms";
  if (IsOneOfTwo(parameter.syntax))
    return Status::InvalidArgument(std::string(parameter.name) + " is " + Quoted(text) +
                                   ", which is not " + WriteAs(parameter.syntax, 0) + " or " +
                                   WriteAs(parameter.syntax, 1));
  if (parameter.syntax == ValueSyntax::kPairing)
    return Status::InvalidArgument(std::string(parameter.name) + " is " + Quoted(text) +
                                   ", which is not auto, bipartite, ring, full or matching");
  if (TopologyKind kind; parameter.syntax == ValueSyntax::kTopology)
    return Status::InvalidArgument(std::string(parameter.name) + ": " +
                                   KindOf(text, &kind).message());
  if (parameter.syntax == ValueSyntax::kAdmission)
    return Status::InvalidArgument(
        std::string(parameter.name) + " is " + Quoted(text) + ", which is not solo, all, " +
        (parameter.minimum < kAdmitDrawn ? "majority, first2 (one of 2 that are drawn), " : "") +
        "a number of ranks from 1, or a part of them such as 0.5, of three decimals at most");
  std::string least = WriteAs(parameter.syntax, parameter.minimum);
  if (parameter.syntax == ValueSyntax::kOrAuto) {
    range = "auto or " + range;
    least = "1";
  }
  if (parameter.syntax == ValueSyntax::kTimeOrAuto) {
    range = "auto or a time such as 20ms";
    least = "0s";
  }
  if (parameter.syntax == ValueSyntax::kDecimal) range = "a number such as 0.7";
  if (parameter.syntax == ValueSyntax::kNorm || parameter.syntax == ValueSyntax::kLimit) {
    range = parameter.syntax == ValueSyntax::kNorm ? "off or a number"
                                                   : "off, auto or a time such as 2s";
    least = WriteAs(parameter.syntax, 1);
  }
  return Status::InvalidArgument(std::string(parameter.name) + " is " + Quoted(text) +
                                 ", which is not " + range + " from " + least + " to " +
                                 WriteAs(parameter.syntax, parameter.maximum));
}

// The parameter with this name or letter; size() when there is none.
size_t IndexOf(std::span<const MethodParameter> parameters, std::string_view name) {
  const auto found =
      std::find_if(parameters.begin(), parameters.end(), [name](const MethodParameter& p) {
        return name == p.name || (!name.empty() && name == p.letter);
      });
  return static_cast<size_t>(found - parameters.begin());
}

// The parsed text of one method; no value: not given.
struct Draft {
  const Method* method;
  std::vector<std::optional<int64_t>> values;
  std::array<std::optional<int64_t>, kNumCommon> common;
  std::optional<std::string> codec = std::nullopt;
};

// One "name=value" of `text`.
Status ReadSetting(std::string_view word, std::string_view text, Draft* draft) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos)
    return Status::InvalidArgument(Quoted(word) + " in the method " + Quoted(text) +
                                   " is not of the form name=value");
  const std::string_view name = word.substr(0, equals);
  if (name == kCodecSetting) {
    if (draft->codec.has_value())
      return Status::InvalidArgument("codec is given twice in the method " + Quoted(text));
    return ReadMethodCodec(*draft->method, word.substr(equals + 1), &draft->codec.emplace());
  }
  const std::span<const MethodParameter> own = draft->method->parameters;
  const size_t index = IndexOf(own, name);
  const bool is_own = index < own.size();
  const size_t common = IndexOf(kCommon, name);
  if (!is_own && common == kNumCommon) return UnknownParameter(*draft->method, name);
  const MethodParameter& parameter = is_own ? own[index] : kCommon[common];
  std::optional<int64_t>& value = is_own ? draft->values[index] : draft->common[common];
  if (value.has_value())
    return Status::InvalidArgument(std::string(parameter.name) + " is given twice in the method " +
                                   Quoted(text));
  int64_t number = 0;
  RETURN_IF_ERROR(ReadValue(parameter, word.substr(equals + 1), &number));
  value = number;
  return Status::Ok();
}

Status ReadMethod(std::string_view name, std::string_view settings, std::string_view text,
                  MethodChoice* choice);

// The method that follows `before`: "local@1000", "local@1000:H=8,..." or "local@1000,H=8,...": all
// that comes after `then=` is its own.
Status ReadThen(std::string_view word, std::string_view text, MethodChoice* before) {
  const size_t end = std::min(word.find_first_of(":,"), word.size());
  const std::string_view head = word.substr(0, end);
  const size_t at = std::min(head.find('@'), head.size());
  const std::string_view step = head.substr(std::min(at + 1, head.size()));
  const std::optional<int64_t> from = ReadAs(ValueSyntax::kNumber, step);
  if (at == head.size() || from.value_or(-1) < 0 || *from > kManySteps)
    return Status::InvalidArgument("then is " + Quoted(word) +
                                   ", which is not a method and the step it begins at, such as "
                                   "local@1000 or local@1000:local_steps=8");
  const int64_t earliest = before->from + before->warmup_steps + 1;
  if (*from < earliest)
    return Status::InvalidArgument(
        std::string(head) + " in the method " + Quoted(text) + " begins before " +
        before->method->name + " has done a step: it may from step " + std::to_string(earliest));
  MethodChoice next{.from = *from};
  RETURN_IF_ERROR(ReadMethod(head.substr(0, at), word.substr(end), text, &next));
  before->then.push_back(std::move(next));
  return Status::Ok();
}

// `settings`: ":name=value,..." or nothing. Fills *choice, whose `from` is known.
Status ReadMethod(std::string_view name, std::string_view settings, std::string_view text,
                  MethodChoice* choice) {
  choice->method = FindMethod(name);
  if (choice->method == nullptr) return UnknownMethod(name);
  const std::span<const MethodParameter> own = choice->method->parameters;
  Draft draft{choice->method, std::vector<std::optional<int64_t>>(own.size()), {}, {}};
  std::string_view then;  // nothing may follow it
  for (size_t begin = settings.empty() ? std::string_view::npos : 0;
       begin != std::string_view::npos && then.empty();) {
    const std::string_view rest = settings.substr(begin + 1);
    if (rest.starts_with(std::string(kThen) + "=")) {
      then = rest;
    } else {
      RETURN_IF_ERROR(ReadSetting(rest.substr(0, rest.find(',')), text, &draft));
      begin = settings.find(',', begin + 1);
    }
  }
  for (size_t i = 0; i < own.size(); ++i)
    choice->settings.push_back(draft.values[i].value_or(own[i].standard));
  choice->warmup_steps = draft.common[kWarmup].value_or(kCommon[kWarmup].standard);
  choice->clip_norm = draft.common[kClip].value_or(kCommon[kClip].standard);
  choice->codec = draft.codec.value_or("");
  RETURN_IF_ERROR(CheckMethodCodec(*choice));
  return then.empty() ? Status::Ok() : ReadThen(then.substr(kThen.size() + 1), text, choice);
}

// A setting that is off is not written, so that a method without it keeps its text.
bool IsWritten(const MethodParameter& parameter, int64_t value) {
  if (parameter.syntax == ValueSyntax::kEvery) return value != 1;
  return parameter.syntax != ValueSyntax::kLimit || value != kOff;
}

std::string WordOf(const MethodParameter& parameter, int64_t value) {
  return std::string(parameter.name) + "=" + WriteAs(parameter.syntax, value);
}

// How far a rank may fall behind in a warm-up before the others wait for it.
constexpr int64_t kStaleness = 32;

bool IsOfGradientsInRounds(const MethodPlan& plan) {
  return plan.admission == Admission::kRounds && plan.payload == Payload::kGradients;
}

Duration WaitOf(const MethodPlan& plan) {
  if (plan.admission == Admission::kPairs) return plan.pairs.max_wait;
  return plan.admission == Admission::kNeighbors ? plan.neighbors.max_wait : plan.rounds.max_wait;
}

// The plan of a warm-up with so many steps left, before a method that begins with `plan`.
MethodPlan Warmup(const MethodPlan& plan, int64_t left) {
  const bool is_limited = WaitOf(plan).kind != Duration::Kind::kOff;
  const bool is_of_all =
      plan.admission == Admission::kAll || plan.admission == Admission::kNeighbors;
  if (is_of_all && !is_limited) return {.payload = Payload::kGradients};
  MethodRounds rounds{.admit = AdmitRule::All(),
                      .log = kAuto,
                      .max_wait = WaitOf(plan),
                      .max_staleness = kStaleness};
  if (IsOfGradientsInRounds(plan)) rounds = plan.rounds;
  rounds.warmup = left;
  return {.payload = Payload::kGradients, .admission = Admission::kRounds, .rounds = rounds};
}

// Whether the rounds of its warm-up are its own.
bool GoesOnFromWarmup(const MethodChoice& choice) {
  return IsOfGradientsInRounds(choice.method->plan(choice.settings, {.size = 1, .rank = {}}, 0));
}

// The version with which rounds of `steps` steps end; 0: any. Rounds of deltas end with the last
// version that begins within these steps.
int64_t EndingOf(const MethodPlan& plan, int64_t steps) {
  if (plan.rounds.local_steps == 0) return steps;
  if (plan.payload != Payload::kDelta) return 0;
  return (steps + plan.rounds.local_steps - 1) / plan.rounds.local_steps;
}

void AddWord(const std::string& word, std::string* text) {
  *text += (text->find(':') == std::string::npos ? ":" : ",") + word;
}

}  // namespace

MethodRegistration::MethodRegistration(const Method& method) {
  auto& all = Catalogue();
  const auto less = [](const Method* a, const Method* b) {
    return std::string_view(a->name) < std::string_view(b->name);
  };
  all.insert(std::upper_bound(all.begin(), all.end(), &method, less), &method);
}

std::span<const Method* const> Methods() { return Catalogue(); }

const Method* FindMethod(std::string_view name) {
  for (const Method* method : Catalogue())
    if (method->name == name) return method;
  return nullptr;
}

std::string MethodChoice::OwnText() const {
  std::string text = method->name;
  for (size_t i = 0; i < settings.size(); ++i)
    if (IsWritten(method->parameters[i], settings[i]))
      AddWord(WordOf(method->parameters[i], settings[i]), &text);
  if (!codec.empty()) AddWord(std::string(kCodecSetting) + "=" + codec, &text);
  if (clip_norm > 0) AddWord(WordOf(kCommon[kClip], clip_norm), &text);
  return text;
}

std::string MethodChoice::Text() const {
  std::string text = OwnText();
  if (from > 0) text.insert(std::strlen(method->name), "@" + std::to_string(from));
  if (warmup_steps > 0) AddWord(WordOf(kCommon[kWarmup], warmup_steps), &text);
  if (!then.empty()) AddWord(std::string(kThen) + "=" + then[0].Text(), &text);
  return text;
}

const MethodChoice& MethodChoice::At(int64_t version) const {
  return then.empty() || version < then[0].from ? *this : then[0].At(version);
}

int64_t MethodChoice::Until(int64_t version) const {
  const MethodChoice& here = At(version);
  const bool warms_up = version < here.from + here.warmup_steps;
  if (warms_up && !GoesOnFromWarmup(here)) return here.from + here.warmup_steps;
  return here.then.empty() ? kForever : here.then[0].from;
}

MethodPlan MethodChoice::Plan(const MethodView& view, int64_t version) const {
  const MethodChoice& here = At(version);
  // method-W13: settings, view and version alone decide, so all ranks have the same plan.
  const int64_t step = version - here.from - here.warmup_steps;
  MethodPlan plan = here.method->plan(here.settings, view, std::max<int64_t>(step, 0));
  if (step < 0) plan = Warmup(plan, -step);
  const bool has_end = plan.admission == Admission::kRounds && Until(version) != kForever;
  if (has_end) plan.rounds.ending = EndingOf(plan, Until(version) - version);
  if (step < 0) return plan;
  const bool is_last = !here.then.empty() && version == here.then[0].from - 1;
  const bool is_awaited =
      plan.admission == Admission::kAll || plan.admission == Admission::kNeighbors;
  if (is_last && plan.payload != Payload::kGradients && is_awaited)
    return {.payload = Payload::kModel};
  return plan;
}

Status CheckSize(const MethodRounds& rounds, int32_t size) {
  const std::string there = " ranks, but there are " + std::to_string(size);
  if (rounds.admit.kind == AdmitRule::Kind::kCount && rounds.admit.count > size)
    return Status::InvalidArgument("admits with " + std::to_string(rounds.admit.count) + there);
  if (rounds.group_size > size)
    return Status::InvalidArgument("has groups of " + std::to_string(rounds.group_size) + there +
                                   ": group_size is auto or 1 to " + std::to_string(size));
  return Status::Ok();
}

Status ParseMethod(std::string_view text, MethodChoice* choice) {
  const size_t colon = std::min(text.find(':'), text.size());
  MethodChoice read;
  RETURN_IF_ERROR(ReadMethod(text.substr(0, colon), text.substr(colon), text, &read));
  *choice = std::move(read);
  return Status::Ok();
}

}  // namespace covey
