// Ranks that run out of data: the others go on, every operation ends right, and afterwards all go
// on together (agree-N10).
//
// Method: whole runtimes in one process, random scheduling from a printed seed; every rank has a
// number of steps of its own, in an order of operations of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "tests/sim/simulator/world.h"

namespace covey {
namespace {

struct Pending {
  Operation* operation;
  std::vector<float>* data;
  float expected;
};

class JoinTest : public testing::TestWithParam<uint64_t> {
 protected:
  JoinTest()
      : world_({.size = 2 + static_cast<int32_t>(GetParam() % 4),
                .seed = GetParam(),
                .fusion = {.threshold_bytes = 1 << 20, .window = 10 * kMillisecond}}) {}

  Operation* Join(int32_t rank) {
    Request r;
    r.kind = Kind::kJoin;
    r.group = world_.GroupOn(rank, world_.everybody());
    return world_.Submit(rank, std::move(r));
  }

  Request Allreduce(int32_t rank, const std::string& name, Op op, float value) {
    std::vector<float>& data = memory_.emplace_back(40, value);
    Request r;
    r.kind = Kind::kAllreduce;
    r.group = world_.GroupOn(rank, world_.everybody());
    r.name = name;
    r.op = op;
    r.inputs = r.outputs = {MakeTensor(DType::kF32, {40}, data.data())};
    return r;
  }

  static void Encode(Request* r) {
    r->codec = "int8@block=16";
    r->form = {.block_elems = 16, .header_bytes = 4, .elem_bits = 8};
  }

  World world_;
  std::deque<std::vector<float>> memory_;
};

float Combine(Op op, const std::vector<float>& values) {
  float result = values[0];
  for (size_t i = 1; i < values.size(); ++i) {
    if (op == Op::kMin) result = std::min(result, values[i]);
    if (op == Op::kMax) result = std::max(result, values[i]);
    if (op == Op::kProduct) result *= values[i];
    if (op == Op::kSum) result += values[i];
  }
  return result;
}

// Two epochs of training; in each, rank r has `steps[r]` batches. No rank waits for another between
// steps.
TEST_P(JoinTest, RanksWithMoreDataGoOnAndTheSecondEpochWorks) {
  Rng& rng = world_.rng();
  const auto size = static_cast<size_t>(world_.size());
  constexpr Op kOps[] = {Op::kSum, Op::kMin, Op::kMax, Op::kProduct};
  const std::vector<std::string> names = {"a", "b", "", "c"};
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<int> steps;
    for (size_t r = 0; r < size; ++r) steps.push_back(static_cast<int>(rng.Below(6)));
    const auto value_of = [&](size_t r, int step, size_t op) {
      return static_cast<float>((r + 1) * (r + 2) + static_cast<size_t>(step) + op + 1);
    };
    const auto expected_of = [&](int step, size_t op) {
      std::vector<float> values;
      for (size_t r = 0; r < size; ++r) {
        if (steps[r] > step)
          values.push_back(value_of(r, step, op));
        else if (kOps[op] == Op::kSum)
          values.push_back(0);
      }
      return Combine(kOps[op], values);
    };
    std::vector<int> done(size, 0);
    std::vector<std::vector<Pending>> open(size);
    std::vector<Operation*> joins(size, nullptr);
    const auto act = [&](size_t r) {
      const auto rank = static_cast<int32_t>(r);
      if (!open[r].empty()) {
        const Pending& p = open[r].back();
        world_.Await(rank, p.operation);
        if (!p.operation->ended.load()) return;
        ASSERT_TRUE(p.operation->status.ok()) << p.operation->status.message();
        for (float v : *p.data) ASSERT_EQ(v, p.expected) << "rank " << rank;
        open[r].pop_back();
      } else if (done[r] < steps[r]) {
        for (size_t op = 0; op < names.size(); ++op) {
          Request request = Allreduce(rank, names[op], kOps[op], value_of(r, done[r], op));
          std::vector<float>* data = &memory_.back();
          open[r].push_back(
              {world_.Submit(rank, std::move(request)), data, expected_of(done[r], op)});
        }
        ++done[r];
      } else if (joins[r] == nullptr) {
        joins[r] = Join(rank);
      }
    };
    const auto all_joined = [&] {
      return std::all_of(joins.begin(), joins.end(),
                         [](const Operation* j) { return j != nullptr && j->ended.load(); });
    };
    for (int turn = 0; !all_joined(); ++turn) {
      ASSERT_LT(turn, 300000) << "the epoch does not end";
      act(rng.Below(size));
      if (HasFatalFailure()) return;
      for (uint64_t passes = rng.Below(4); passes > 0; --passes) world_.Step();
    }
    for (const Operation* join : joins) {
      ASSERT_TRUE(join->status.ok()) << join->status.message();
      EXPECT_EQ(join->rows, joins[0]->rows) << "ranks disagree who joined last";
    }
  }
}

TEST_P(JoinTest, WhatAJoinedRankCannotTakePartInFailsEverywhereAndTheNextCallWorks) {
  const int32_t last = world_.size() - 1;
  Operation* early = Join(last);
  for (int32_t kind = 0; kind < 4; ++kind) {
    std::vector<Operation*> refused;
    for (int32_t rank = 0; rank < last; ++rank) {
      Request r = Allreduce(rank, "x", Op::kSum, 1.0f);
      if (kind == 0) r.kind = Kind::kBroadcast, r.root = Rank{0};
      if (kind == 1) r.kind = Kind::kAllgather, r.outputs.clear();
      if (kind == 2) r.op = Op::kProduct, r.prescale = 2.0;
      if (kind == 3) r.op = Op::kMax, Encode(&r);
      refused.push_back(world_.Submit(rank, std::move(r)));
    }
    ASSERT_TRUE(world_.RunUntilEnded(refused));
    for (const Operation* operation : refused) {
      EXPECT_EQ(operation->status.code(), StatusCode::kUnsupported);
      const std::string named = "rank " + std::to_string(last) + " has joined";
      EXPECT_NE(operation->status.message().find(named), std::string::npos)
          << operation->status.message();
    }
  }
  std::vector<Operation*> good;
  for (int32_t rank = 0; rank < last; ++rank)
    for (const bool coded : {false, true}) {
      Request r = Allreduce(rank, coded ? "coded" : "x", Op::kSum, 2.0f);
      if (coded) Encode(&r);
      good.push_back(world_.Submit(rank, std::move(r)));
    }
  ASSERT_TRUE(world_.RunUntilEnded(good));
  EXPECT_TRUE(good[0]->status.ok()) << good[0]->status.message();
  EXPECT_EQ(memory_.back()[7], 2.0f * static_cast<float>(last));
  EXPECT_FALSE(early->ended.load());
  std::vector<Operation*> joins = {early};
  for (int32_t rank = 0; rank < last; ++rank) joins.push_back(Join(rank));
  ASSERT_TRUE(world_.RunUntilEnded(joins));
}

TEST_P(JoinTest, ARankThatJoinedMaySubmitNothingUntilItReturns) {
  Operation* join = Join(1);
  for (int i = 0; i < 200; ++i) world_.Step();
  Operation* wrong = world_.Submit(1, Allreduce(1, "x", Op::kSum, 1.0f));
  ASSERT_TRUE(world_.RunUntilEnded({wrong}));
  EXPECT_EQ(wrong->status.code(), StatusCode::kInvalidArgument);
  std::vector<Operation*> joins = {join};
  for (int32_t rank = 0; rank < world_.size(); ++rank)
    if (rank != 1) joins.push_back(Join(rank));
  ASSERT_TRUE(world_.RunUntilEnded(joins));
}

TEST_P(JoinTest, ALostRankEndsTheJoin) {
  Operation* join = Join(0);
  for (uint64_t passes = world_.rng().Below(100); passes > 0; --passes) world_.Step();
  world_.network().Kill(Rank{1}, "has died");
  ASSERT_TRUE(world_.RunUntilEnded({join}));
  EXPECT_EQ(join->status.code(), StatusCode::kAborted);
  EXPECT_EQ(join->status.peer(), Rank{1});
}

INSTANTIATE_TEST_SUITE_P(Seeds, JoinTest, testing::Range<uint64_t>(1, 61));

}  // namespace
}  // namespace covey
