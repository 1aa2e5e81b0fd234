// How the values of a method's parameters are read and written. Pure; any thread.
#ifndef COVEY_CORE_METHOD_VALUE_SYNTAX_H_
#define COVEY_CORE_METHOD_VALUE_SYNTAX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/method/settings.h"

namespace covey {

// How a parameter is written. Its value is a whole number in any case.
enum class ValueSyntax : uint8_t {
  kNumber,
  kTime,        // "20ms"; nanoseconds
  kProgress,    // "lockstep" or "skip": 0 or 1
  kAdmission,   // "solo", "all", a number of ranks, or "0.5" of them: ranks, or minus permille
  kOrAuto,      // "auto", or a number from 1: 0, or that
  kNorm,        // "off", or a number such as "0.25": 0, or millionths
  kTimeOrAuto,  // "auto", or as kTime: kAutoTime, or that
  kPairing,     // "auto", or a topology that gives pairs: 0, or 1 + its place in kPairKinds
  kSpacing,     // "fixed" or "geometric": 0 or 1
  kForm,        // "blocking" or "nonblocking": 0 or 1
  kTopology,    // a topology but a matrix: 1 + its place in TopologyKind
  kOrder,       // "cwa" or "atc": 0 or 1
  kLimit,       // "off", "auto", or as kTime and not 0: kOff, kAutoTime, or that
  kDecimal,     // a number such as "0.7", or 0: millionths
  kEvery,       // a number; 1 is as if there were no such parameter
};
inline constexpr int64_t kAdmitSolo = 1;
inline constexpr int64_t kAdmitAll = -1000;
inline constexpr int64_t kAuto = 0;
inline constexpr int64_t kAutoTime = -1;
inline constexpr int64_t kOff = 0;
// "majority", "first2": one of so many drawn ranks; this minus their number.
inline constexpr int64_t kAdmitDrawn = -2000;
inline constexpr int64_t kMostDrawn = 1000;

// Nothing when `text` is no such value. Negative admissions are not written as numbers.
std::optional<int64_t> ReadAs(ValueSyntax syntax, std::string_view text);

// The text that ReadAs reads as `value`; equal values give equal texts.
std::string WriteAs(ValueSyntax syntax, int64_t value);

// The typed value of kAdmission; of kLimit; of kTime, or kTimeOrAuto; of kNorm (0: none); of
// kDecimal.
AdmitRule AdmitOf(int64_t value);
Duration LimitOf(int64_t value);
Duration TimeOf(int64_t value);
double NormOf(int64_t value);
double DecimalOf(int64_t value);

// Whether its values are two words.
bool IsOneOfTwo(ValueSyntax syntax);

}  // namespace covey
#endif  // COVEY_CORE_METHOD_VALUE_SYNTAX_H_
