// A letter that is written and read is the same, and bytes that are none are refused.
#include "core/replicated/letter.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

Letter Full() {
  Letter letter{.kind = LetterKind::kEntry,
                .attempt = 7,
                .executed = 8,
                .version = 9,
                .kept = 10,
                .number = 11,
                .standing = 12,
                .applied = 13,
                .tries = 14,
                .max_wait = 15,
                .left = true};
  letter.need = 16;
  letter.quiet = true;
  letter.over = 17;
  letter.ask = 18;
  letter.ask_version = 19;
  letter.content = {.first = 20, .last = 21, .count = 22};
  letter.consumed = 23;
  letter.list = {1, 2};
  letter.missing = {3};
  letter.hypers = {0.5, -1};
  letter.body = {std::byte{1}, std::byte{2}, std::byte{3}};
  return letter;
}

TEST(LetterTest, IsReadAsItWasWritten) {
  const Bytes bytes = Full().Encode();
  Letter letter;
  ASSERT_TRUE(Letter::Decode(bytes, &letter));
  EXPECT_EQ(letter.Encode(), bytes);
  EXPECT_EQ(letter.kind, LetterKind::kEntry);
  EXPECT_EQ(letter.max_wait, 15);
  EXPECT_TRUE(letter.left && letter.quiet && !letter.is_void);
  EXPECT_EQ(letter.content.count, 22u);
  EXPECT_EQ(letter.consumed, 23u);
  EXPECT_EQ(letter.ask_version, 19u);
  EXPECT_EQ(letter.hypers, (std::vector<double>{0.5, -1}));
  EXPECT_EQ(letter.body.size(), 3u);
}

TEST(LetterTest, WhatIsNoneIsRefused) {
  Bytes bytes = Full().Encode();
  Letter letter;
  // The body may have any length; all before it is needed.
  for (size_t length = 0; length + 3 < bytes.size(); ++length)
    EXPECT_FALSE(Letter::Decode(std::span(bytes).first(length), &letter)) << length;
  bytes[0] = std::byte{0};
  EXPECT_FALSE(Letter::Decode(bytes, &letter));
  bytes[0] = std::byte{200};
  EXPECT_FALSE(Letter::Decode(bytes, &letter));
}

}  // namespace
}  // namespace covey
