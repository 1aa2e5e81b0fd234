#include "core/method/value_syntax.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/plan/topology.h"

namespace covey {
namespace {

struct Unit {
  const char* name;
  Time length;
};
constexpr Unit kUnits[] = {{"s", kSecond}, {"ms", kMillisecond}, {"us", kMicrosecond}, {"ns", 1}};

constexpr int64_t kWhole = 1000;  // permille
constexpr int64_t kMillionths = 1000000;
constexpr double kGreatest = 1e9;  // of a norm

std::optional<int64_t> ReadNumber(std::string_view text) {
  int64_t number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  return error == std::errc() && end == last ? std::optional(number) : std::nullopt;
}

// "20ms", "1.5s": whole nanoseconds.
std::optional<int64_t> ReadTime(std::string_view text) {
  const size_t digits = text.find_first_not_of("0123456789.");
  if (digits == 0 || digits == std::string_view::npos) return ReadNumber(text == "0" ? text : "");
  const size_t point = std::min(text.find('.'), digits);
  const std::optional<int64_t> whole = ReadNumber(text.substr(0, point));
  std::string decimals(point < digits ? text.substr(point + 1, digits - point - 1) : "0");
  while (decimals.size() > 1 && decimals.ends_with('0')) decimals.pop_back();
  const std::optional<int64_t> part = ReadNumber(decimals);
  for (const Unit& unit : kUnits) {
    if (text.substr(digits) != unit.name || !whole.has_value() || !part.has_value()) continue;
    int64_t length = unit.length;  // of one in the last decimal
    for (size_t i = 0; i < decimals.size() && *part > 0; ++i) {
      if (length % 10 != 0) return std::nullopt;
      length /= 10;
    }
    if (*whole < kNever / unit.length) return *whole * unit.length + *part * length;
  }
  return std::nullopt;
}

std::optional<int64_t> ReadLimit(std::string_view text) {
  if (text == "off") return kOff;
  if (text == "auto") return kAutoTime;
  const std::optional<int64_t> time = ReadTime(text);
  return time.value_or(0) > 0 ? time : std::nullopt;
}

// "0.5", ".25", "1.0": at most three decimals.
std::optional<int64_t> ReadPart(std::string_view text) {
  const size_t point = text.find('.');
  const std::optional<int64_t> whole = point == 0 ? 0 : ReadNumber(text.substr(0, point));
  std::string decimals(text.substr(point + 1));
  if (decimals.empty() || decimals.size() > 3 ||
      decimals.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  decimals.resize(3, '0');
  const int64_t permille = whole.value_or(-1) * kWhole + ReadNumber(decimals).value_or(0);
  return permille >= 1 && permille <= kWhole ? std::optional(-permille) : std::nullopt;
}

std::optional<int64_t> ReadAdmission(std::string_view text) {
  if (text == "solo") return kAdmitSolo;
  if (text == "all") return kAdmitAll;
  if (text == "majority") return kAdmitDrawn - 1;
  if (text.starts_with("first")) {
    const int64_t drawn = ReadNumber(text.substr(5)).value_or(0);
    return drawn >= 1 && drawn <= kMostDrawn ? std::optional(kAdmitDrawn - drawn) : std::nullopt;
  }
  if (text.find('.') != std::string_view::npos) return ReadPart(text);
  const std::optional<int64_t> count = ReadNumber(text);
  return count.value_or(0) >= 1 ? count : std::nullopt;
}

std::optional<int64_t> ReadOrAuto(std::string_view text) {
  if (text == "auto") return kAuto;
  const std::optional<int64_t> count = ReadNumber(text);
  return count.value_or(0) >= 1 ? count : std::nullopt;
}

struct TwoWords {
  ValueSyntax syntax;
  const char* words[2];  // of 0 and 1
};
constexpr TwoWords kTwoWords[] = {{ValueSyntax::kProgress, {"lockstep", "skip"}},
                                  {ValueSyntax::kSpacing, {"fixed", "geometric"}},
                                  {ValueSyntax::kForm, {"blocking", "nonblocking"}},
                                  {ValueSyntax::kOrder, {"cwa", "atc"}}};

// Null: its values are not two words.
const TwoWords* WordsOf(ValueSyntax syntax) {
  for (const TwoWords& two : kTwoWords)
    if (two.syntax == syntax) return &two;
  return nullptr;
}

std::optional<int64_t> ReadWord(const TwoWords& two, std::string_view text) {
  if (text == two.words[0]) return 0;
  return text == two.words[1] ? std::optional<int64_t>(1) : std::nullopt;
}

// "0", "1", "0.25", "1e-3"; a number that would have to be rounded is none.
std::optional<int64_t> ReadDecimal(std::string_view text) {
  double number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || end != last || !(number >= 0 && number <= kGreatest))
    return std::nullopt;
  const int64_t millionths = std::llround(number * kMillionths);
  const bool is_whole = static_cast<double>(millionths) / kMillionths == number;
  return is_whole ? std::optional(millionths) : std::nullopt;
}

std::optional<int64_t> ReadNorm(std::string_view text) {
  if (text == "off") return 0;
  const std::optional<int64_t> norm = ReadDecimal(text);
  return norm.value_or(0) > 0 ? norm : std::nullopt;
}

std::optional<int64_t> ReadPairing(std::string_view text) {
  if (text == "auto") return kAuto;
  for (int64_t i = 0; i < kNumPairKinds; ++i)
    if (text == NameOf(kPairKinds[i])) return 1 + i;
  return std::nullopt;
}

// Names that a user may write with a hyphen, too.
std::optional<int64_t> ReadTopology(std::string_view text) {
  std::string name(text);
  std::replace(name.begin(), name.end(), '-', '_');
  TopologyKind kind;
  if (!KindOf(name, &kind).ok()) return std::nullopt;
  return 1 + static_cast<int64_t>(kind);
}

std::string WritePart(int64_t permille) {
  std::string decimals = std::to_string(kWhole + permille).substr(1);
  while (decimals.ends_with('0')) decimals.pop_back();
  return "0." + decimals;
}

std::string WriteNorm(int64_t millionths) {
  if (millionths == 0) return "off";
  std::string decimals = "." + std::to_string(kMillionths + millionths % kMillionths).substr(1);
  while (decimals.ends_with('0')) decimals.pop_back();
  if (decimals == ".") decimals.clear();
  return std::to_string(millionths / kMillionths) + decimals;
}

}  // namespace

AdmitRule AdmitOf(int64_t value) {
  const auto whole = static_cast<int32_t>(value);
  if (value > 0) return {.kind = AdmitRule::Kind::kCount, .count = whole};
  if (value >= kAdmitDrawn) return {.kind = AdmitRule::Kind::kFraction, .permille = -whole};
  return {.kind = AdmitRule::Kind::kDrawn, .count = static_cast<int32_t>(kAdmitDrawn - value)};
}

Duration LimitOf(int64_t value) { return value == kOff ? Duration{} : TimeOf(value); }

double NormOf(int64_t value) { return static_cast<double>(value) / kMillionths; }

double DecimalOf(int64_t value) { return NormOf(value); }

Duration TimeOf(int64_t value) {
  return value == kAutoTime ? Duration::Auto() : Duration::Of(value);
}

bool IsOneOfTwo(ValueSyntax syntax) { return WordsOf(syntax) != nullptr; }

std::optional<int64_t> ReadAs(ValueSyntax syntax, std::string_view text) {
  switch (syntax) {
    case ValueSyntax::kNumber:
    case ValueSyntax::kEvery:
      return ReadNumber(text);
    case ValueSyntax::kTime:
      return ReadTime(text);
    case ValueSyntax::kProgress:
    case ValueSyntax::kSpacing:
    case ValueSyntax::kForm:
    case ValueSyntax::kOrder:
      return ReadWord(*WordsOf(syntax), text);
    case ValueSyntax::kAdmission:
      return ReadAdmission(text);
    case ValueSyntax::kOrAuto:
      return ReadOrAuto(text);
    case ValueSyntax::kNorm:
      return ReadNorm(text);
    case ValueSyntax::kDecimal:
      return ReadDecimal(text);
    case ValueSyntax::kPairing:
      return ReadPairing(text);
    case ValueSyntax::kTopology:
      return ReadTopology(text);
    case ValueSyntax::kTimeOrAuto:
      return text == "auto" ? kAutoTime : ReadTime(text);
    case ValueSyntax::kLimit:
      return ReadLimit(text);
  }
  return std::nullopt;
}

std::string WriteAs(ValueSyntax syntax, int64_t value) {
  if (syntax == ValueSyntax::kAdmission) {
    if (value == kAdmitSolo) return "solo";
    if (value == kAdmitAll) return "all";
    if (value == kAdmitDrawn - 1) return "majority";
    if (value < kAdmitDrawn) return "first" + std::to_string(kAdmitDrawn - value);
    if (value < 0) return WritePart(-value);
  }
  if (syntax == ValueSyntax::kOrAuto && value == kAuto) return "auto";
  if (syntax == ValueSyntax::kDecimal && value == 0) return "0";
  if (syntax == ValueSyntax::kNorm || syntax == ValueSyntax::kDecimal) return WriteNorm(value);
  if (syntax == ValueSyntax::kPairing)
    return value == kAuto ? "auto" : NameOf(kPairKinds[value - 1]);
  if (syntax == ValueSyntax::kTopology) return NameOf(static_cast<TopologyKind>(value - 1));
  if (const TwoWords* two = WordsOf(syntax); two != nullptr) return two->words[value];
  const bool is_limit = syntax == ValueSyntax::kLimit;
  if ((syntax == ValueSyntax::kTimeOrAuto || is_limit) && value == kAutoTime) return "auto";
  if (is_limit && value == kOff) return "off";
  if (syntax == ValueSyntax::kTime || syntax == ValueSyntax::kTimeOrAuto || is_limit)
    for (const Unit& unit : kUnits)
      if (value % unit.length == 0) return std::to_string(value / unit.length) + unit.name;
  return std::to_string(value);
}

}  // namespace covey
