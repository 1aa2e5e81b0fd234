// Goal: the memory of these tests is as weak as C++20 says, and no weaker.
//
// Method: litmus tests of the literature, of which the outcomes are known (Alglave, Maranget,
// Tautschnig: Herding cats, TOPLAS 2014, doi:10.1145/2627752; ISO/IEC 14882:2020, [atomics.order]).
// All executions are run; an outcome is one value of each register.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "tests/orders/execution.h"

namespace covey {
namespace {

using Order = std::memory_order;
constexpr Order kRelaxed = std::memory_order_relaxed;
constexpr Order kAcquire = std::memory_order_acquire;
constexpr Order kRelease = std::memory_order_release;
constexpr Order kSeqCst = std::memory_order_seq_cst;

// The words x and y, zero at first, and the registers of all threads.
struct Litmus {
  std::atomic<int> x{0}, y{0};
  std::array<int, 4> r{};
};
using Body = std::function<void(Litmus*)>;
using Outcomes = std::set<std::array<int, 4>>;

class LitmusCase final : public OrdersCase {
 public:
  LitmusCase(const std::vector<Body>* bodies, Outcomes* outcomes)
      : bodies_(bodies), outcomes_(outcomes) {}

  int threads() const override { return static_cast<int>(bodies_->size()); }
  void Begin(Execution*) override {}
  void Run(int thread) override { (*bodies_)[static_cast<size_t>(thread)](&litmus_); }
  void End() override { outcomes_->insert(litmus_.r); }

 private:
  const std::vector<Body>* bodies_;
  Outcomes* outcomes_;
  Litmus litmus_;
};

// All outcomes of the bodies, or those with so few deviations.
Outcomes Of(const std::vector<Body>& bodies, size_t deviations = 30) {
  Outcomes outcomes;
  const Explored explored =
      Explore([&] { return std::make_unique<LitmusCase>(&bodies, &outcomes); },
              {.deviations = deviations, .most_searched = 200000});
  EXPECT_EQ(explored.failure, "");
  EXPECT_TRUE(explored.is_complete) << explored.executions;
  return outcomes;
}

bool Has(const Outcomes& outcomes, const std::array<int, 4>& outcome) {
  return outcomes.count(outcome) > 0;
}

Outcomes StoreBuffering(Order store, Order load, bool fences) {
  return Of({[=](Litmus* l) {
               l->x.store(1, store);
               if (fences) std::atomic_thread_fence(kSeqCst);
               l->r[0] = l->y.load(load);
             },
             [=](Litmus* l) {
               l->y.store(1, store);
               if (fences) std::atomic_thread_fence(kSeqCst);
               l->r[1] = l->x.load(load);
             }});
}

TEST(LitmusTest, StoreBufferingNeedsOneOrderOfAll) {
  EXPECT_TRUE(Has(StoreBuffering(kRelaxed, kRelaxed, false), {0, 0}));
  EXPECT_TRUE(Has(StoreBuffering(kRelease, kAcquire, false), {0, 0}));
  EXPECT_TRUE(Has(StoreBuffering(kSeqCst, kAcquire, false), {0, 0}));
  EXPECT_TRUE(Has(StoreBuffering(kRelease, kSeqCst, false), {0, 0}));
  EXPECT_EQ(StoreBuffering(kSeqCst, kSeqCst, false), (Outcomes{{0, 1}, {1, 0}, {1, 1}}));
  EXPECT_EQ(StoreBuffering(kRelaxed, kRelaxed, true), (Outcomes{{0, 1}, {1, 0}, {1, 1}}));
}

Outcomes MessagePassing(Order store, Order load, bool release_fence, bool acquire_fence) {
  return Of({[=](Litmus* l) {
               l->x.store(1, kRelaxed);
               if (release_fence) std::atomic_thread_fence(kRelease);
               l->y.store(1, store);
             },
             [=](Litmus* l) {
               l->r[0] = l->y.load(load);
               if (acquire_fence) std::atomic_thread_fence(kAcquire);
               l->r[1] = l->x.load(kRelaxed);
             }});
}

TEST(LitmusTest, MessagePassingNeedsAReleaseAndAnAcquire) {
  EXPECT_TRUE(Has(MessagePassing(kRelaxed, kRelaxed, false, false), {1, 0}));
  EXPECT_TRUE(Has(MessagePassing(kRelease, kRelaxed, false, false), {1, 0}));
  EXPECT_TRUE(Has(MessagePassing(kRelaxed, kAcquire, false, false), {1, 0}));
  EXPECT_TRUE(Has(MessagePassing(kRelaxed, kRelaxed, true, false), {1, 0}));
  for (const bool release_fence : {false, true})
    for (const bool acquire_fence : {false, true}) {
      const Outcomes outcomes =
          MessagePassing(release_fence ? kRelaxed : kRelease, acquire_fence ? kRelaxed : kAcquire,
                         release_fence, acquire_fence);
      EXPECT_EQ(outcomes, (Outcomes{{0, 0}, {0, 1}, {1, 1}}));
    }
}

// Independent reads of independent writes.
Outcomes IndependentReads(Order order, bool fences) {
  const auto reads = [=](std::atomic<int>* first, std::atomic<int>* second, int* r) {
    r[0] = first->load(order);
    if (fences) std::atomic_thread_fence(kSeqCst);
    r[1] = second->load(order);
  };
  return Of({[=](Litmus* l) { l->x.store(1, order == kAcquire ? kRelease : order); },
             [=](Litmus* l) { l->y.store(1, order == kAcquire ? kRelease : order); },
             [=](Litmus* l) { reads(&l->x, &l->y, &l->r[0]); },
             [=](Litmus* l) { reads(&l->y, &l->x, &l->r[2]); }},
            4);
}

TEST(LitmusTest, TwoReadersMaySeeTwoWritesInOppositeOrder) {
  EXPECT_TRUE(Has(IndependentReads(kAcquire, false), {1, 0, 1, 0}));
  EXPECT_FALSE(Has(IndependentReads(kSeqCst, false), {1, 0, 1, 0}));
  EXPECT_FALSE(Has(IndependentReads(kRelaxed, true), {1, 0, 1, 0}));
}

TEST(LitmusTest, AWordNeverGoesBack) {
  const Outcomes outcomes = Of({[](Litmus* l) {
                                  l->x.store(1, kRelaxed);
                                  l->x.store(2, kRelaxed);
                                },
                                [](Litmus* l) {
                                  l->r[0] = l->x.load(kRelaxed);
                                  l->r[1] = l->x.load(kRelaxed);
                                }});
  EXPECT_EQ(outcomes, (Outcomes{{0, 0}, {0, 1}, {0, 2}, {1, 1}, {1, 2}, {2, 2}}));
}

TEST(LitmusTest, NoExchangeIsLost) {
  const Body add = [](Litmus* l) { l->x.fetch_add(1, kRelaxed); };
  const Outcomes outcomes = Of({add, add, [](Litmus* l) {
                                  int seen = 0;
                                  while (!l->x.compare_exchange_strong(seen, seen + 10, kRelaxed)) {
                                  }
                                  l->r[0] = seen;
                                }});
  EXPECT_EQ(outcomes, (Outcomes{{0}, {1}, {2}}));
}

// An exchange continues the release sequence of the store that it replaces; a store does not.
TEST(LitmusTest, AnExchangeHandsOnWhatItsValueReleased) {
  for (const bool exchanges : {true, false}) {
    const Outcomes outcomes = Of({[](Litmus* l) {
                                    l->x.store(1, kRelaxed);
                                    l->y.store(1, kRelease);
                                  },
                                  [=](Litmus* l) {
                                    int one = 1;
                                    if (exchanges)
                                      l->y.compare_exchange_strong(one, 2, kRelaxed);
                                    else if (l->y.load(kRelaxed) == 1)
                                      l->y.store(2, kRelaxed);
                                  },
                                  [](Litmus* l) {
                                    l->r[0] = l->y.load(kAcquire);
                                    l->r[1] = l->x.load(kRelaxed);
                                  }});
    EXPECT_TRUE(Has(outcomes, {2, 1}));
    EXPECT_EQ(Has(outcomes, {2, 0}), !exchanges);
  }
}

// A write passes the seq_cst exchange before it, unless a release fence stands between them: why
// ShmWords::CompareExchange has one (shm-O2).
TEST(LitmusTest, AWriteMayPassASeqCstExchange) {
  for (const bool fence : {false, true}) {
    const Outcomes outcomes = Of({[=](Litmus* l) {
                                    int zero = 0;
                                    l->x.compare_exchange_strong(zero, 1);
                                    if (fence) std::atomic_thread_fence(kRelease);
                                    l->y.store(1, kRelaxed);
                                  },
                                  [](Litmus* l) {
                                    l->r[0] = l->y.load(kRelaxed);
                                    std::atomic_thread_fence(kAcquire);
                                    l->r[1] = l->x.load(kSeqCst);
                                  }});
    EXPECT_EQ(Has(outcomes, {1, 0}), !fence);
  }
}

}  // namespace
}  // namespace covey
