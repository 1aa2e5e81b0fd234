// Goal: a step with nothing to give, through the C API: it has come, and the mean is that of the
// others.
// Method: ranks as threads; whole numbers that differ by rank, step and element.
#include "tests/contract/round_trainer.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

class NullsTest : public testing::TestWithParam<Place> {
 protected:
  int size() const { return GetParam().size; }
};

// Rank 0 has nothing to give at step 1, nobody at step 2: the mean is that of the others, or none.
TEST_P(NullsTest, HaveComeAndAreNoContribution) {
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, size(), runtime, "eager:admit=all", COVEY_AVERAGE);
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    int64_t step = 1;
    if (rank > 0)
      trainer.Publish();
    else
      ASSERT_EQ(covey_rounds_skip(runtime, trainer.rounds(), &step, &trainer.error), COVEY_OK);
    EXPECT_EQ(step, 1);
    ASSERT_EQ(trainer.Wait(1), COVEY_OK);
    ASSERT_EQ(covey_rounds_skip(runtime, trainer.rounds(), nullptr, &trainer.error), COVEY_OK);
    ASSERT_EQ(trainer.Wait(2), COVEY_OK);
    std::vector<float> floats(static_cast<size_t>(RoundTrainer::kCounts[0]));
    std::vector<int64_t> last(static_cast<size_t>(size()));
    void* spans[2] = {floats.data(), nullptr};
    for (int64_t version : {1, 2}) {
      covey_round_record record = COVEY_INIT(covey_round_record);
      record.last = last.data();
      ASSERT_EQ(
          covey_rounds_read(runtime, trainer.rounds(), version, spans, &record, &trainer.error),
          COVEY_OK);
      const bool any = version == 1 && size() > 1;
      EXPECT_EQ(record.divisor, any ? size() - 1 : 1);
      EXPECT_EQ(record.leader, any ? 1 : -1);
      float sum = 0;
      for (int r = 0; r < size(); ++r) {
        EXPECT_EQ(last[static_cast<size_t>(r)], any && r > 0 ? 1 : 0);
        if (any && r > 0) sum += static_cast<float>(ValueOf(r, 1, 3));
      }
      EXPECT_EQ(floats[3], any ? sum / static_cast<float>(size() - 1) : 0.0f);
    }
    EXPECT_EQ(trainer.Finish(), COVEY_OK);
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, NullsTest,
                         testing::Values(Place{1, ""}, Place{2, ""}, Place{3, ""}, Place{4, ""}));
INSTANTIATE_TEST_SUITE_P(OverNetwork, NullsTest,
                         testing::Values(Place{1, kOverNetwork}, Place{2, kOverNetwork},
                                         Place{3, kOverNetwork}, Place{4, kOverNetwork},
                                         Place{4, kOverNetwork, 2}));

}  // namespace
}  // namespace covey
