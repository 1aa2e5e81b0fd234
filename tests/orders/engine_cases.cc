#include "tests/orders/engine_stage.h"
// After the stage.
#include "tests/orders/cases.h"
#include "tests/orders/mutants/core/engine/engine.cc"

namespace covey {
namespace {

// Two threads submit an operation each and wait for it, with an engine thread or alone; the last
// one stops the engine. All return: no wake-up is lost (engine-E2), and one thread at a time drives
// the runtime (engine-E1).
template <bool kThreaded>
class EngineCase final : public OrdersCase {
 public:
  int threads() const override { return kWaiters + (kThreaded ? 1 : 0); }

  void Begin(Execution* execution) override {
    ShmJob job;
    const ShmJob::Identity identity{.rank = Rank{0}, .size = 1};
    execution->Expect(ShmJob::Open(Memory(), identity, &job).ok(), "no memory");
    transport_ = std::make_unique<ShmTransport>(job, nullptr);
    runtime_ = std::make_unique<Runtime>(execution, &queue_);
    staged_thread = &staged_;
    const Engine::Options options{.spin = 0,
                                  .yields = 0,
                                  .recheck = kNever / 4,
                                  .oversubscribed = true,
                                  .threaded = kThreaded};
    engine_ = std::make_unique<Engine>(options, runtime_.get(), transport_.get(), &queue_);
    engine_->Start();
  }

  void Run(int thread) override {
    if (thread == kWaiters) {
      staged_.body();
      return staged_.ended.store(true, std::memory_order_release);
    }
    Operation& operation = operations_[static_cast<size_t>(thread)];
    queue_.Submit(static_cast<size_t>(thread), &operation);
    engine_->Kick();
    engine_->Wait(operation, kNever);
    if (++ended_ == kWaiters) engine_->Stop();
  }

 private:
  static constexpr int kWaiters = TensorQueue::kMost;

  static int Memory() {
    static const int memory = [] {
      int fd = -1;
      (void)ShmJob::Create(1, kPageBytes, &fd).ok();
      return fd;
    }();
    return memory;
  }

  StagedThread staged_;
  TensorQueue queue_;
  Operation operations_[kWaiters];
  std::unique_ptr<ShmTransport> transport_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Engine> engine_;
  int ended_ = 0;
};

}  // namespace

std::vector<NamedCase> EngineCases() {
  const OrdersBounds bounds{.deviations = 2, .most_searched = 4000, .drawn = 3000};
  return {{"driving", [] { return std::unique_ptr<OrdersCase>(new EngineCase<false>()); }, bounds},
          {"engine", [] { return std::unique_ptr<OrdersCase>(new EngineCase<true>()); }, bounds}};
}

}  // namespace covey
