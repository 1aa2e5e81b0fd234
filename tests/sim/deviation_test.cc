// When ranks disagree: every member gets one error naming ranks and both values, inputs stay whole,
// and the next operation works. When a rank is lost, the others learn which.
//
// Method: whole runtimes in one process, random scheduling from a printed seed.
#include <gtest/gtest.h>

#include <functional>

#include "tests/sim/simulator/world.h"

namespace covey {
namespace {

using Change = std::function<void(Request*)>;

Request Allreduce(World* world, int32_t rank, const std::string& name, std::vector<float>* data) {
  Request r;
  r.kind = Kind::kAllreduce;
  r.group = world->GroupOn(rank, world->everybody());
  r.name = name;
  r.inputs =
      r.outputs = {MakeTensor(DType::kF32, {static_cast<int64_t>(data->size())}, data->data())};
  return r;
}

// All ranks submit `name`, rank `odd` with a change. Returns the operations.
std::vector<Operation*> SubmitAll(World* world, const std::string& name,
                                  std::vector<std::vector<float>>* data, int32_t odd,
                                  const Change& change) {
  std::vector<Operation*> operations;
  for (int32_t r = 0; r < world->size(); ++r) {
    Request request = Allreduce(world, r, name, &(*data)[static_cast<size_t>(r)]);
    if (r == odd) change(&request);
    operations.push_back(world->Submit(r, std::move(request)));
    for (uint64_t passes = world->rng().Below(6); passes > 0; --passes) world->Step();
  }
  return operations;
}

struct Deviation {
  const char* name;
  Change change;
  const char* text;  // part of the message
};

const Deviation kDeviations[] = {
    {"shape", [](Request* r) { r->inputs[0].shape.dims[0] = r->outputs[0].shape.dims[0] = 3; },
     "shapes differ: ranks 0, 2 have [6], rank 1 has [3]"},
    {"dtype", [](Request* r) { r->inputs[0].dtype = r->outputs[0].dtype = DType::kI32; },
     "dtypes differ: ranks 0, 2 have float32, rank 1 has int32"},
    {"op", [](Request* r) { r->op = Op::kMax; },
     "reduction ops differ: ranks 0, 2 have sum, rank 1 has max"},
    {"average", [](Request* r) { r->average = true; },
     "reduction ops differ: ranks 0, 2 have sum, rank 1 has average"},
    {"prescale", [](Request* r) { r->prescale = 0.5; },
     "prescale factors differ: ranks 0, 2 have 1, rank 1 has 0.5"},
    {"postscale", [](Request* r) { r->postscale = 3; },
     "postscale factors differ: ranks 0, 2 have 1, rank 1 has 3"},
    {"codec",
     [](Request* r) {
       r->codec = "bf16";
       r->form = {.block_elems = 64, .elem_bits = 16};
     },
     "codecs differ: ranks 0, 2 have none, rank 1 has bf16"},
    {"kind",
     [](Request* r) {
       r->kind = Kind::kBroadcast;
       r->root = Rank{1};
     },
     "operations differ: ranks 0, 2 have allreduce, rank 1 has broadcast"},
    {"tensors",
     [](Request* r) {
       r->inputs.push_back(r->inputs[0]);
       r->outputs.push_back(r->outputs[0]);
     },
     "numbers of tensors differ: ranks 0, 2 have 1, rank 1 has 2"},
};

class DeviationTest : public testing::TestWithParam<uint64_t> {};

TEST_P(DeviationTest, EveryMemberHearsBothValuesAndTheNextCallWorks) {
  for (const Deviation& deviation : kDeviations) {
    for (const bool agreed_before : {false, true}) {
      SCOPED_TRACE(std::string(deviation.name) +
                   (agreed_before ? " after agreement" : " at first occurrence"));
      World world({.size = 3, .seed = GetParam()});
      std::vector<std::vector<float>> data(3, std::vector<float>(6));
      const Change none = [](Request*) {};
      const auto fill = [&] {
        for (size_t r = 0; r < 3; ++r)
          for (float& v : data[r]) v = static_cast<float>(1 << r);
      };
      for (int warm = 0; agreed_before && warm < 2; ++warm) {
        fill();
        ASSERT_TRUE(world.RunUntilEnded(SubmitAll(&world, "x", &data, -1, none)));
      }
      fill();
      const auto failed = SubmitAll(&world, "x", &data, 1, deviation.change);
      ASSERT_TRUE(world.RunUntilEnded(failed));
      for (const Operation* operation : failed) {
        EXPECT_EQ(operation->status.code(), StatusCode::kMismatch);
        EXPECT_NE(operation->status.message().find(deviation.text), std::string::npos)
            << operation->status.message();
        EXPECT_NE(operation->status.message().find("'x'"), std::string::npos)
            << operation->status.message();
      }
      for (size_t r = 0; r < 3; ++r)
        for (float v : data[r]) ASSERT_EQ(v, static_cast<float>(1 << r)) << "an input was touched";
      const auto good = SubmitAll(&world, "x", &data, -1, none);
      ASSERT_TRUE(world.RunUntilEnded(good));
      for (size_t r = 0; r < 3; ++r) {
        EXPECT_TRUE(good[r]->status.ok()) << good[r]->status.message();
        for (float v : data[r]) ASSERT_EQ(v, 7.0f);
      }
    }
  }
}

// A rank that has nothing fit to be mixed says so, alone or in a bundle: all hear of it, no input
// is touched, and the next one works.
TEST_P(DeviationTest, WhoCannotTakePartIsHeardByAll) {
  const Change unfit = [](Request* r) {
    r->refusal = Status(StatusCode::kNotFinite, "rank 1 has 7 NaN", Rank{1});
  };
  const Change none = [](Request*) {};
  World world({.size = 3, .seed = GetParam()});
  std::vector<std::vector<std::vector<float>>> data(4, {3, std::vector<float>(6)});
  const auto run = [&](bool is_unfit, int which) {
    std::vector<std::vector<Operation*>> all;
    for (size_t i = 0; i < data.size(); ++i) {
      for (size_t r = 0; r < 3; ++r)
        std::fill(data[i][r].begin(), data[i][r].end(), static_cast<float>(1 << r));
      const bool is_odd = is_unfit && static_cast<int>(i) == which;
      all.push_back(SubmitAll(&world, "x" + std::to_string(i), &data[i], 1, is_odd ? unfit : none));
    }
    for (const auto& operations : all)
      for (int32_t r = 0; r < 3; ++r) world.Await(r, operations[static_cast<size_t>(r)]);
    for (const auto& operations : all) EXPECT_TRUE(world.RunUntilEnded(operations));
    return all;
  };
  for (int step = 0; step < 12; ++step) {
    const bool is_unfit = step % 3 == 2;
    const auto all = run(is_unfit, step % 4);
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t r = 0; r < 3; ++r) {
        const Status& status = all[i][r]->status;
        const bool is_odd = is_unfit && static_cast<int>(i) == step % 4;
        EXPECT_EQ(status.code(), is_odd ? StatusCode::kNotFinite : StatusCode::kOk);
        if (is_odd) {
          EXPECT_EQ(status.message(), "allreduce 'x" + std::to_string(i) + "': rank 1 has 7 NaN");
          EXPECT_EQ(status.peer(), Rank{1});
        }
        for (float v : data[i][r]) ASSERT_EQ(v, is_odd ? static_cast<float>(1 << r) : 7.0f);
      }
  }
}

TEST_P(DeviationTest, AllWhoCannotTakePartAreNamedUpToAFew) {
  World world({.size = 6, .seed = GetParam()});
  std::vector<float> data(6);
  std::vector<Operation*> operations;
  for (int32_t r = 0; r < 6; ++r) {
    Request request = Allreduce(&world, r, "x", &data);
    if (r > 0)
      request.refusal = Status(StatusCode::kNotFinite, "rank " + std::to_string(r) + " has NaN");
    operations.push_back(world.Submit(r, std::move(request)));
  }
  ASSERT_TRUE(world.RunUntilEnded(operations));
  for (const Operation* operation : operations)
    EXPECT_EQ(operation->status.message(),
              "allreduce 'x': rank 1 has NaN; rank 2 has NaN; rank 3 has NaN; and 2 more ranks");
}

TEST_P(DeviationTest, RowsOfAnAlltoallMayDifferButNotWhatARowIs) {
  World world({.size = 3, .seed = GetParam()});
  const auto run = [&](int32_t odd, int64_t width) {
    std::vector<std::vector<float>> data(3, std::vector<float>(60));
    std::vector<Operation*> operations;
    for (int32_t r = 0; r < 3; ++r) {
      Request request;
      request.kind = Kind::kAlltoall;
      request.group = world.GroupOn(r, world.everybody());
      request.name = "x";
      request.inputs = {MakeTensor(DType::kF32, {3 * r, r == odd ? width : 2},
                                   data[static_cast<size_t>(r)].data())};
      request.splits = {r, 0, 2 * r};
      operations.push_back(world.Submit(r, std::move(request)));
    }
    EXPECT_TRUE(world.RunUntilEnded(operations));
    return operations;
  };
  for (int round = 0; round < 3; ++round) {
    for (const Operation* operation : run(1, 2)) {
      EXPECT_TRUE(operation->status.ok()) << operation->status.message();
      EXPECT_EQ(operation->rows.size(), 3u);
    }
    for (const Operation* operation : run(1, 5)) {
      EXPECT_EQ(operation->status.code(), StatusCode::kMismatch);
      EXPECT_NE(operation->status.message().find("shapes beyond dimension 0 differ"),
                std::string::npos)
          << operation->status.message();
    }
  }
}

TEST_P(DeviationTest, AllRanksChangingShapeTogetherIsNoError) {
  World world({.size = 3, .seed = GetParam()});
  for (int64_t elems : {6, 6, 2, 6, 100, 2}) {
    std::vector<std::vector<float>> data(3, std::vector<float>(static_cast<size_t>(elems), 2.0f));
    const auto operations = SubmitAll(&world, "x", &data, -1, [](Request*) {});
    ASSERT_TRUE(world.RunUntilEnded(operations));
    for (size_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(operations[r]->status.ok());
      for (float v : data[r]) ASSERT_EQ(v, 6.0f);
    }
  }
}

TEST_P(DeviationTest, UnnamedOperationsThatDifferFailAndTheFollowingOnesWork) {
  World world({.size = 2, .seed = GetParam()});
  std::vector<std::vector<float>> data = {std::vector<float>(4, 1.0f), std::vector<float>(4, 2.0f)};
  for (int round = 0; round < 3; ++round) {
    const auto failed = SubmitAll(&world, "", &data, 1, kDeviations[2].change);
    ASSERT_TRUE(world.RunUntilEnded(failed));
    for (const Operation* operation : failed)
      EXPECT_EQ(operation->status.code(), StatusCode::kMismatch);
    std::vector<std::vector<float>> more = {std::vector<float>(4, 1.0f),
                                            std::vector<float>(4, 2.0f)};
    const auto good = SubmitAll(&world, "", &more, -1, [](Request*) {});
    ASSERT_TRUE(world.RunUntilEnded(good));
    EXPECT_TRUE(good[0]->status.ok() && good[1]->status.ok());
    EXPECT_EQ(more[0][0], 3.0f);
  }
}

TEST_P(DeviationTest, ALostRankIsNamedAndOtherGroupsGoOn) {
  World world({.size = 4, .seed = GetParam()});
  std::vector<std::vector<float>> data(4, std::vector<float>(6, 1.0f));
  ASSERT_TRUE(world.RunUntilEnded(SubmitAll(&world, "x", &data, -1, [](Request*) {})));
  // Ranks 0..2 begin; rank 3 dies without submitting.
  std::vector<Operation*> waiting;
  for (int32_t r = 0; r < 3; ++r)
    waiting.push_back(world.Submit(r, Allreduce(&world, r, "x", &data[static_cast<size_t>(r)])));
  for (uint64_t passes = world.rng().Below(50); passes > 0; --passes) world.Step();
  world.network().Kill(Rank{3}, "has died (process 123 is gone)");
  ASSERT_TRUE(world.RunUntilEnded(waiting));
  for (const Operation* operation : waiting) {
    EXPECT_EQ(operation->status.code(), StatusCode::kAborted);
    EXPECT_EQ(operation->status.peer(), Rank{3}) << operation->status.message();
  }
  // A later operation with it fails at once; one without it works.
  Operation* later = world.Submit(0, Allreduce(&world, 0, "y", &data[0]));
  ASSERT_TRUE(world.RunUntilEnded({later}));
  EXPECT_EQ(later->status.peer(), Rank{3});
  std::vector<Operation*> rest;
  std::vector<std::vector<float>> fresh(3, std::vector<float>(6, 2.0f));
  for (int32_t r = 0; r < 3; ++r) {
    Request request = Allreduce(&world, r, "z", &fresh[static_cast<size_t>(r)]);
    request.group = world.GroupOn(r, {0, 1, 2});
    rest.push_back(world.Submit(r, std::move(request)));
  }
  ASSERT_TRUE(world.RunUntilEnded(rest));
  for (const Operation* operation : rest)
    EXPECT_TRUE(operation->status.ok()) << operation->status.message();
  EXPECT_EQ(fresh[1][5], 6.0f);
}

TEST_P(DeviationTest, KilledAtAnyMomentNobodyHangs) {
  for (int kill_after = 0; kill_after < 60; kill_after += 3) {
    World world({.size = 3,
                 .seed = GetParam() * 1000 + static_cast<uint64_t>(kill_after),
                 .segment_bytes = 64});
    std::vector<std::vector<float>> data(3, std::vector<float>(200, 1.0f));
    std::vector<Operation*> operations = SubmitAll(&world, "x", &data, -1, [](Request*) {});
    for (int passes = 0; passes < kill_after; ++passes) world.Step();
    world.network().Kill(Rank{1}, "has died");
    ASSERT_TRUE(world.RunUntilEnded({operations[0], operations[2]}))
        << "killed after " << kill_after;
    for (int32_t r : {0, 2}) {
      const Status& status = operations[static_cast<size_t>(r)]->status;
      if (status.ok()) {
        for (float v : data[static_cast<size_t>(r)]) ASSERT_EQ(v, 3.0f);
      } else {
        EXPECT_EQ(status.peer(), Rank{1}) << status.message();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, DeviationTest, testing::Range<uint64_t>(1, 21));

}  // namespace
}  // namespace covey
