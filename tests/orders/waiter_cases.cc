#include "core/transport/event_count.h"
#include "ops/transports/shm_words.h"
#include "tests/orders/cases.h"

namespace covey {
namespace {

class StandingClock final : public Clock {
 public:
  Time Now() override { return kSecond; }
};

// Two threads wait for a word at an event count, and one of them for the flag that stops it as
// well. A third one changes both and rings each time. All return: no wake-up is lost.
class EventCase : public OrdersCase {
 public:
  int threads() const override { return kSleepers + 1; }

  void Begin(Execution* execution) override {
    execution_ = execution;
    mappings_ = std::make_unique<Mappings>(execution, threads(), kWords * sizeof(uint64_t));
  }

  void Run(int thread) override {
    uint64_t* words = reinterpret_cast<uint64_t*>((*mappings_)[thread]);
    if (thread == kSleepers) {
      words_.Store(words + kWord, 1);
      words_.Ring(words + kEventCount);
      stop_ = true;
      return words_.Ring(words + kEventCount);
    }
    const Status status = WaitForEvent(&words_, words + kEventCount, {.longest_sleep = kNever / 2},
                                       &clock_, stop_, kNever, [&](Time) {
                                         Looked looked;
                                         // Thread 0 waits for the stop alone.
                                         if (thread > 0 && words_.Load(words + kWord) == 1)
                                           looked.end = Status::Ok();
                                         return looked;
                                       });
    if (thread == 0)
      execution_->Expect(status.code() == StatusCode::kAborted, "it was not stopped");
  }

 private:
  static constexpr int kSleepers = 2;
  enum : size_t { kWord, kEventCount = 8, kWords = 16 };

  Execution* execution_ = nullptr;
  std::unique_ptr<Mappings> mappings_;
  ShmWords words_;
  StandingClock clock_;
  std::atomic<bool> stop_{false};
};

}  // namespace

std::vector<NamedCase> WaiterCases() {
  return {{"event",
           [] { return std::unique_ptr<OrdersCase>(std::make_unique<EventCase>()); },
           {.deviations = 3, .most_searched = 20000, .drawn = 3000}}};
}

}  // namespace covey
