#include "tests/orders/mirrored_stage.h"
// After the stage.
#include "tests/orders/mutants/core/transport/mirrored.cc"
#undef eventfd
#undef eventfd_write
#undef eventfd_read
#undef ppoll
#undef close
#include "tests/orders/cases.h"

namespace covey {
namespace {

// The network of a rank that has no peers.
class NoLink final : public Link {
 public:
  Rank rank() const override { return Rank{0}; }
  int size() const override { return 1; }
  bool Send(Rank, std::span<const std::byte>) override { return true; }
  bool Receive(Rank*, std::span<const std::byte>*) override { return false; }
  bool Flushed() override { return true; }
  std::vector<PeerLoss> PollLost() override { return {}; }
};

// A thread sleeps until two things are there, as the engine thread sleeps at a network; another one
// brings them and rings as Engine::Kick does. No wake-up is lost (transport-T3).
class MirroredCase final : public OrdersCase {
 public:
  int threads() const override { return 2; }

  void Begin(Execution* execution) override {
    staged_bells = &bells_;
    const Mirrored::Options options{.arena_bytes = 4096};
    const Status opened = Mirrored::Open(options, std::make_unique<NoLink>(), &transport_);
    execution->Expect(opened.ok(), "it does not open");
  }

  void Run(int thread) override {
    using Sleeper = Transport::Sleeper;
    if (thread == 1) {
      for (uint32_t number = 1; number <= kThings; ++number) {
        there_.store(number, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (transport_->Parked() == Sleeper::kEngine) transport_->Ring(Sleeper::kEngine);
      }
      return;
    }
    while (there_.load() < kThings) {
      const uint32_t ticket = transport_->Ticket(Sleeper::kEngine);
      transport_->SetParked(Sleeper::kEngine);
      if (there_.load() < kThings) transport_->Park(Sleeper::kEngine, ticket, kNever);
      transport_->SetParked(Sleeper::kNobody);
    }
  }

 private:
  static constexpr uint32_t kThings = 2;

  StagedBells bells_{};
  std::unique_ptr<Transport> transport_;
  std::atomic<uint32_t> there_{0};
};

}  // namespace

std::vector<NamedCase> MirroredCases() {
  return {{"mirrored",
           [] { return std::unique_ptr<OrdersCase>(std::make_unique<MirroredCase>()); },
           {.deviations = 3, .most_searched = 20000, .drawn = 3000}}};
}

}  // namespace covey
