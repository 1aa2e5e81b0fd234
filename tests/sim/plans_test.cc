// method-W13: all ranks know what is exchanged at any version, without a word about it.
#include <gtest/gtest.h>

#include "tests/sim/simulator/plans.h"

namespace covey {
namespace {

TEST(PlansTest, AllRanksPlanAlikeInAnyOrder) { EXPECT_EQ(FindPlanThatDiffers(), ""); }

}  // namespace
}  // namespace covey
