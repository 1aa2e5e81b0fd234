// Goal: the contract of core/transport/shared_atomics.h holds for words that threads share.
// Method: counts that every lost exchange would change; and sleepers that must wake.
#include "ops/transports/shm_words.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/base/clock.h"

namespace covey {
namespace {

TEST(ShmWordsTest, ExchangesAreNeverLost) {
  constexpr uint64_t kThreads = 4, kEach = 20000;
  alignas(64) uint64_t word = 0;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&word] {
      ShmWords words;
      for (uint64_t i = 0; i < kEach; ++i) {
        uint64_t seen = words.Load(&word);
        while (!words.CompareExchange(&word, seen, seen + 1)) seen = words.Load(&word);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ShmWords().Load(&word), kThreads * kEach);
}

// What was written before a store is seen with it, and a reader that finds the word unchanged has
// read what belongs to it.
TEST(ShmWordsTest, BytesBelongToTheWordTheyWereWrittenBefore) {
  constexpr uint64_t kRounds = 20000;
  alignas(64) uint64_t word = 0;
  alignas(64) uint64_t answer = 0;
  uint64_t bytes = 0;
  std::thread reader([&] {
    ShmWords words;
    for (uint64_t round = 1; round <= kRounds; ++round) {
      while (words.Load(&word) != round) std::this_thread::yield();
      EXPECT_EQ(bytes, round * 3);
      words.Store(&answer, round);
    }
  });
  ShmWords words;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    bytes = round * 3;
    words.Store(&word, round);
    while (words.Load(&answer) != round) std::this_thread::yield();
  }
  reader.join();
}

TEST(ShmWordsTest, ARingWakesWhoeverHadATicketBefore) {
  constexpr int kRounds = 2000, kLooks = 10000;
  alignas(64) uint64_t bell = 0;
  alignas(64) uint64_t word = 0;
  alignas(64) uint64_t answer = 0;
  std::thread sleeper([&] {
    ShmWords words;
    for (uint64_t round = 1; round <= kRounds; ++round) {
      for (;;) {
        const uint32_t ticket = words.Ticket(&bell);
        if (words.Load(&word) >= round) break;
        words.Sleep(&bell, ticket, kNever);  // a lost ring would hang here
      }
      words.Store(&answer, round);
      std::atomic_ref(answer).notify_one();
    }
  });
  ShmWords words;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    words.Store(&word, round);
    words.Ring(&bell);
    // It rings while the other one falls asleep; where that is not woken, nothing runs.
    for (int looks = 0; words.Load(&answer) != round; ++looks) {
      if (looks < kLooks)
        std::this_thread::yield();
      else
        std::atomic_ref(answer).wait(round - 1);
    }
  }
  sleeper.join();
}

TEST(ShmWordsTest, WithoutARingSleepEndsInTime) {
  alignas(64) uint64_t bell = 0;
  ShmWords words;
  const Time until = MonotonicNow() + kMillisecond;
  while (MonotonicNow() < until) words.Sleep(&bell, words.Ticket(&bell), until);
  words.Sleep(&bell, words.Ticket(&bell), MonotonicNow() - 1);  // past already
}

}  // namespace
}  // namespace covey
