// Goal: a value of a setting means what was written.
// Method: texts as users write them, read and made types; how many ranks a rule waits for.
#include "core/method/value_syntax.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

AdmitRule Admit(const char* text) { return AdmitOf(*ReadAs(ValueSyntax::kAdmission, text)); }
Duration Limit(const char* text) { return LimitOf(*ReadAs(ValueSyntax::kLimit, text)); }
Duration Grace(const char* text) { return TimeOf(*ReadAs(ValueSyntax::kTimeOrAuto, text)); }

TEST(ValueSyntax, AdmissionsAreCountsFractionsOrDrawnRanks) {
  EXPECT_EQ(Admit("solo"), (AdmitRule{.kind = AdmitRule::Kind::kCount, .count = 1}));
  EXPECT_EQ(Admit("3"), (AdmitRule{.kind = AdmitRule::Kind::kCount, .count = 3}));
  EXPECT_EQ(Admit("all"), AdmitRule::All());
  EXPECT_EQ(Admit("0.5"), (AdmitRule{.kind = AdmitRule::Kind::kFraction, .permille = 500}));
  EXPECT_EQ(Admit("majority"), (AdmitRule{.kind = AdmitRule::Kind::kDrawn, .count = 1}));
  EXPECT_EQ(Admit("first2"), (AdmitRule{.kind = AdmitRule::Kind::kDrawn, .count = 2}));
}

TEST(ValueSyntax, ARuleWaitsForSoManyRanks) {
  const struct {
    const char* text;
    int32_t size, wanted;
  } cases[] = {{"solo", 5, 1},     {"3", 5, 3},      {"3", 2, 2},    {"all", 5, 5},
               {"all", 1, 1},      {"0.5", 4, 2},    {"0.5", 5, 3},  {"0.1", 5, 1},
               {"majority", 5, 1}, {"first2", 5, 1}, {"0.999", 8, 8}};
  for (const auto& one : cases)
    EXPECT_EQ(Admit(one.text).Needed(one.size), one.wanted) << one.text << " of " << one.size;
}

TEST(ValueSyntax, WaitsAreOffAutoOrATime) {
  EXPECT_EQ(Limit("off"), Duration{});
  EXPECT_EQ(Limit("auto"), Duration::Auto());
  EXPECT_EQ(Limit("300ms"), Duration::Of(300 * kMillisecond));
  EXPECT_EQ(Grace("auto"), Duration::Auto());
  EXPECT_EQ(Grace("0s"), Duration::Of(0));
}

TEST(ValueSyntax, NormsAreNumbers) {
  EXPECT_EQ(NormOf(*ReadAs(ValueSyntax::kNorm, "0.25")), 0.25);
  EXPECT_EQ(NormOf(*ReadAs(ValueSyntax::kNorm, "off")), 0);
  EXPECT_EQ(ReadAs(ValueSyntax::kNorm, "0.0"), std::nullopt) << "none is off";
  EXPECT_EQ(DecimalOf(*ReadAs(ValueSyntax::kDecimal, "0.0")), 0) << "as Python writes it";
  EXPECT_EQ(DecimalOf(*ReadAs(ValueSyntax::kDecimal, "0")), 0);
  EXPECT_EQ(ReadAs(ValueSyntax::kDecimal, "-0.5"), std::nullopt);
}

}  // namespace
}  // namespace covey
