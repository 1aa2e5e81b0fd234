// The contract of a Link between ranks on several hosts, for every engine of them: what arrives, in
// which order, and how the end of a peer is told. A test file of an engine instantiates it.
// Method: ranks of one thread on this machine; a rank that is killed is a process of its own.
#ifndef COVEY_TESTS_UNIT_OPS_TRANSPORTS_LINK_CASES_H_
#define COVEY_TESTS_UNIT_OPS_TRANSPORTS_LINK_CASES_H_

#include <signal.h>
#include <sys/wait.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/transport/mirrored.h"
#include "tests/unit/ops/transports/job.h"

namespace covey {

// An engine: the security of its door, and what is made of the door.
struct Engine {
  const char* security;
  Job::More more;
  int32_t streams = 1;
};

class LinkTest : public ::testing::TestWithParam<Engine> {
 protected:
  Job Make(int size, Time lease = 10 * kSecond) {
    return Job(size, GetParam().security, lease, AF_INET, GetParam().more, GetParam().streams);
  }
};

TEST_P(LinkTest, MessagesArriveInOrder) {
  Job job = Make(2);
  job.OpenAll();
  const size_t lengths[] = {0, 1, 23, 24, 16384, 16385, 100000, 5000000, 3, 0};
  for (int round = 0; round < 3; ++round)
    for (size_t length : lengths) {
      job.Send(0, 1, Pattern(length, round));
      job.Send(1, 0, Pattern(length, round + 1));
    }
  job.Until([&] { return job.mail(0).size() == 30 && job.mail(1).size() == 30; });
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(job.mail(1)[i].from, Rank{0});
    EXPECT_TRUE(job.mail(1)[i].bytes == Pattern(lengths[i % 10], i / 10)) << i;
    EXPECT_TRUE(job.mail(0)[i].bytes == Pattern(lengths[i % 10], i / 10 + 1)) << i;
  }
}

TEST_P(LinkTest, AMessageComesAfterThePutsBeforeIt) {
  Job job = Make(2);
  job.OpenAll();
  Bytes memory(size_t{8} << 20);
  job.link(1).Land(Rank{0}, memory);
  std::vector<std::pair<size_t, Bytes>> puts;
  size_t offset = 3;
  for (int i = 0; i < 20; ++i) {
    const size_t length = i % 4 == 0 ? 900000 + i : 7000 * i;
    puts.emplace_back(offset, Pattern(length, i));
    job.Put(0, 1, offset, puts.back().second);
    job.Send(0, 1, Pattern(4, i));
    offset += length + 1;
  }
  size_t seen = 0;
  job.Until([&] {
    for (; seen < job.mail(1).size(); ++seen) {
      const auto& [at, data] = puts[seen];
      EXPECT_EQ(std::memcmp(memory.data() + at, data.data(), data.size()), 0) << seen;
    }
    return seen == puts.size();
  });
  EXPECT_EQ(memory[puts[1].first - 1], std::byte{0});
  EXPECT_EQ(memory[offset - 1], std::byte{0});
}

TEST_P(LinkTest, LargePutsGoBothWaysAtOnce) {
  Job job = Make(2);
  job.OpenAll();
  const Bytes data[2] = {Pattern(size_t{20} << 20, 1), Pattern(size_t{20} << 20, 2)};
  Bytes memory[2] = {Bytes(data[0].size()), Bytes(data[0].size())};
  for (int r = 0; r < 2; ++r) {
    job.link(r).Land(Rank{1 - r}, memory[r]);
    job.Put(r, 1 - r, 0, data[r]);
    job.Send(r, 1 - r, Pattern(1, r));
  }
  job.Until([&] { return job.mail(0).size() == 1 && job.mail(1).size() == 1; });
  EXPECT_TRUE(memory[0] == data[1]);
  EXPECT_TRUE(memory[1] == data[0]);
  job.Until([&] { return job.link(0).Flushed() && job.link(1).Flushed(); });
}

// More connections than tcp looks at one by one.
TEST_P(LinkTest, AllPairsAreReached) {
  constexpr int kSize = 8;
  Job job = Make(kSize);
  job.OpenAll();
  for (int i = 0; i < 10; ++i)
    for (int from = 0; from < kSize; ++from)
      for (int to = 0; to < kSize; ++to)
        if (from != to) job.Send(from, to, Pattern(i * 3000, from * kSize + to));
  job.Until([&] {
    for (int r = 0; r < kSize; ++r)
      if (job.mail(r).size() < 10 * (kSize - 1)) return false;
    return true;
  });
  for (int r = 0; r < kSize; ++r) {
    int next[kSize] = {};
    for (const Job::Message& message : job.mail(r)) {
      const int from = ToInt(message.from);
      EXPECT_TRUE(message.bytes == Pattern(next[from]++ * 3000, from * kSize + r));
    }
    EXPECT_TRUE(job.losses(r).empty());
  }
}

TEST_P(LinkTest, TheLastWordsArriveBeforeTheEnd) {
  Job job = Make(2);
  job.OpenAll();
  job.Send(1, 0, Pattern(1, 1));  // lies unread at rank 0 while it closes
  ASSERT_TRUE(job.link(0).Send(Rank{1}, Pattern(2000000, 2)));
  ASSERT_TRUE(job.link(0).Send(Rank{1}, Pattern(7, 3)));
  job.Until([&] { return job.link(0).Flushed(); });
  job.Close(0);
  job.Until([&] { return !job.losses(1).empty(); });
  ASSERT_EQ(job.mail(1).size(), 2u);
  EXPECT_TRUE(job.mail(1)[1].bytes == Pattern(7, 3));
  EXPECT_EQ(job.losses(1)[0].rank, Rank{0});
  EXPECT_EQ(job.losses(1)[0].how.find("has died, or its host has ("), 0u);
}

TEST_P(LinkTest, WhatIsDroppedIsNotTouched) {
  Job job = Make(3);
  job.OpenAll();
  job.Send(0, 1, Pattern(5, 1));
  job.Until([&] { return job.mail(1).size() == 1; });
  Bytes memory(size_t{30} << 20);
  job.link(1).Land(Rank{0}, memory);
  const Bytes data = Pattern(memory.size(), 7);
  job.Put(0, 1, 0, data);
  ASSERT_TRUE(job.link(0).Send(Rank{1}, Pattern(1, 1)));
  EXPECT_FALSE(job.link(0).Flushed());
  job.link(0).Drop(Rank{1});
  EXPECT_TRUE(job.link(0).Flushed());
  job.Until([&] { return !job.losses(1).empty(); });
  EXPECT_EQ(memory.back(), std::byte{0});
  EXPECT_EQ(job.mail(1).size(), 1u);
  EXPECT_TRUE(job.losses(0).empty());
  job.link(1).Send(Rank{0}, Pattern(1, 1));  // goes nowhere
  job.Send(2, 0, Pattern(1, 1));
  job.Until([&] { return job.mail(0).size() == 1; });
}

TEST_P(LinkTest, AKilledPeerIsLost) {
  Job job = Make(2);
  const pid_t child = fork();
  if (child == 0) {
    job.Open(1);
    job.Send(1, 0, Pattern(100, 1));
    job.Until([] { return false; });
    _exit(1);
  }
  job.Close(1);
  job.Open(0);
  job.Until([&] { return job.mail(0).size() == 1; });
  kill(child, SIGKILL);
  job.Until([&] { return !job.losses(0).empty(); });
  EXPECT_EQ(job.losses(0)[0].rank, Rank{1});
  EXPECT_EQ(job.losses(0)[0].how.find("has died, or its host has ("), 0u);
  waitpid(child, nullptr, 0);
}

// The transport of ranks that share no memory, over this link.
TEST_P(LinkTest, CarriesMirrors) {
  constexpr uint64_t kArena = uint64_t{8} << 20;
  Job job = Make(2);
  job.OpenAll();
  std::unique_ptr<Transport> ranks[2];
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&job, &ranks, r] {
      const Mirrored::Options options{.arena_bytes = kArena, .start_timeout = kHardLimit};
      EXPECT_TRUE(Mirrored::Open(options, job.Take(r), &ranks[r]).ok());
    });
  for (std::thread& thread : threads) thread.join();
  const Rank to[] = {Rank{1}};
  const Bytes data = Pattern(3000000, 5);
  const uint64_t flag = ranks[0]->AllocShared(sizeof(uint64_t));
  auto* word = reinterpret_cast<uint64_t*>(ranks[0]->Base(Rank{0}) + flag);
  const uint64_t offset = ranks[0]->AllocShared(data.size());
  std::memcpy(ranks[0]->Base(Rank{0}) + offset, data.data(), data.size());
  ranks[0]->Push(to, ranks[0]->Base(Rank{0}) + offset, data.size());
  ranks[0]->StoreRelease(word, 17);
  ranks[0]->Wake(to);
  const auto* seen = reinterpret_cast<uint64_t*>(ranks[1]->Base(Rank{0}) + flag);
  const Time limit = MonotonicNow() + kHardLimit;
  Rank from = kNoRank;
  Bytes letter;
  while (ranks[1]->LoadAcquire(seen) != 17 && MonotonicNow() < limit)
    for (auto& rank : ranks) rank->TryReceive(&from, &letter);
  EXPECT_EQ(std::memcmp(ranks[1]->Base(Rank{0}) + offset, data.data(), data.size()), 0);
  std::thread closing([&ranks] { ranks[0].reset(); });
  while (ranks[1]->PollPeers().empty() && MonotonicNow() < limit)
    ranks[1]->TryReceive(&from, &letter);
  closing.join();
}

}  // namespace covey
#endif  // COVEY_TESTS_UNIT_OPS_TRANSPORTS_LINK_CASES_H_
