// Goal: no wake-up is lost in the few instructions between a look and the sleep after it.
// Method: one rank over shared memory, whose transport stops a thread right there until the other
// side has done its part. No thread looks by itself.
#include "core/engine/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <semaphore>

#include "core/base/clock.h"
#include "core/base/kernels.h"

namespace covey {
namespace {

using Sleeper = Transport::Sleeper;

constexpr Time kAnHour = 3600 * kSecond;
constexpr Time kPatience = 20 * kSecond;  // until a wake-up counts as lost

// A transport that tells of the steps to sleep.
class Relay final : public Transport {
 public:
  Relay() {
    const TransportOptions options{.rank = Rank{0}, .size = 1, .arena_bytes = 1 << 20};
    const Status opened = FindTransport("shm")->open(options, &inner_);
    EXPECT_TRUE(opened.ok()) << opened.message();
  }

  std::function<void(Sleeper)> before_ticket = [](Sleeper) {};
  std::function<void(Sleeper)> after_parked = [](Sleeper) {};
  std::function<bool(Sleeper)> may_park = [](Sleeper) { return true; };
  std::function<void(Sleeper)> after_ring = [](Sleeper) {};

  uint32_t Ticket(Sleeper sleeper) override {
    before_ticket(sleeper);
    return inner_->Ticket(sleeper);
  }
  void SetParked(Sleeper sleeper) override {
    inner_->SetParked(sleeper);
    after_parked(sleeper);
  }
  Sleeper Parked() const override { return inner_->Parked(); }
  void Park(Sleeper sleeper, uint32_t ticket, Time until) override {
    if (may_park(sleeper)) inner_->Park(sleeper, ticket, until);
  }
  void Ring(Sleeper sleeper) override {
    inner_->Ring(sleeper);
    after_ring(sleeper);
  }

  Rank rank() const override { return inner_->rank(); }
  bool Shares(Rank peer) const override { return inner_->Shares(peer); }
  int size() const override { return inner_->size(); }
  bool TrySend(Rank to, std::span<const std::byte> message) override {
    return inner_->TrySend(to, message);
  }
  bool TryReceive(Rank* from, Bytes* message) override { return inner_->TryReceive(from, message); }
  bool HasMail() override { return inner_->HasMail(); }
  size_t MaxMessageBytes() const override { return inner_->MaxMessageBytes(); }
  std::byte* Base(Rank r) override { return inner_->Base(r); }
  uint64_t AllocShared(size_t length) override { return inner_->AllocShared(length); }
  void FreeShared(uint64_t offset) override { inner_->FreeShared(offset); }
  void* AllocData(size_t length) override { return inner_->AllocData(length); }
  uint64_t OffsetOf(const std::byte* data, size_t length) const override {
    return inner_->OffsetOf(data, length);
  }
  void BecomePrivate() override {}
  bool CanReadPeers() const override { return false; }
  int ReadPeer(Rank, uint64_t, std::byte*, size_t) override { return -1; }
  uint64_t LoadAcquire(const uint64_t* word) override { return inner_->LoadAcquire(word); }
  void StoreRelease(uint64_t* word, uint64_t value) override { inner_->StoreRelease(word, value); }
  void Wake(std::span<const Rank> peers) override { inner_->Wake(peers); }
  std::vector<PeerLoss> PollPeers() override { return inner_->PollPeers(); }

 private:
  std::unique_ptr<Transport> inner_;
};

// A rank alone, with all that an engine drives.
struct Alone {
  explicit Alone(bool threaded)
      : engine({.spin = 0, .yields = 0, .recheck = kAnHour, .threaded = threaded}, &runtime,
               &transport, &queue) {}

  Operation* NewBarrier() {
    Operation* operation = queue.New();
    operation->group = &world;
    operation->name = "barrier";
    return operation;
  }
  void Submit(Operation* operation) {
    uint64_t handle = 0;
    EXPECT_TRUE(queue.Submit(operation, &handle).ok());
  }

  Relay transport;
  Group world{.key = 0, .members = {Rank{0}}, .my_index = GroupIndex{0}};
  MonotonicClock clock;
  Log log{LogLevel::kOff, Rank{0}};
  TensorQueue queue;
  Runtime runtime{{.recheck = kAnHour, .kernels = &BestKernels(), .clock = &clock, .log = &log},
                  &transport,
                  &queue};
  Engine engine;
};

bool IsAsleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  return text.find(") S ") != std::string::npos;
}

// One thread drives; what another sleeps for ends in the pass after the first has said that it is
// about to park.
TEST(EngineLookTest, TheLastOneTellsSleepersToo) {
  Alone rank(false);
  Operation* known = rank.NewBarrier();
  rank.Submit(known);
  ASSERT_TRUE(rank.engine.Wait(*known, MonotonicNow() + kPatience));  // the next ends in one pass

  Operation* awaited = rank.NewBarrier();
  std::atomic<pid_t> sleeper{0};
  std::binary_semaphore parks{0};
  bool is_submitted = false;
  rank.transport.after_parked = [&](Sleeper parked) {
    if (parked != Sleeper::kWaiter || is_submitted) return;
    parks.release();
    while (sleeper.load() == 0 || !IsAsleep(sleeper.load())) sched_yield();
    is_submitted = true;
    rank.Submit(awaited);
  };
  const std::atomic<bool> never{false};
  std::thread driver([&] { rank.engine.DriveUntil(never, kNever); });
  parks.acquire();
  std::thread waiter([&] {
    sleeper.store(gettid());
    EXPECT_TRUE(rank.engine.Wait(*awaited, MonotonicNow() + kPatience));
  });
  waiter.join();
  rank.engine.Stop();
  driver.join();
}

class EngineStopTest : public testing::TestWithParam<Sleeper> {};

// Stop comes, and rings, when a thread has looked for it and has no ticket yet.
TEST_P(EngineStopTest, IsSeenByWhoIsAboutToSleep) {
  Alone rank(GetParam() == Sleeper::kEngine);
  std::binary_semaphore looked{0}, rung{0};
  std::atomic<int> tickets{0}, late{0};
  rank.transport.before_ticket = [&](Sleeper sleeper) {
    if (sleeper != GetParam() || tickets.fetch_add(1) > 0) return;
    looked.release();
    rung.acquire();
  };
  rank.transport.after_ring = [&](Sleeper sleeper) {
    if (sleeper == GetParam()) rung.release();
  };
  rank.transport.may_park = [&](Sleeper) {
    late.fetch_add(1);
    return false;
  };
  rank.engine.Start();
  const std::atomic<bool> never{false};
  std::thread driver([&] {
    if (GetParam() == Sleeper::kWaiter) rank.engine.DriveUntil(never, kNever);
  });
  looked.acquire();
  rank.engine.Stop();
  driver.join();
  EXPECT_EQ(late.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Each, EngineStopTest, testing::Values(Sleeper::kEngine, Sleeper::kWaiter),
                         [](const auto& each) {
                           return each.param == Sleeper::kEngine ? "engine" : "waiter";
                         });

}  // namespace
}  // namespace covey
