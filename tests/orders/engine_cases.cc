#include "tests/orders/engine_stage.h"
// After the stage.
#include "tests/orders/cases.h"
#include "tests/orders/mutants/core/engine/engine.cc"
#include "tests/orders/mutants/core/engine/tensor_queue.cc"

namespace covey {
namespace {

// Two threads submit an operation each and wait for it, alone, or with an engine thread, where one
// of them only looks until it has ended; the last one stops the engine. All return with their
// results (engine-Q5): no submission (engine-Q6) and no wake-up (engine-E2) is lost, and one thread
// at a time drives the runtime (engine-E1). Repeating ones may do so where they submit.
template <bool kThreaded, bool kRepeats>
class EngineCase final : public OrdersCase {
 public:
  int threads() const override { return kWaiters + (kThreaded ? 1 : 0); }

  void Begin(Execution* execution) override {
    ShmJob job;
    const ShmJob::Identity identity{.rank = Rank{0}, .size = 1};
    execution->Expect(ShmJob::Open(Memory(), identity, &job).ok(), "no memory");
    transport_ = std::make_unique<ShmTransport>(job, nullptr);
    execution_ = execution;
    mappings_ = std::make_unique<Mappings>(execution, threads(), kTensors);
    execution->Watch(0, kTensors);
    runtime_ = std::make_unique<Runtime>(
        execution, &queue_, [this](const Operation& operation) { return Tensor(operation.draw); });
    staged_thread = &staged_;
    const Engine::Options options{.spin = 0,
                                  .yields = 0,
                                  .recheck = kNever / 4,
                                  .oversubscribed = !kRepeats,
                                  .threaded = kThreaded};
    engine_ = std::make_unique<Engine>(options, runtime_.get(), transport_.get(), &queue_);
    engine_->Start();
  }

  void Run(int thread) override {
    if (thread == kWaiters) {
      staged_.body();
      return staged_.ended.store(true, std::memory_order_release);
    }
    Operation* operation = queue_.New();
    operation->draw = static_cast<uint64_t>(thread);
    *Tensor(operation->draw) = Runtime::kGiven;
    uint64_t handle = 0;
    const Status submitted =
        kRepeats ? engine_->SubmitRepeat(operation, &handle) : queue_.Submit(operation, &handle);
    execution_->Expect(submitted.ok(), "a submission is refused");
    if (!kRepeats) engine_->Kick();
    {
      HeldOperation held(&queue_, handle);
      Await(*held, kThreaded && !kRepeats && thread == 0);
      held.See();
      const uint64_t result = *Tensor(static_cast<uint64_t>(thread));
      execution_->Expect(result == Runtime::kResult, "an operation has ended without its result");
    }
    execution_->Expect(queue_.ReleaseIfDone(handle), "engine-Q1: its handle is unknown");
    if (++ended_ == kWaiters) engine_->Stop();
  }

 private:
  void Await(const Operation& operation, bool only_looks) {
    if (!only_looks) engine_->Wait(operation, kNever);
    while (!operation.ended.load(std::memory_order_acquire)) sched_yield();
  }

  static constexpr int kWaiters = 2;
  static constexpr size_t kTensors = kWaiters * sizeof(uint64_t);

  uint64_t* Tensor(uint64_t number) {
    return reinterpret_cast<uint64_t*>((*mappings_)[execution_->current()]) + number;
  }

  static int Memory() {
    static const int memory = [] {
      int fd = -1;
      (void)ShmJob::Create(1, kPageBytes, &fd).ok();
      return fd;
    }();
    return memory;
  }

  Execution* execution_ = nullptr;
  std::unique_ptr<Mappings> mappings_;
  StagedThread staged_;
  TensorQueue queue_;
  std::unique_ptr<ShmTransport> transport_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Engine> engine_;
  int ended_ = 0;
};

template <bool kThreaded, bool kRepeats>
std::unique_ptr<OrdersCase> New() {
  return std::make_unique<EngineCase<kThreaded, kRepeats>>();
}

}  // namespace

std::vector<NamedCase> EngineCases() {
  const OrdersBounds bounds{.deviations = 2, .most_searched = 4000, .drawn = 3000};
  return {{"driving", New<false, false>, bounds},
          {"engine", New<true, false>, bounds},
          {"repeating", New<true, true>, bounds}};
}

}  // namespace covey
