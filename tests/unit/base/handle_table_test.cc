// Goal: an object is found by its handle while it is open, counts for ever, and is given back once,
// when nothing can touch it any more, unless the table was frozen before.
// Method: objects that say whether they can be freed; threads that keep, find and close at once.
#include "core/base/handle_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace covey {
namespace {

struct Thing {
  struct Totals {
    int uses = 0;
    Totals& operator+=(const Totals& more) {
      uses += more.uses;
      return *this;
    }
  };

  void Close() { is_closed = true; }
  bool CanBeFreed() const { return is_closed && can_be_freed; }
  Totals totals() const { return {uses}; }
  void Interrupt() { is_interrupted = true; }

  int uses = 1;
  bool is_closed = false, is_interrupted = false, can_be_freed = false;
};

TEST(HandleTableTest, HandlesOfTwoTablesDiffer) {
  HandleTable<Thing> early, late;
  const uint64_t handle = early.Keep(std::make_unique<Thing>(), 1000);
  EXPECT_EQ(early.Keep(std::make_unique<Thing>(), 5000), handle + 1) << "the first decides";
  late.Keep(std::make_unique<Thing>(), 2000);
  EXPECT_EQ(late.Find(handle), nullptr);
  EXPECT_NE(early.Find(handle), nullptr);
}

TEST(HandleTableTest, AClosedOneIsNotFoundCountsAndIsGivenBackOnceItCanBe) {
  HandleTable<Thing> table;
  const uint64_t first = table.Keep(std::make_unique<Thing>(), 1);
  const uint64_t second = table.Keep(std::make_unique<Thing>(), 1);
  Thing* closed = table.Find(first);
  table.Find(second)->uses = 10;
  table.Close(first);
  table.Close(first);
  EXPECT_EQ(table.Find(first), nullptr);
  EXPECT_TRUE(closed->is_closed);
  EXPECT_EQ(table.Sum().uses, 11) << "once";
  EXPECT_TRUE(table.TakeUnused().empty());
  closed->can_be_freed = true;
  EXPECT_EQ(table.TakeUnused().size(), 1u);
  EXPECT_TRUE(table.TakeUnused().empty());
  EXPECT_EQ(table.Sum().uses, 11);
  table.Interrupt();
  EXPECT_TRUE(table.Find(second)->is_interrupted);
}

TEST(HandleTableTest, AFrozenOneGivesNothingBack) {
  HandleTable<Thing> table;
  const uint64_t closed = table.Keep(std::make_unique<Thing>(), 1);
  table.Keep(std::make_unique<Thing>(), 1);
  table.Find(closed)->can_be_freed = true;
  table.Close(closed);
  EXPECT_EQ(table.Freeze().size(), 2u);
  EXPECT_TRUE(table.TakeUnused().empty());
  EXPECT_TRUE(table.Freeze().empty()) << "the second time";
}

TEST(HandleTableTest, ThreadsMayDoAllOfItAtOnce) {
  constexpr int kThreads = 4, kTimes = 2000;
  HandleTable<Thing> table;
  std::atomic<int> given_back{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < kTimes; ++i) {
        auto thing = std::make_unique<Thing>();
        thing->can_be_freed = true;
        const uint64_t handle = table.Keep(std::move(thing), 1);
        ASSERT_NE(table.Find(handle), nullptr);
        table.Close(handle);
        given_back += static_cast<int>(table.TakeUnused().size());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(given_back, kThreads * kTimes);
  EXPECT_EQ(table.Sum().uses, kThreads * kTimes);
}

}  // namespace
}  // namespace covey
