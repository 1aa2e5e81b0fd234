// Goal: through the C API, ranks go on from finish() without one that is missing, and that one ends
// with the version that they have, over shared memory and over a network alike.
// Method: as rounds_test; no rank goes on before the late one has come.
#include <atomic>
#include <string>
#include <vector>

#include "tests/contract/parsed_method.h"
#include "tests/contract/round_trainer.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

class RoundsEndingTest : public testing::TestWithParam<Place> {
 protected:
  int size() const { return GetParam().size; }
};

// The others go on without who is missing: it ends with the version that they have, and what it has
// done since is dropped.
TEST_P(RoundsEndingTest, WhoComesLaterEndsWithWhatTheOthersHave) {
  std::atomic<int> gone{0};
  std::atomic<int64_t> last{0};
  std::atomic<bool> has_come{false};
  std::vector<int64_t> ends(static_cast<size_t>(size()));
  std::vector<std::vector<std::vector<float>>> results(ends.size());
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, size(), runtime, "eager:admit=solo,max_wait=20ms,log=200");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    const auto index = static_cast<size_t>(rank);
    if (rank < size() - 1) {
      trainer.Publish();
      EXPECT_EQ(trainer.Finish(), COVEY_TIMEOUT);
      EXPECT_EQ(covey_rounds_go_on(runtime, trainer.rounds(), &trainer.error), COVEY_OK)
          << trainer.error.message;
      last = trainer.executed();
      ++gone;
      while (!has_come.load()) std::this_thread::yield();
    } else {
      while (gone.load() < size() - 1 || trainer.executed() < last.load())
        std::this_thread::yield();
      for (int i = 0; i < 3; ++i) {
        trainer.Publish();
        EXPECT_EQ(trainer.Wait(last.load() + 1), COVEY_TIMEOUT);
        const std::string message = trainer.error.message;
        EXPECT_NE(message.find("others have ended finish()"), message.npos) << message;
      }
      covey_code code = COVEY_TIMEOUT;  // on a busy machine messages take longer than max_wait
      while (code == COVEY_TIMEOUT) code = trainer.Finish();
      EXPECT_EQ(code, COVEY_OK) << trainer.error.message;
      has_come = true;
    }
    trainer.ReadAll();
    EXPECT_EQ(trainer.counted.at(static_cast<size_t>(size()) - 1), 0);
    ends[index] = trainer.executed();
    results[index] = trainer.results;
  });
  for (size_t r = 1; r < ends.size(); ++r) {
    EXPECT_EQ(ends[r], ends[0]) << "rank " << r;
    EXPECT_EQ(results[r], results[0]) << "rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, RoundsEndingTest,
                         testing::Values(Place{2, ""}, Place{3, ""}, Place{4, ""}));
INSTANTIATE_TEST_SUITE_P(OverNetwork, RoundsEndingTest,
                         testing::Values(Place{2, kOverNetwork}, Place{3, kOverNetwork},
                                         Place{4, kOverNetwork}));

}  // namespace
}  // namespace covey
