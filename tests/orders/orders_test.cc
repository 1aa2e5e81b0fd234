// Goal: the memory orders of shared words suffice on every machine that C++20 allows, and the tests
// would notice if one were weaker.
//
// Method: each case runs in many executions over weak memory (README.md): all with few deviations,
// and drawn ones; nothing may be found. Each mutant weakens one order: its case must find that.
// ORDERS_SEEDS=N draws so many, TEST_SLOW=1 (tools/test --slow) thirty times as many.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>

#include "tests/orders/cases.h"
#include "tests/sim/mutants/mutants.h"

namespace covey {
namespace {

constexpr uint64_t kMostForMutants = 10;  // times as many executions

std::vector<NamedCase> Cases() {
  std::vector<NamedCase> all;
  for (const auto& some : {TransportCases(), WaiterCases(), OneShotCases(), MirroredCases(),
                           EngineCases(), PartialCases(), ModelCases(), GossipCases()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

class OrdersTest : public testing::TestWithParam<NamedCase> {};

TEST_P(OrdersTest, Suffice) {
  OrdersBounds bounds = GetParam().bounds;
  if (std::getenv("TEST_SLOW") != nullptr) {
    bounds.drawn *= 30;
    bounds.most_searched *= 30;
  }
  if (const char* many = std::getenv("ORDERS_SEEDS"))
    bounds = {.drawn = std::strtoull(many, nullptr, 10)};
  const Explored explored = Explore(GetParam().make, bounds);
  EXPECT_EQ(explored.failure, "") << explored.trace;
  std::printf("%d executions%s\n", static_cast<int>(explored.executions),
              explored.is_complete ? ", all with so few deviations" : "");
}

INSTANTIATE_TEST_SUITE_P(Each, OrdersTest, testing::ValuesIn(Cases()),
                         [](const auto& each) { return each.param.name; });

class MutantTest : public testing::TestWithParam<Mutant> {};

TEST_P(MutantTest, IsCaught) {
  const Mutant& mutant = GetParam();
  for (const NamedCase& one : Cases()) {
    if (one.name != mutant.focus) continue;
    OrdersBounds bounds = one.bounds;
    bounds.drawn *= kMostForMutants;
    *mutant.is_on = true;
    const Explored explored = Explore(one.make, bounds);
    *mutant.is_on = false;
    EXPECT_NE(explored.failure, "") << explored.executions << " executions found nothing wrong";
    std::printf("caught by execution %d: %s\n", static_cast<int>(explored.executions),
                explored.failure.c_str());
    return;
  }
  FAIL() << "no case is called " << mutant.focus;
}

INSTANTIATE_TEST_SUITE_P(Each, MutantTest, testing::ValuesIn(kMutants),
                         [](const auto& each) { return each.param.name; });

}  // namespace

void PrintTo(const Mutant& mutant, std::ostream* out) { *out << mutant.name; }
void PrintTo(const NamedCase& one, std::ostream* out) { *out << one.name; }

}  // namespace covey
