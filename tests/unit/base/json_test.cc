// Goal: any bytes become a valid JSON string. Method: cases of each kind, valid and broken UTF-8.
#include "core/base/json.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

std::string Json(std::string_view text) {
  std::string json;
  AppendJsonString(text, &json);
  return json;
}

TEST(Json, EscapesWhatJsonForbidsInStrings) {
  EXPECT_EQ(Json(""), R"("")");
  EXPECT_EQ(Json("layer.0/weight"), R"("layer.0/weight")");
  EXPECT_EQ(Json("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(Json("a\nb\tc\rd"), R"("a\nb\tc\rd")");
  EXPECT_EQ(Json(std::string_view("\0\x1f\x7f", 3)), R"("\u0000\u001f\u007f")");
}

TEST(Json, KeepsValidUtf8) {
  EXPECT_EQ(Json("\u00e9\u20ac\U0001f600"), "\"\u00e9\u20ac\U0001f600\"");
  EXPECT_EQ(Json("\xf4\x8f\xbf\xbf"), "\"\xf4\x8f\xbf\xbf\"");
}

TEST(Json, ReplacesWhatIsNotUtf8) {
  const std::string replaced = "\xef\xbf\xbd";
  EXPECT_EQ(Json("a\xff"
                 "b"),
            "\"a" + replaced + "b\"");
  EXPECT_EQ(Json("\xc3"), "\"" + replaced + "\"") << "cut off";
  EXPECT_EQ(Json("\xc3("), "\"" + replaced + "(\"") << "no continuation";
  EXPECT_EQ(Json("\xc0\x80"), "\"" + replaced + replaced + "\"") << "longer than needed";
  EXPECT_EQ(Json("\xe0\x80\x80"), "\"" + replaced + replaced + replaced + "\"");
  EXPECT_EQ(Json("\xed\xa0\x80"), "\"" + replaced + replaced + replaced + "\"") << "a surrogate";
  EXPECT_EQ(Json("\xf4\x90\x80\x80").size(), 2 + 4 * replaced.size()) << "above U+10FFFF";
}

}  // namespace
}  // namespace covey
