// Goal: a rank may publish steps without waiting for versions; all count once, and after finish()
// its next step is still one of its own.
// Method: ranks as threads, through the C API, on a host and over a network.
#include <algorithm>
#include <barrier>

#include "tests/contract/round_trainer.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr int kAhead = 5;

class RoundsAheadTest : public testing::TestWithParam<Place> {};

TEST_P(RoundsAheadTest, GoesOnAfterFinish) {
  const int size = GetParam().size;
  std::barrier meeting(size);
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, size, runtime, "eager:admit=solo,log=200");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    for (int epoch = 1; epoch <= 3; ++epoch) {
      for (int i = 0; i < kAhead; ++i) trainer.Publish();
      ASSERT_EQ(trainer.Finish(), COVEY_OK) << trainer.error.message;
      trainer.ReadAll();
      for (int r = 0; r < size; ++r)
        EXPECT_EQ(trainer.total[static_cast<size_t>(r)], kAhead * epoch) << "of rank " << r;
      trainer.steps = std::max(trainer.steps, trainer.executed());
      meeting.arrive_and_wait();  // nobody publishes before all have returned
    }
  });
}

INSTANTIATE_TEST_SUITE_P(OnAHost, RoundsAheadTest,
                         testing::Values(Place{1, ""}, Place{2, ""}, Place{3, ""}));
INSTANTIATE_TEST_SUITE_P(OverNetwork, RoundsAheadTest,
                         testing::Values(Place{1, kOverNetwork}, Place{2, kOverNetwork},
                                         Place{3, kOverNetwork}, Place{4, kOverNetwork, 2}));

}  // namespace
}  // namespace covey
