#include "core/base/knobs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>
#include <type_traits>

#include "core/base/check.h"
#include "core/base/edit_distance.h"

namespace covey {
namespace {

using Type = Knob::Type;

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;
constexpr int64_t kGiB = 1024 * kMiB;

struct Unit {
  std::string_view name;
  int64_t factor;
};
// Largest first: a value is printed in the first that divides it.
constexpr std::array<Unit, 4> kTimeUnits = {
    {{"s", kSecond}, {"ms", kMillisecond}, {"us", kMicrosecond}, {"ns", 1}}};
constexpr std::array<Unit, 4> kSizeUnits = {
    {{"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}, {"B", 1}}};

template <size_t kCount>
std::string WithUnit(int64_t value, const std::array<Unit, kCount>& units) {
  if (value == 0) return "0";
  for (const Unit& unit : units)
    if (value % unit.factor == 0)
      return std::to_string(value / unit.factor) + std::string(unit.name);
  return std::to_string(value);
}

template <size_t kCount>
std::optional<int64_t> FactorOf(std::string_view name, const std::array<Unit, kCount>& units) {
  for (const Unit& unit : units)
    if (unit.name == name) return unit.factor;
  return std::nullopt;
}

}  // namespace

const Knob* FindKnob(std::string_view name) {
  for (const Knob& knob : AllKnobs())
    if (knob.name == name) return &knob;
  return nullptr;
}

const Knob& NearestKnob(std::string_view mistyped) {
  const auto nearer = [mistyped](const Knob& a, const Knob& b) {
    return EditDistance(mistyped, a.name) < EditDistance(mistyped, b.name);
  };
  return *std::min_element(AllKnobs().begin(), AllKnobs().end(), nearer);
}

std::string NumberText(const Knob& knob, int64_t number) {
  if (knob.type == Type::kTime) return WithUnit(number, kTimeUnits);
  if (knob.type == Type::kSize) return WithUnit(number, kSizeUnits);
  return std::to_string(number);
}

std::vector<std::string_view> ChoicesOf(const Knob& knob) {
  std::vector<std::string_view> choices;
  std::string_view rest = knob.unit;
  while (true) {
    const size_t end = rest.find('|');
    choices.push_back(rest.substr(0, end));
    if (end == std::string_view::npos) return choices;
    rest.remove_prefix(end + 1);
  }
}

std::string AllowedText(const Knob& knob) {
  if (knob.type == Type::kChoice) {
    std::string text = "one of";
    for (std::string_view choice : ChoicesOf(knob))
      text += (text == "one of" ? " " : ", ") + std::string(choice);
    return text;
  }
  std::string text = "a number";
  if (knob.type == Type::kTime) text = "a time";
  if (knob.type == Type::kSize) text = "a size";
  text += " from " + NumberText(knob, knob.minimum) + " to " + NumberText(knob, knob.maximum);
  if (knob.multiple != 1) text += " that is a multiple of " + std::to_string(knob.multiple);
  return text;
}

int64_t GetNumber(const Knob& knob, const Config& config) {
  return std::visit(
      [&config](auto member) -> int64_t {
        using T = std::decay_t<decltype(config.*member)>;
        if constexpr (std::is_same_v<T, std::string>) {
          CHECK(false, "a knob with text has no number");
        } else {
          return static_cast<int64_t>(config.*member);
        }
      },
      knob.field);
}

std::string PlainText(const Knob& knob, const Config& config) {
  if (const auto* text = std::get_if<std::string Config::*>(&knob.field)) return config.**text;
  const int64_t number = GetNumber(knob, config);
  if (knob.type == Type::kChoice) return std::string(ChoicesOf(knob)[static_cast<size_t>(number)]);
  return std::to_string(number);
}

std::string ValueText(const Knob& knob, const Config& config) {
  return knob.IsNumber() ? NumberText(knob, GetNumber(knob, config)) : PlainText(knob, config);
}

void SetNumber(const Knob& knob, int64_t number, Config* config) {
  std::visit(
      [config, number](auto member) {
        using T = std::decay_t<decltype(config->*member)>;
        if constexpr (std::is_same_v<T, std::string>) {
          CHECK(false, "a knob with text has no number");
        } else {
          config->*member = static_cast<T>(number);
        }
      },
      knob.field);
}

std::optional<int64_t> ParseNumber(const Knob& knob, std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  std::optional<int64_t> factor;
  if (knob.type == Type::kCount) {
    if (unit.empty()) factor = 1;
  } else {
    if (unit.empty()) unit = knob.unit;
    factor = knob.type == Type::kTime ? FactorOf(unit, kTimeUnits) : FactorOf(unit, kSizeUnits);
  }
  if (!factor.has_value()) return std::nullopt;
  const double value = number * static_cast<double>(*factor);
  constexpr double kExact = 9007199254740992;  // 2^53, above every maximum
  if (std::fabs(value) > kExact) return number < 0 ? INT64_MIN : INT64_MAX;
  const auto rounded = static_cast<int64_t>(std::llround(value));
  const bool whole = std::fabs(value - static_cast<double>(rounded)) < 1e-6;
  return whole ? std::optional(rounded) : std::nullopt;
}

}  // namespace covey
