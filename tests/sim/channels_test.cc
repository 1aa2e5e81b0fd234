// Messages of replicas go with a runtime's own, and neither disturbs the other: versions are the
// sums of their records, alike on all ranks, and allreduces beside them are right.
//
// Method: whole runtimes over a network that is slow, refuses and reorders between pairs, one seed
// each; gradients longer than a frame; whole numbers, so that a sum says what went into it.
#include <gtest/gtest.h>

#include <memory>

#include "core/replicated/replica_port.h"
#include "tests/sim/simulator/world.h"

namespace covey {
namespace {

constexpr int64_t kSteps = 6;
constexpr size_t kElems = 100'000;  // four frames
constexpr uint64_t kChannel = 77;
constexpr int kMostTurns = 3'000'000;

// A rank that publishes, waits, reads, and has an allreduce under way all the time.
class Player {
 public:
  Player(World* world, int32_t rank, bool waits_for_all) : world_(world), rank_(rank) {
    const RoundSpan spans[] = {{DType::kF32, kElems}};
    AdmissionRule rule;
    if (!waits_for_all) rule.permille = 500;
    port_ = std::make_unique<ReplicaPort>(
        RoundsPort::Bundle{.name = "test",
                           .shape = {.size = world->size(), .log = 100},
                           .layout = RoundLayout(spans, 64 * 1024),
                           .options = {.self = rank,
                                       .admission = rule,
                                       .max_wait = kNever,
                                       .kernels = &BestKernels()},
                           .waiting = {}},
        world->GroupOn(rank, world->everybody()), HostsOf(world->size()),
        ReplicaPort::Driver{
            .drive = [](const std::atomic<bool>& ended, Time) { return ended.load(); },
            .kick = [] {},
            .clock = &world->network().clock()});
    port_->Open(std::vector<uint64_t>(static_cast<size_t>(world->size()), kChannel));
    result_.resize(kElems);
  }

  void Join() {
    port_->Join(&world_->runtime(rank_).channels());
    is_open_ = true;
  }

  void Act() {
    if (!is_open_) return;
    Reduce();
    if (is_done_) return;
    RoundsPort::Event event = RoundsPort::Event::kTime;
    if (is_finishing_) {
      ASSERT_TRUE(port_->FinishServing(kServesNobody, 0, &event).ok());
      is_done_ = event == RoundsPort::Event::kDone;
      if (is_done_) ReadAll();
      return;
    }
    ASSERT_TRUE(port_->WaitServing(step_, kServesNobody, 0, &event).ok());
    if (event != RoundsPort::Event::kDone) return;
    ReadAll();
    is_finishing_ = step_ == kSteps;
    if (is_finishing_) return;
    auto* to = reinterpret_cast<float*>(port_->open());
    for (size_t i = 0; i < kElems; ++i) to[i] = ValueOf(rank_, step_ + 1, i);
    step_ = port_->Publish({});
  }

  bool is_done() const { return is_done_; }
  int reduced() const { return reduced_; }
  const std::vector<uint64_t>& last() const { return last_; }
  uint64_t executed() { return port_->executed(); }

 private:
  static constexpr uint64_t kServesNobody = ~uint64_t{0};

  // Two on each.
  static std::vector<int32_t> HostsOf(int32_t size) {
    std::vector<int32_t> hosts;
    for (int32_t r = 0; r < size; ++r) hosts.push_back(r / 2);
    return hosts;
  }

  static float ValueOf(int32_t rank, uint64_t step, size_t element) {
    return static_cast<float>(step * 1000 + static_cast<uint64_t>(rank) * 100 + element % 89);
  }

  void ReadAll() {
    last_.resize(static_cast<size_t>(world_->size()));
    while (read_ < port_->executed()) {
      void* to[] = {result_.data()};
      RoundRecord record;
      ASSERT_TRUE(port_->Read(++read_, to, &record).ok());
      for (size_t i = 0; i < kElems; i += 997) {
        float sum = 0;
        for (int32_t r = 0; r < world_->size(); ++r) {
          const Contribution& c = record.contributions[static_cast<size_t>(r)];
          for (uint64_t step = c.first; c.count > 0 && step <= c.last; ++step)
            sum += ValueOf(r, step, i);
        }
        ASSERT_EQ(result_[i], sum) << "version " << read_ << " element " << i;
      }
      for (size_t r = 0; r < last_.size(); ++r) {
        const Contribution& c = record.contributions[r];
        if (c.count == 0) continue;
        ASSERT_EQ(c.first, last_[r] + 1) << "version " << read_ << " rank " << r;
        last_[r] = c.last;
      }
    }
  }

  void Reduce() {
    if (reduced_ == kSteps || (operation_ != nullptr && !operation_->ended.load())) return;
    if (operation_ != nullptr) {
      for (const float value : data_)
        ASSERT_EQ(value, static_cast<float>(world_->size() * (world_->size() + 1) / 2));
      ++reduced_;
    }
    if (reduced_ == kSteps) return;
    std::fill(data_.begin(), data_.end(), static_cast<float>(rank_ + 1));
    Request request{.kind = Kind::kAllreduce,
                    .group = world_->GroupOn(rank_, world_->everybody()),
                    .name = "beside",
                    .op = Op::kSum};
    request.inputs = {MakeTensor(DType::kF32, {static_cast<int64_t>(data_.size())}, data_.data())};
    request.outputs = request.inputs;
    operation_ = world_->Submit(rank_, std::move(request));
  }

  World* world_;
  int32_t rank_;
  std::unique_ptr<ReplicaPort> port_;
  bool is_open_ = false, is_finishing_ = false, is_done_ = false;
  uint64_t step_ = 0, read_ = 0;
  std::vector<uint64_t> last_;
  std::vector<float> result_;
  std::vector<float> data_ = std::vector<float>(3000);
  Operation* operation_ = nullptr;
  int reduced_ = 0;
};

TEST(ChannelsTest, NeitherDisturbsTheOther) {
  for (uint64_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto size = static_cast<int32_t>(2 + seed % 4);
    World world({.size = size, .seed = seed, .mirrored = true});
    std::vector<std::unique_ptr<Player>> players;
    for (int32_t r = 0; r < size; ++r)
      players.push_back(std::make_unique<Player>(&world, r, seed % 2 == 0));
    // Some are open when others already write to them.
    int32_t open = 0;
    for (int turn = 0; turn < kMostTurns && !testing::Test::HasFailure(); ++turn) {
      if (open < size && (open == 0 || world.rng().Percent(1))) players[open++]->Join();
      players[world.rng().Below(static_cast<uint64_t>(size))]->Act();
      world.Step();
      bool all = true;
      for (const auto& player : players) all &= player->is_done() && player->reduced() == kSteps;
      if (all) break;
    }
    for (const auto& player : players) {
      EXPECT_TRUE(player->is_done());
      EXPECT_EQ(player->reduced(), kSteps);
      EXPECT_EQ(player->executed(), players[0]->executed());
      EXPECT_EQ(player->last(), std::vector<uint64_t>(static_cast<size_t>(size), kSteps));
    }
  }
}

}  // namespace
}  // namespace covey
