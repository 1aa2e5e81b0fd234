// The table of knobs and the text of their values. config.h sets them.
//
// A knob is a row: to add one, add a row to knob_table.cc and a member to Config. Any thread: the
// table is constant.
#ifndef COVEY_CORE_BASE_KNOBS_H_
#define COVEY_CORE_BASE_KNOBS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/config.h"

namespace covey {

struct Knob {
  enum class Type : uint8_t { kCount, kTime, kSize, kText, kChoice };
  using Field = std::variant<Rank Config::*, int32_t Config::*, Time Config::*, size_t Config::*,
                             std::string Config::*, LogLevel Config::*>;

  std::string_view name;
  std::string_view unit;  // of a time or size written without one; the choices: "name|name"
  Type type;
  Field field;
  // Of a number, in base units (1, nanoseconds, bytes).
  int64_t minimum = 0;
  int64_t maximum = 0;
  int64_t multiple = 1;
  bool agreed = false;  // must be equal on all ranks
  std::string_view help;

  bool IsNumber() const { return type != Type::kText && type != Type::kChoice; }
};

std::span<const Knob> AllKnobs();
const Knob* FindKnob(std::string_view name);         // null when there is none
const Knob& NearestKnob(std::string_view mistyped);  // by edit distance

// REQUIRES: a choice.
std::vector<std::string_view> ChoicesOf(const Knob& knob);

// The values a knob takes, as the end of "... is not ": "a time from 1ms to 86400s".
std::string AllowedText(const Knob& knob);

// A number of the knob in the largest unit that divides it: "64KiB", "20us", "4096".
std::string NumberText(const Knob& knob, int64_t number);

// The opposite; a unit may be left out and a number have a fraction ("1.5ms"). Nothing when `text`
// is not a whole number of base units. The range is not looked at; far outside it, INT64_MIN or
// MAX.
std::optional<int64_t> ParseNumber(const Knob& knob, std::string_view text);

// The number of a knob that is one, or the index of a choice that is an enum.
int64_t GetNumber(const Knob& knob, const Config& config);
void SetNumber(const Knob& knob, int64_t number, Config* config);

// The value in base units without a unit ("65536"), and as the user writes it ("64KiB").
std::string PlainText(const Knob& knob, const Config& config);
std::string ValueText(const Knob& knob, const Config& config);

}  // namespace covey
#endif  // COVEY_CORE_BASE_KNOBS_H_
