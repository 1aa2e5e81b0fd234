#include "tests/orders/one_shot_stage.h"
// After the stage.
#include "tests/orders/mutants/core/transport/one_shot.cc"
#undef close
#include "tests/orders/cases.h"

namespace covey {
namespace {

// A thread sleeps at the descriptor until it finds that the network concerns it. Another one arms
// the descriptor, says so, and arms it once more: whether that has an effect or not, the sleeper
// finds it.
class OneShotCase final : public OrdersCase {
 public:
  int threads() const override { return 2; }

  void Begin(Execution* execution) override {
    staged_epoll = &readable_;
    execution->Expect(shot_.Open(0).ok(), "it does not open");
  }

  void Run(int thread) override {
    if (thread == 1) {
      shot_.Arm();
      concerns_.store(true, std::memory_order_relaxed);
      return shot_.Arm();
    }
    while (!concerns_.load(std::memory_order_relaxed)) {
      while (readable_.load(std::memory_order_relaxed) == 0)
        checked::FutexWait(&readable_, 0, true);
      shot_.Consume();
    }
  }

 private:
  OneShot shot_;
  std::atomic<uint32_t> readable_{0};
  std::atomic<bool> concerns_{false};
};

}  // namespace

std::vector<NamedCase> OneShotCases() {
  return {{"shot",
           [] { return std::unique_ptr<OrdersCase>(std::make_unique<OneShotCase>()); },
           {.deviations = 3, .most_searched = 20000, .drawn = 3000}}};
}

}  // namespace covey
