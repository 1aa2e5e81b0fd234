// The memory that a trainer holds in each rank is what the card of its method says
// (`covey methods NAME`), in models.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "core/api/covey_trainer.h"
#include "tests/contract/threads.h"
#include "tests/contract/trainer_adapter.h"

namespace covey {
namespace {

double NumberOf(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\":");
  return at == std::string::npos ? -1 : std::stod(json.substr(at + name.size() + 3));
}

// In models.
struct Held {
  double exchange = 2;  // gradients, and the model
  double rounds = 0, pairs = 0, arrays = 0, codec = 0;
};

class TrainerHoldsTest : public testing::TestWithParam<std::tuple<int, const char*, Held>> {};

TEST_P(TrainerHoldsTest, TheMemoryOfTheCard) {
  const auto& [size, method, expected] = GetParam();
  RunRanks(size, "",
           [size = size, method = method, expected = expected](int rank, covey_runtime*& runtime) {
             Adapter adapter(rank, runtime);
             ASSERT_EQ(adapter.Open(method), COVEY_OK) << adapter.error.message;
             for (int64_t step = 0; step < 4; ++step) ASSERT_EQ(adapter.Step(step), COVEY_OK);
             const std::string json = adapter.Stats();
             double model = 0;
             for (size_t i = 0; i < 3; ++i)
               model += static_cast<double>(kCounts[i]) * (kTypes[i] == COVEY_FLOAT64 ? 8 : 4);
             EXPECT_NEAR(NumberOf(json, "exchange") / model, expected.exchange, 0.1) << json;
             EXPECT_NEAR(NumberOf(json, "rounds") / model, expected.rounds, 0.1) << json;
             EXPECT_NEAR(NumberOf(json, "pairs") / model, expected.pairs, 0.1) << json;
             EXPECT_NEAR(NumberOf(json, "arrays") / model, expected.arrays, 0.1) << json;
             EXPECT_NEAR(NumberOf(json, "codec") / model, expected.codec, 0.1) << json;
           });
}

// Of rounds: three contributions, and this rank's part of `results` for all.
double RoundsOf(int size, double results) { return 3 + results / size; }

INSTANTIATE_TEST_SUITE_P(
    All, TrainerHoldsTest,
    testing::Values(std::tuple{2, "allreduce", Held{.exchange = 1}}, std::tuple{2, "dpsgd", Held{}},
                    std::tuple{2, "local:H=2", Held{}},
                    std::tuple{2, "eager:log=4,admit=all",
                               Held{.exchange = 1, .rounds = RoundsOf(2, 4 + 2 * 2)}},
                    std::tuple{4, "eager:log=8,admit=all",
                               Held{.exchange = 1, .rounds = RoundsOf(4, 8 + 2 * 4)}},
                    std::tuple{2, "diloco:H=2,log=4,admit=all",
                               Held{.rounds = RoundsOf(2, 4 + 2 * 2), .arrays = 3}},
                    std::tuple{4, "wagma:S=4,tau=4,log=3,admit=all",
                               Held{.exchange = 1, .rounds = RoundsOf(4, 3 + 2 * 4 + 1)}},
                    std::tuple{3, "local:H=2,max_wait=60s",
                               Held{.exchange = 1, .rounds = RoundsOf(3, 3 + 2 * 3)}},
                    std::tuple{2, "adpsgd", Held{.pairs = 6}},
                    std::tuple{2, "swarm:H=2", Held{.pairs = 6}},
                    std::tuple{2, "local:H=1,codec=int8", Held{.codec = 2}},
                    std::tuple{2, "local:H=1,codec=topk@bits=16", Held{.codec = 3}},
                    std::tuple{2, "allreduce:codec=topk@bits=16",
                               Held{.exchange = 1, .codec = 2}}));

}  // namespace
}  // namespace covey
