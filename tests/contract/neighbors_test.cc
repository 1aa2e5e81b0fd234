// Averaging with neighbors through the C API, over real shared memory: weighted sums in groups,
// peers that change, one error on every member, topologies and the rows of a method.
//
// Method: ranks as threads. Values and weights are such that float32 sums are exact.
#include "core/api/covey_methods.h"
#include "core/api/covey_neighbors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/base/rng.h"
#include "tests/contract/parsed_method.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr int64_t kElems = 40'000;  // several segments

// What rank `rank` holds at `i`: a small whole number.
float Value(int rank, int64_t i) {
  return static_cast<float>((static_cast<int64_t>(rank) * 31 + i) % 97);
}

// One member's call, with its own row.
class Mix {
 public:
  Mix(int rank, int64_t elems, covey_group group = COVEY_WORLD) : shape_{elems}, out_(elems, -1) {
    for (int64_t i = 0; i < elems; ++i) in_.push_back(Value(rank, i));
    input_.ndim = output_.ndim = 1;
    input_.shape = output_.shape = shape_;
    request_.kind = COVEY_NEIGHBOR_ALLREDUCE;
    request_.group = group;
    request_.name = "mix";
    request_.num_tensors = 1;
    request_.inputs = &input_;
    request_.outputs = &output_;
    request_.neighbors = &said;
  }

  void Take(int32_t from, double weight) {
    sources_.push_back(from);
    weights_.push_back(weight);
  }
  void SendTo(std::vector<int32_t> to) { receivers_ = std::move(to); }

  covey_code Run(covey_runtime* runtime, covey_error* error) {
    input_.data = in_.data();
    output_.data = out_.data();
    said.sources = sources_.data();
    said.weights = weights_.data();
    said.num_sources = static_cast<int32_t>(sources_.size());
    said.receivers = receivers_.empty() ? nullptr : receivers_.data();
    said.num_receivers = static_cast<int32_t>(receivers_.size());
    covey_handle handle = 0;
    covey_code code = covey_submit(runtime, &request_, &handle, error);
    if (code != COVEY_OK) return code;
    code = covey_wait(runtime, handle, -1, error);
    covey_release(runtime, handle);
    return code;
  }

  void Check() const {
    for (size_t i = 0; i < out_.size(); ++i) {
      double wanted = said.own_weight * in_[i];
      for (size_t k = 0; k < sources_.size(); ++k)
        wanted += weights_[k] * Value(sources_[k], static_cast<int64_t>(i));
      ASSERT_EQ(out_[i], static_cast<float>(wanted)) << i;
    }
  }
  void Spoil() { in_[4] = std::numeric_limits<float>::quiet_NaN(); }
  bool IsUnwritten() const { return out_ == std::vector<float>(out_.size(), -1); }

  covey_request& request() { return request_; }
  covey_neighbors said = COVEY_INIT(covey_neighbors);

 private:
  int64_t shape_[1];
  std::vector<float> in_, out_;
  std::vector<int32_t> sources_, receivers_;
  std::vector<double> weights_;
  covey_tensor input_ = COVEY_INIT(covey_tensor);
  covey_tensor output_ = COVEY_INIT(covey_tensor);
  covey_request request_ = COVEY_INIT(covey_request);
};

TEST(NeighborsTest, PeersMayChangeEachTimeInAnyGroup) {
  constexpr const char* kShort = "segment_bytes=4096\nnetwork_segment_bytes=4096";
  constexpr const char* kShortOverNetwork =
      "transport=mpi\nsegment_bytes=4096\nnetwork_segment_bytes=4096";
  for (const Place& place : {Place{1, ""}, Place{2, kShort}, Place{3, ""}, Place{5, kShort},
                             Place{5, kOverNetwork, 2}, Place{4, kShortOverNetwork, 2}}) {
    const int size = place.size;
    RunRanks(place, [&](int rank, covey_runtime*& runtime) {
      covey_error error = COVEY_INIT(covey_error);
      std::vector<int32_t> members;
      for (int32_t r = 0; r < size; ++r)
        if (r != 1 || size < 3) members.push_back(r);
      if (std::find(members.begin(), members.end(), rank) == members.end()) return;
      covey_group group = 0;
      const auto n = static_cast<int32_t>(members.size());
      ASSERT_EQ(covey_group_of(runtime, members.data(), n, &group, &error), COVEY_OK);
      for (int turn = 0; turn < 6; ++turn) {
        Mix mix(rank, turn == 3 ? 0 : turn == 5 ? 7 : kElems, group);
        Rng rng(static_cast<uint64_t>(turn));  // all draw the same
        std::vector<int32_t> receivers;
        mix.said.own_weight = 0.25;
        mix.said.any_sum = 1;
        for (const int32_t to : members)
          for (const int32_t from : members) {
            if (from == to || !rng.Percent(50)) continue;
            const double weight = static_cast<double>(rng.Below(7)) / 4 - 0.5;
            if (to == rank) mix.Take(from, weight);
            if (from == rank && weight != 0) receivers.push_back(to);
          }
        if (turn % 2 == 0) mix.SendTo(receivers);
        ASSERT_EQ(mix.Run(runtime, &error), COVEY_OK) << error.message;
        mix.Check();
      }
    });
  }
}

struct Wrong {
  const char* name;
  std::function<void(Mix*)> change;  // on rank 1 of 3, on a directed ring that says both sides
  const char* text;
};

const Wrong kWrongs[] = {
    {"sum", [](Mix* m) { m->said.own_weight = 0.25; },
     "rank 1's weights sum to 0.75 and not to 1 (own 0.25, rank 0 0.5)"},
    {"negative", [](Mix* m) { m->Take(2, -0.25), m->said.own_weight = 0.75; },
     "rank 1 has a weight that is less than 0 (own 0.75, rank 0 0.5, rank 2 -0.25): that must be "
     "asked for by any_sum"},
    {"member", [](Mix* m) { m->Take(3, 0); },
     "rank 1 takes from rank 3, which is not a member of the group (of 3 ranks, lowest 0, highest "
     "2)"},
    {"twice", [](Mix* m) { m->Take(0, 0); }, "rank 1 takes from rank 0 twice"},
    {"itself", [](Mix* m) { m->SendTo({1}); }, "rank 1 sends to itself"},
    {"not sent", [](Mix* m) { m->SendTo({0}); },
     "rank 1 sends to rank 0, which does not take from rank 1"},
    {"not taken", [](Mix* m) { m->Take(2, 0.25), m->said.own_weight = 0.25; },
     "rank 1 takes from rank 2, which does not send to rank 1"},
};

TEST(NeighborsTest, WhatIsWrongIsAnErrorOnEveryMemberAndTheNextOneWorks) {
  for (const Wrong& wrong : kWrongs) {
    SCOPED_TRACE(wrong.name);
    RunRanks(3, "", [&](int rank, covey_runtime*& runtime) {
      for (int turn = 0; turn < 4; ++turn) {
        covey_error error = COVEY_INIT(covey_error);
        Mix mix(rank, kElems);
        mix.said.own_weight = 0.5;
        mix.Take((rank + 2) % 3, 0.5);
        mix.SendTo({(rank + 1) % 3});
        const bool fails = turn % 2 == 0;  // before anything is agreed, and in-band
        if (fails && rank == 1) wrong.change(&mix);
        const covey_code code = mix.Run(runtime, &error);
        if (!fails) {
          ASSERT_EQ(code, COVEY_OK) << error.message;
          mix.Check();
          continue;
        }
        EXPECT_EQ(code, COVEY_MISMATCH);
        EXPECT_NE(std::string(error.message).find(wrong.text), std::string::npos) << error.message;
        EXPECT_TRUE(mix.IsUnwritten());
      }
    });
  }
}

TEST(NeighborsTest, ANaNIsRefusedOnEveryMemberIfAskedFor) {
  RunRanks(3, "check_nan=1", [&](int rank, covey_runtime*& runtime) {
    for (const bool spoilt : {true, false}) {
      covey_error error = COVEY_INIT(covey_error);
      Mix mix(rank, 9);
      mix.said.own_weight = 0.5;
      mix.Take((rank + 2) % 3, 0.5);
      if (spoilt && rank == 2) mix.Spoil();
      EXPECT_EQ(mix.Run(runtime, &error), spoilt ? COVEY_NOT_FINITE : COVEY_OK) << error.message;
      if (spoilt) {
        EXPECT_EQ(error.peer_rank, 2);
      } else {
        mix.Check();
      }
    }
  });
}

TEST(NeighborsTest, WhatIsWrongAtOnceIsNotSubmitted) {
  RunRanks(1, "", [&](int, covey_runtime*& runtime) {
    const std::pair<std::function<void(covey_request*)>, const char*> wrongs[] = {
        {[](covey_request* r) { r->neighbors = nullptr; }, "neighbors is NULL"},
        {[](covey_request* r) { r->kind = COVEY_ALLREDUCE; }, "only a neighbor_allreduce takes"},
        {[](covey_request* r) { r->op = COVEY_MAX; }, "neither op nor scale factors"},
        {[](covey_request* r) { r->postscale = 2; }, "neither op nor scale factors"},
        {[](covey_request* r) { r->codec = "topk"; }, "a model is no sparse thing"},
        {[](covey_request* r) { r->codec = "lattice"; }, "decodes beside one other model"},
    };
    for (const auto& [change, text] : wrongs) {
      covey_error error = COVEY_INIT(covey_error);
      Mix mix(0, 5);
      mix.said.own_weight = 1;
      change(&mix.request());
      EXPECT_EQ(mix.Run(runtime, &error), COVEY_INVALID_ARGUMENT);
      EXPECT_NE(std::string(error.message).find(text), std::string::npos) << error.message;
    }
  });
}

TEST(NeighborsTest, TopologiesGiveRowsThatAgree) {
  covey_error error = COVEY_INIT(covey_error);
  for (const char* name : {"ring", "exponential", "one_peer", "bipartite", "full", "matching"}) {
    covey_topology topology = COVEY_INIT(covey_topology);
    topology.name = name;
    topology.size = 6;
    topology.seed = 4;
    ASSERT_EQ(covey_topology_check(&topology, &error), COVEY_OK) << error.message;
    char report[500];
    ASSERT_LT(covey_topology_report(&topology, report, sizeof(report)), sizeof(report));
    EXPECT_NE(std::string(report).find("\"connected\": true"), std::string::npos) << report;
    for (int64_t round = 0; round < 7; ++round) {
      double weights[6][6];
      int32_t receivers[6][6];
      for (int32_t i = 0; i < 6; ++i) {
        ASSERT_EQ(covey_topology_row(&topology, round, i, weights[i], receivers[i], &error),
                  COVEY_OK);
        double sum = 0;
        for (const double weight : weights[i]) sum += weight;
        EXPECT_NEAR(sum, 1, 1e-12);
      }
      for (int i = 0; i < 6; ++i)
        for (int j = 0; j < 6; ++j)
          EXPECT_EQ(receivers[j][i], i != j && weights[i][j] != 0) << name << i << j;
    }
  }
}

TEST(NeighborsTest, AMatrixIsLookedAt) {
  covey_error error = COVEY_INIT(covey_error);
  const double moves[] = {1, 0, 0.5, 0.5};
  const double wrong[] = {1, 0, 0.5, 0.4};
  covey_topology topology = COVEY_INIT(covey_topology);
  topology.size = 2;
  topology.matrix = moves;
  char report[500];
  covey_topology_report(&topology, report, sizeof(report));
  EXPECT_NE(std::string(report).find("\"column_error\": 0.5, \"column\": 0, \"connected\": false"),
            std::string::npos)
      << report;
  topology.matrix = wrong;
  EXPECT_EQ(covey_topology_check(&topology, &error), COVEY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("row 1"), std::string::npos) << error.message;
  EXPECT_EQ(covey_topology_report(&topology, report, sizeof(report)), 0u);
  topology.matrix = nullptr;
  EXPECT_EQ(covey_topology_check(&topology, &error), COVEY_INVALID_ARGUMENT);
  topology.name = "rings";
  EXPECT_EQ(covey_topology_check(&topology, &error), COVEY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("did you mean ring?"), std::string::npos);
  topology.name = "ring";
  double row[2];
  int32_t receivers[2];
  EXPECT_EQ(covey_topology_row(&topology, 0, 2, row, receivers, &error), COVEY_INVALID_ARGUMENT);
  EXPECT_EQ(covey_topology_row(&topology, -1, 0, row, receivers, &error), COVEY_INVALID_ARGUMENT);
  EXPECT_EQ(covey_topology_check(nullptr, &error), COVEY_INVALID_ARGUMENT);
}

TEST(NeighborsTest, ATopologyOverHostsCrossesInEveryKthRound) {
  covey_error error = COVEY_INIT(covey_error);
  const int32_t hosts[] = {0, 1, 0, 1, 1};
  covey_topology topology = COVEY_INIT(covey_topology);
  topology.name = "full";
  topology.size = 5;
  topology.hosts = hosts;
  topology.cross_every = 3;
  double weights[5];
  int32_t receivers[5];
  for (int64_t round = 0; round < 6; ++round) {
    ASSERT_EQ(covey_topology_row(&topology, round, 0, weights, receivers, &error), COVEY_OK)
        << error.message;
    for (int j = 0; j < 5; ++j) {
      const bool takes = j == 0 || j == (round % 3 == 2 ? 1 : 2);
      EXPECT_EQ(weights[j], takes ? 0.5 : 0) << round << j;
      EXPECT_EQ(receivers[j], takes && j != 0) << round << j;
    }
  }
  topology.cross_every = 1001;
  EXPECT_EQ(covey_topology_check(&topology, &error), COVEY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("from 1 to 1000, not 1001"), std::string::npos)
      << error.message;
}

// Ranks 0, 1 and 2, 3 share hosts.
TEST(NeighborsTest, AMethodKnowsTheHostsOfItsRanks) {
  RunRanks({4, kOverNetwork, 2}, [](int rank, covey_runtime*& runtime) {
    covey_error error = COVEY_INIT(covey_error);
    const ParsedMethod method("dpsgd:topology=full,cross_every=2", &error);
    ASSERT_EQ(method.code, COVEY_OK) << error.message;
    const int32_t members[] = {0, 2, 3};
    covey_group some = 0;
    if (rank != 1) {
      ASSERT_EQ(covey_group_of(runtime, members, 3, &some, &error), COVEY_OK);
    }
    for (int64_t version = 0; version < 4; ++version) {
      double weights[4];
      int32_t receivers[4], adapts_first = 0;
      ASSERT_EQ(covey_method_row(runtime, method.get(), COVEY_WORLD, version, weights, receivers,
                                 &adapts_first, &error),
                COVEY_OK)
          << error.message;
      for (int j = 0; j < 4; ++j) {
        const bool takes = j == rank || j == (version % 2 == 1 ? (rank + 2) % 4 : rank ^ 1);
        EXPECT_EQ(weights[j], takes ? 0.5 : 0) << version << j;
      }
      if (rank != 0) continue;
      ASSERT_EQ(covey_method_row(runtime, method.get(), some, version, weights, receivers,
                                 &adapts_first, &error),
                COVEY_OK);
      EXPECT_EQ(weights[0], version % 2 == 1 ? 0.5 : 1) << "alone on its host";
      EXPECT_EQ(weights[1], version % 2 == 1 ? 0.5 : 0);
    }
  });
}

TEST(NeighborsTest, AMethodSaysItsRow) {
  RunRanks(3, "", [&](int rank, covey_runtime*& runtime) {
    covey_error error = COVEY_INIT(covey_error);
    double weights[3];
    int32_t receivers[3], adapts_first = -1;
    const auto ask = [&](const char* text) {
      return covey_method_row(runtime, ParsedMethod(text, &error).get(), COVEY_WORLD, 1, weights,
                              receivers, &adapts_first, &error);
    };
    ASSERT_EQ(ask("dpsgd:topology=one_peer,order=atc"), COVEY_OK) << error.message;
    EXPECT_EQ(adapts_first, 1);
    for (int j = 0; j < 3; ++j) {  // round 1: from 2 before
      EXPECT_EQ(weights[j], j == rank || j == (rank + 1) % 3 ? 0.5 : 0);
      EXPECT_EQ(receivers[j], j == (rank + 2) % 3);
    }
    ASSERT_EQ(ask("dpsgd:topology=full"), COVEY_OK);
    EXPECT_EQ(adapts_first, 0);
    EXPECT_EQ(ask("local"), COVEY_INVALID_ARGUMENT);
    covey_plan plan = COVEY_INIT(covey_plan);
    const auto plan_of = [&](const char* text) {
      return covey_method_plan(runtime, ParsedMethod(text, &error).get(), COVEY_WORLD, 0, &plan,
                               &error);
    };
    ASSERT_EQ(plan_of("dpsgd"), COVEY_OK);
    EXPECT_EQ(plan.payload, COVEY_MODEL);
    EXPECT_EQ(plan.admission, COVEY_ADMIT_NEIGHBORS);
    EXPECT_EQ(plan_of("dpsgd:topology=bipartite"), COVEY_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.message).find("even"), std::string::npos) << error.message;
  });
}

}  // namespace
}  // namespace covey
