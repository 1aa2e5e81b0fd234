// Streams that travel together: planned once, one exchange per step, and whatever a rank does that
// the plan did not foresee, every operation ends right (agree-N5 to agree-N8).
//
// Method: whole runtimes in one process, random scheduling from a printed seed; contributions are
// powers of two plus a number of their own, so that one lost, doubled or swapped shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "tests/sim/simulator/world.h"

namespace covey {
namespace {

// The work of the ranks in one step: operations by number, submitted by every rank in its own
// order.
struct Job {
  explicit Job(World* w) : world(w) {}

  struct Share {
    int32_t rank;
    int number;
    Operation* operation;
    std::vector<float>* data;
    int64_t round;
  };

  static std::string NameOf(int number) { return "grad" + std::to_string(number); }
  static int64_t ElemsOf(int number) { return 3 + number * 7; }
  static float ValueOf(int32_t rank, int number, int64_t i, int64_t round) {
    return static_cast<float>((1 << rank) + number * 64 * (rank + 1) + i % 5 + round);
  }

  Share Submit(int32_t rank, int number, int64_t elems = 0, bool callback_only = false) {
    if (elems == 0) elems = ElemsOf(number);
    std::vector<float>& data = memory.emplace_back(static_cast<size_t>(elems));
    const int64_t round = rounds[{rank, number}]++;
    for (int64_t i = 0; i < elems; ++i)
      data[static_cast<size_t>(i)] = ValueOf(rank, number, i, round);
    Request r;
    r.kind = Kind::kAllreduce;
    r.group = world->GroupOn(rank, world->everybody());
    r.name = NameOf(number);
    r.callback_only = callback_only;
    r.inputs = r.outputs = {MakeTensor(DType::kF32, {elems}, data.data())};
    return {rank, number, world->Submit(rank, std::move(r)), &data, round};
  }

  void StepAFew(uint64_t most = 5) {
    for (uint64_t passes = world->rng().Below(most); passes > 0; --passes) world->Step();
  }

  // Every rank submits these operations in an order of its own, then waits for them in another.
  void Step(const std::vector<int>& numbers) {
    std::vector<Share> shares;
    for (int32_t rank = 0; rank < world->size(); ++rank) {
      std::vector<int> order = numbers;
      for (size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[world->rng().Below(i)]);
      for (int number : order) {
        shares.push_back(Submit(rank, number));
        StepAFew();
      }
    }
    Finish(&shares);
  }

  void Finish(std::vector<Share>* shares) {
    std::vector<Operation*> operations;
    for (const Share& s : *shares) {
      world->Await(s.rank, s.operation);
      StepAFew();
      operations.push_back(s.operation);
    }
    ASSERT_TRUE(world->RunUntilEnded(operations)) << "operations did not end";
    for (const Share& s : *shares) Check(s);
  }

  void Check(const Share& s) {
    ASSERT_TRUE(s.operation->status.ok()) << s.operation->status.message();
    for (size_t i = 0; i < s.data->size(); ++i) {
      float expected = 0;
      for (int32_t r = 0; r < world->size(); ++r)
        expected += ValueOf(r, s.number, static_cast<int64_t>(i), s.round);
      ASSERT_EQ((*s.data)[i], expected)
          << NameOf(s.number) << " on rank " << s.rank << " in round " << s.round;
    }
  }

  // Long enough for every plan that is due.
  void Settle() {
    for (int i = 0; i < 400; ++i) {
      world->AdvanceClock(20 * kMicrosecond);
      world->Step();
    }
  }

  uint64_t Messages() {
    uint64_t sum = 0;
    for (int32_t r = 0; r < world->size(); ++r)
      sum += world->runtime(r).counters().coordinator_messages;
    return sum;
  }
  uint64_t Exchanges() { return world->runtime(0).executor().counters().done; }
  uint64_t Voids() { return world->runtime(0).executor().counters().voided; }

  World* world;
  std::deque<std::vector<float>> memory;
  std::map<std::pair<int32_t, int>, int64_t> rounds;
};

class BundlesTest : public testing::TestWithParam<uint64_t> {
 protected:
  World::Options Ranks(int32_t size) {
    return {.size = size,
            .seed = GetParam(),
            .fusion = {.threshold_bytes = 1 << 20, .window = 10 * kMillisecond}};
  }
};

TEST_P(BundlesTest, WhatIsSubmittedTogetherTravelsTogether) {
  World world(Ranks(1 + static_cast<int32_t>(GetParam() % 5)));
  Job job(&world);
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  job.Step(all);
  job.Settle();
  const uint64_t messages = job.Messages();
  for (int step = 0; step < 3; ++step) {
    const uint64_t before = job.Exchanges();
    job.Step(all);
    EXPECT_EQ(job.Exchanges() - before, world.size() > 1 ? 1 : all.size());
  }
  EXPECT_EQ(job.Messages(), messages) << "a steady step asked the coordinator";
}

TEST_P(BundlesTest, WhatIsWaitedForInBetweenStaysApart) {
  World world(Ranks(3));
  Job job(&world);
  for (int step = 0; step < 3; ++step) {
    for (int number : {0, 1, 2}) job.Step({number});
    job.Settle();
  }
  EXPECT_EQ(job.Exchanges(), 9u);
}

TEST_P(BundlesTest, AMemberThatNobodySubmitsBreaksItAndTwiceDissolvesIt) {
  World world(Ranks(3));
  Job job(&world);
  job.Step({0, 1, 2, 3});
  job.Settle();
  job.Step({0, 1, 2, 3});
  EXPECT_EQ(job.Voids(), 0u);
  job.Step({0, 2, 3});
  EXPECT_EQ(job.Voids(), 1u);
  job.Step({0, 1, 2, 3});  // occurrence k of 1 is not that of the others any more
  EXPECT_EQ(job.Voids(), 2u);
  const uint64_t messages = job.Messages();
  for (int step = 0; step < 3; ++step) job.Step({0, 1, 2, 3});
  job.Step({1, 3});
  EXPECT_EQ(job.Voids(), 2u) << "a dissolved bundle was tried again";
  EXPECT_EQ(job.Messages(), messages) << "dissolved streams are still agreed";
}

TEST_P(BundlesTest, OneRankIsLateWithAMemberTheOthersWaitFor) {
  World world(Ranks(3));
  Job job(&world);
  job.Step({0, 1, 2});
  job.Settle();
  // Rank 1 waits for 0 before it submits the rest; the others submit everything first.
  std::vector<Job::Share> early;
  for (int32_t rank : {0, 2})
    for (int number : {2, 1, 0}) early.push_back(job.Submit(rank, number));
  job.StepAFew(50);
  const Job::Share awaited = job.Submit(1, 0);
  world.Await(1, awaited.operation);
  ASSERT_TRUE(world.RunUntilEnded({awaited.operation}));
  early.push_back(awaited);
  for (int number : {1, 2}) early.push_back(job.Submit(1, number));
  job.Finish(&early);
}

TEST_P(BundlesTest, OneRankWaitsWhileTheOthersHoldAPartAndDoNot) {
  World world(Ranks(3));
  Job job(&world);
  job.Step({0, 1, 2});
  job.Settle();
  std::vector<Job::Share> shares;
  for (int32_t rank : {0, 1, 2}) shares.push_back(job.Submit(rank, 0));
  shares.push_back(job.Submit(2, 2));
  job.StepAFew(50);
  world.Await(1, shares[1].operation);
  ASSERT_TRUE(world.RunUntilEnded({shares[0].operation, shares[1].operation, shares[2].operation}));
  EXPECT_FALSE(shares[3].operation->ended.load());
  for (int32_t rank : {0, 1}) shares.push_back(job.Submit(rank, 2));
  for (int32_t rank : {0, 1, 2}) shares.push_back(job.Submit(rank, 1));
  job.Finish(&shares);
}

TEST_P(BundlesTest, NobodyWaitsButCallbacksCome) {
  World world(Ranks(3));
  Job job(&world);
  job.Step({0, 1, 2});
  job.Settle();
  for (int round = 0; round < 2; ++round) {
    std::vector<Job::Share> shares;
    for (int32_t rank = 0; rank < 3; ++rank)
      for (int number : {2, 0}) shares.push_back(job.Submit(rank, number, 0, true));
    std::vector<Operation*> operations;
    for (const Job::Share& s : shares) operations.push_back(s.operation);
    ASSERT_TRUE(world.RunUntilEnded(operations));
    for (const Job::Share& s : shares) job.Check(s);
  }
  EXPECT_EQ(job.Voids(), 2u);
}

TEST_P(BundlesTest, AMemberChangesItsShapeEverywhere) {
  World world(Ranks(4));
  Job job(&world);
  job.Step({0, 1, 2});
  job.Settle();
  for (int round = 0; round < 4; ++round) {
    std::vector<Job::Share> shares;
    for (int32_t rank = 0; rank < 4; ++rank)
      for (int number : {0, 1, 2})
        shares.push_back(job.Submit(rank, number, number == 1 ? 100 + round % 2 : 0));
    job.Finish(&shares);
  }
}

TEST_P(BundlesTest, OneRankDeviatesAndOnlyThatTensorFails) {
  World world(Ranks(3));
  Job job(&world);
  job.Step({0, 1, 2});
  job.Settle();
  std::vector<Job::Share> good;
  std::vector<Operation*> bad;
  for (int32_t rank = 0; rank < 3; ++rank) {
    for (int number : {0, 1, 2}) {
      const Job::Share share = job.Submit(rank, number, number == 1 && rank == 1 ? 5 : 0);
      if (number == 1) {
        bad.push_back(share.operation);
        world.Await(rank, share.operation);
      } else {
        good.push_back(share);
      }
      job.StepAFew();
    }
  }
  job.Finish(&good);
  ASSERT_TRUE(world.RunUntilEnded(bad));
  for (const Operation* operation : bad) {
    EXPECT_EQ(operation->status.code(), StatusCode::kMismatch);
    EXPECT_NE(operation->status.message().find("ranks 0, 2 have [10], rank 1 has [5]"),
              std::string::npos)
        << operation->status.message();
  }
  job.Step({0, 1, 2});
}

TEST_P(BundlesTest, ALostRankIsNamedByEveryOperationOfTheBundle) {
  for (int kill_after = 0; kill_after < 60; kill_after += 7) {
    World world(Ranks(3));
    Job job(&world);
    job.Step({0, 1, 2});
    // Sometimes while the plan is under way.
    for (int passes = 0; passes < kill_after * 3; ++passes) world.Step();
    std::vector<Job::Share> shares;
    for (int32_t rank = 0; rank < 3; ++rank)
      for (int number : {0, 1, 2})
        if (rank != 2 || number < kill_after % 4) shares.push_back(job.Submit(rank, number));
    for (int passes = 0; passes < kill_after; ++passes) world.Step();
    world.network().Kill(Rank{2}, "has died");
    std::vector<Operation*> operations;
    for (const Job::Share& s : shares) {
      if (s.rank == 2) continue;
      world.Await(s.rank, s.operation);
      operations.push_back(s.operation);
    }
    ASSERT_TRUE(world.RunUntilEnded(operations)) << "killed after " << kill_after;
    for (const Job::Share& s : shares) {
      if (s.rank == 2) continue;
      if (s.operation->status.ok()) {
        job.Check(s);
      } else {
        EXPECT_EQ(s.operation->status.peer(), Rank{2}) << s.operation->status.message();
      }
    }
  }
}

// Ranks run through the same program each at its own pace, so that plans change, bundles break and
// exchanges begin while others are steps behind.
struct Runner {
  std::vector<int> todo;  // of the step under way, not yet submitted
  std::vector<Job::Share> open;
  size_t step = 0;
};

TEST_P(BundlesTest, RandomProgramsEndRightAtAnyPace) {
  World world(Ranks(2 + static_cast<int32_t>(GetParam() % 4)));
  Job job(&world);
  Rng& rng = world.rng();
  std::vector<std::vector<int>> program(25);
  int known = 3;
  const bool regular = GetParam() % 3 == 0;
  for (std::vector<int>& step : program) {
    if (rng.Percent(25)) known += static_cast<int>(rng.Below(3));
    const bool whole = regular || rng.Percent(80);
    for (int number = 0; number < known; ++number)
      if (whole || rng.Percent(70)) step.push_back(number);
  }
  std::vector<Runner> runners(static_cast<size_t>(world.size()));
  const auto act = [&](int32_t rank) {
    Runner& me = runners[static_cast<size_t>(rank)];
    if (!me.todo.empty()) {
      const size_t pick = rng.Below(me.todo.size());
      me.open.push_back(job.Submit(rank, me.todo[pick]));
      me.todo.erase(me.todo.begin() + static_cast<long>(pick));
    } else if (!me.open.empty()) {
      world.Await(rank, me.open.back().operation);
      if (!me.open.back().operation->ended.load()) return;
      job.Check(me.open.back());
      me.open.pop_back();
    } else if (me.step < program.size()) {
      me.todo = program[me.step++];
    }
  };
  const auto done = [&] {
    return std::all_of(runners.begin(), runners.end(), [&](const Runner& r) {
      return r.step == program.size() && r.todo.empty() && r.open.empty();
    });
  };
  for (int turn = 0; !done(); ++turn) {
    ASSERT_LT(turn, 400000) << "the program does not end";
    act(static_cast<int32_t>(rng.Below(static_cast<uint64_t>(world.size()))));
    if (HasFatalFailure()) return;
    // In every second seed messages take long compared with what ranks do meanwhile.
    if (GetParam() % 2 == 0) world.AdvanceClock(static_cast<Time>(rng.Below(200 * kMicrosecond)));
    for (uint64_t passes = rng.Below(4); passes > 0; --passes) world.Step();
  }
  if (regular) {
    EXPECT_EQ(job.Voids(), 0u) << "a plan that fits every step was broken";
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, BundlesTest, testing::Range<uint64_t>(1, 61));

TEST(BundlePlanTest, ThresholdWaitsClassesAndTheWindowDecide) {
  const auto candidate = [](const std::string& name, int64_t elems, uint64_t waits, Time at) {
    Candidate c;
    c.stream = name;
    c.signature.kind = Kind::kAllreduce;
    Shape shape;
    shape.ndim = 1;
    shape.dims[0] = elems;
    c.signature.shapes = {shape};
    c.waits = {waits, waits};
    c.submitted_at = {at, at + 5};
    return c;
  };
  const FusionRules rules{.threshold_bytes = 400, .window = 100};
  std::vector<Candidate> candidates = {
      candidate("a", 50, 0, 10), candidate("b", 40, 0, 20),  candidate("c", 30, 0, 30),
      candidate("d", 1, 1, 40),  candidate("e", 1, 0, 500),  candidate("f", 1, 0, 550),
      candidate("g", 1, 1, 45),  candidate("h", 70, 0, 560),
  };
  using Plan = std::vector<std::vector<size_t>>;
  EXPECT_EQ(PlanBundles(candidates, rules), (Plan{{0, 1}, {3, 6}, {4, 5, 7}}));
  candidates[1].signature.dtype = DType::kI32;
  candidates[6].waits[1] = 7;
  candidates[7].submitted_at[1] = 700;
  EXPECT_EQ(PlanBundles(candidates, rules), (Plan{{0, 2}, {4, 5}}));
}

}  // namespace
}  // namespace covey
