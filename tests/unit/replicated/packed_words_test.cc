// Words of members, and records, are read as they were written; those that are alike are short,
// whatever the number of members; bytes that are none are refused.
//
// Method: words and records that are drawn, of every degree of order, from none to all.
#include "core/replicated/packed_words.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "core/base/rng.h"
#include "core/partial/log.h"
#include "core/replicated/packed_record.h"

namespace covey {
namespace {

using Words = std::vector<uint64_t>;

Bytes Packed(const Words& words) {
  Writer writer;
  PackWords(words, &writer);
  return writer.Take();
}

// Their length; they are read as they were written.
size_t LengthOf(const Words& words) {
  const Bytes bytes = Packed(words);
  Reader reader(bytes);
  Words read(words.size());
  EXPECT_TRUE(UnpackWords(&reader, read) && reader.AtEnd());
  EXPECT_EQ(read, words);
  EXPECT_LE(bytes.size(), kMostPackedBytes * words.size());
  return bytes.size();
}

Words Drawn(size_t size, const std::function<uint64_t(size_t)>& word) {
  Words words;
  for (size_t i = 0; i < size; ++i) words.push_back(word(i));
  return words;
}

TEST(PackedWordsTest, WordsThatAreAlikeAreShortForAnyNumber) {
  constexpr uint64_t kStep = 1'000'000;
  for (const size_t size : {1, 2, 3, 15, 16, 17, 64, 1000, 100'000}) {
    EXPECT_LE(LengthOf(Drawn(size, [](size_t) { return uint64_t{0}; })), 5u);
    EXPECT_LE(LengthOf(Drawn(size, [](size_t) { return kStep; })), 8u);
    EXPECT_LE(LengthOf(Drawn(size, [](size_t i) { return uint64_t{i} + 1; })), 5u);
    EXPECT_LE(LengthOf(Drawn(size, [](size_t i) { return 0 - uint64_t{i}; })), 5u);
  }
}

TEST(PackedWordsTest, WordsThatDifferInAFewWaysTakeAsManyBits) {
  Rng rng(1);
  constexpr size_t kSize = 1024;
  constexpr uint64_t kLeft = (uint64_t{1} << 62) + 1;
  for (const uint64_t step : {3, 1'000'000}) {
    const auto of = [&](uint64_t kinds) {
      return LengthOf(Drawn(kSize, [&](size_t) { return step + rng.Below(kinds); }));
    };
    EXPECT_LE(of(2), kSize / 8 + 130);
    EXPECT_LE(of(4), kSize / 4 + 200);
    EXPECT_LE(of(16), kSize / 2 + 500);
    // A few others.
    EXPECT_LE(LengthOf(Drawn(kSize, [&](size_t i) { return i % 256 == 9 ? kLeft : step; })), 200u);
    EXPECT_LE(LengthOf(Drawn(kSize, [&](size_t i) { return i == 500 ? 0 : step; })), 80u);
  }
}

TEST(PackedWordsTest, AnyWordsAreReadAsTheyWereWritten) {
  Rng rng(2);
  for (int round = 0; round < 3000; ++round) {
    const uint64_t bits = rng.Below(64);
    const uint64_t order = rng.Below(100);
    uint64_t word = 0, step = 0;
    LengthOf(Drawn(1 + rng.Below(200), [&](size_t) {
      if (rng.Below(100) >= order) word = rng.Next() >> bits;
      if (rng.Percent(5)) step = rng.Percent(50) ? 0 : rng.Below(10) - 5;
      return word += step;
    }));
  }
}

TEST(PackedWordsTest, WhatIsNoneIsRefused) {
  const auto is_read = [](const Bytes& bytes, size_t size) {
    Reader reader(bytes);
    Words read(size);
    return UnpackWords(&reader, read) && reader.AtEnd();
  };
  const auto of = [](std::initializer_list<int> numbers) {
    Bytes bytes;
    for (const int number : numbers) bytes.push_back(static_cast<std::byte>(number));
    return bytes;
  };
  EXPECT_TRUE(is_read(of({3 << 1, 2, 0}), 3));
  EXPECT_FALSE(is_read(of({3 << 1, 2, 0}), 2)) << "a run that is longer than the words";
  EXPECT_FALSE(is_read(of({3 << 1, 2, 0}), 4)) << "too few";
  EXPECT_FALSE(is_read(of({0, 0, 0, 3 << 1, 2, 0}), 3)) << "a group of no words";
  EXPECT_TRUE(is_read(of({3 << 1 | 1, 2, 0, 1, 5}), 3));
  EXPECT_FALSE(is_read(of({3 << 1 | 1, 2, 0, 0, 5}), 3)) << "values that do not ascend";
  EXPECT_FALSE(is_read(of({3 << 1 | 1, 2, 0, 1, 13}), 3)) << "bits beyond the last word";
  EXPECT_FALSE(is_read(of({3 << 1 | 1, 0, 0, 0}), 3)) << "no values";
  EXPECT_FALSE(is_read(of({3 << 1 | 1, 4, 0, 1, 1, 1, 0}), 3)) << "more values than words";
  EXPECT_FALSE(is_read(of({3 << 1 | 1, 3, 0, 1, 1, 3}), 3)) << "an index beyond the values";
  EXPECT_FALSE(is_read(of({3 << 1, 130, 0, 0}), 3)) << "a number that is longer than it has to be";
  EXPECT_FALSE(is_read(of({3 << 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2, 0}), 3))
      << "a number of more than 64 bits";
  Rng rng(3);
  const Words words = Drawn(100, [&](size_t i) { return i < 50 ? 7 : rng.Below(9); });
  const Bytes bytes = Packed(words);
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(is_read({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length)}, 100));
}

class PackedRecordTest : public testing::Test {
 protected:
  void Open(int32_t size, int32_t hypers = 2) {
    memory_ = std::make_unique<RoundMemory>(RoundMemory::Shape{.size = size, .hypers = hypers},
                                            RoundLayout({}, 64));
    const auto members = static_cast<size_t>(size);
    contributions_.assign(members, {});
    consumed_.assign(members, 0);
    missing_.assign(members, 0);
    hypers_.assign(static_cast<size_t>(hypers), 0.25);
  }

  // A record as core/partial/tiles.cc makes it, with padding.
  Bytes Record(const Words& missing) const {
    Bytes record(memory_->record_bytes());
    std::byte* at = record.data();
    const auto put = [&at](const auto& items) {
      std::memcpy(at, items.data(), items.size() * sizeof(items[0]));
      at += items.size() * sizeof(items[0]);
    };
    put(std::vector<RecordHeader>{{.version = 9, .divisor = memory_->size(), .leader = 1}});
    put(contributions_);
    put(missing);
    if (!hypers_.empty()) put(hypers_);
    return record;
  }

  // Its length packed; it is read as it was written.
  size_t LengthOf(const Bytes& record) const {
    Writer writer;
    PackRecord(*memory_, {consumed_, missing_}, record.data(), &writer);
    const Bytes bytes = writer.Take();
    Reader reader(bytes);
    Bytes read;
    EXPECT_TRUE(UnpackRecord(*memory_, {consumed_, missing_}, &reader, &read) && reader.AtEnd());
    EXPECT_EQ(read, record);
    EXPECT_LE(bytes.size(), MostPackedRecordBytes(*memory_));
    for (size_t length = 0; length < bytes.size(); length += 1 + length / 16) {
      const std::span<const std::byte> all(bytes);
      Reader part(all.first(length));
      EXPECT_FALSE(UnpackRecord(*memory_, {consumed_, missing_}, &part, &read)) << length;
    }
    return bytes.size();
  }

  // A member in the version with its last `count` steps.
  void Put(size_t member, uint64_t last, uint64_t count) {
    consumed_[member] = last;
    contributions_[member] = {
        .first = last + 1 - count, .last = last, .count = count, .arrived = last};
  }

  std::unique_ptr<RoundMemory> memory_;
  std::vector<Contribution> contributions_;
  Words consumed_, missing_;
  std::vector<double> hypers_;
};

TEST_F(PackedRecordTest, WithoutLateMembersItIsShortForAnyNumber) {
  constexpr uint64_t kVersion = 1'000'000;
  for (const int32_t size : {1, 2, 16, 1024}) {
    Open(size);
    for (size_t i = 0; i < consumed_.size(); ++i) Put(i, kVersion, 1);
    EXPECT_LE(LengthOf(Record(missing_)), 60u) << size;
  }
}

// Each member has come, or comes later, with several steps at once, or with none of its own.
TEST_F(PackedRecordTest, ALateMemberTakesAFewBits) {
  Rng rng(4);
  constexpr uint64_t kVersion = 1'000'000;
  for (int round = 0; round < 10; ++round) {
    Open(1024);
    for (size_t i = 0; i < consumed_.size(); ++i) {
      if (rng.Percent(50))
        Put(i, kVersion - rng.Below(2), 1 + rng.Below(4));
      else
        consumed_[i] = kVersion - 1 - rng.Below(4);
    }
    EXPECT_LE(LengthOf(Record(missing_)), consumed_.size());
  }
}

TEST_F(PackedRecordTest, AnyRecordIsReadAsItWasWritten) {
  Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    Open(static_cast<int32_t>(1 + rng.Below(40)), static_cast<int32_t>(rng.Below(3)));
    Words missing(consumed_.size());
    const auto any = [&] { return rng.Next() >> rng.Below(64); };
    for (size_t i = 0; i < consumed_.size(); ++i) {
      Put(i, any(), rng.Below(3));
      if (rng.Percent(30)) contributions_[i] = {any(), any(), rng.Percent(50) ? 0 : any(), any()};
      if (rng.Percent(30)) consumed_[i] = any();
      if (rng.Percent(30)) missing[i] = rng.Below(4);
      if (rng.Percent(30)) missing_[i] = rng.Below(4);
    }
    LengthOf(Record(missing));
  }
}

}  // namespace
}  // namespace covey
