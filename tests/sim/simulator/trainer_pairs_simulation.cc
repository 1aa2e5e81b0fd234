#include "tests/sim/simulator/trainer_pairs_simulation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/engine/trainer_pairs.h"
#include "core/gossip/gossip_port.h"
#include "ops/transports/inproc.h"
#include "tests/sim/simulator/fiber.h"
#include "tests/sim/simulator/learnt_models.h"
#include "tests/sim/simulator/split_kernels.h"
#include "tests/sim/simulator/trainer_pairs_swarm.h"

namespace covey {
namespace {

constexpr uint64_t kMostResumes = 1'000'000;
constexpr uint64_t kMostStops = 30;
constexpr uint64_t kMostTrainedOn = 1000;  // Else waiting ranks might miss each other for ever.
constexpr Time kLongestStep = 20 * kMicrosecond;
constexpr Time kLongestStop = 3 * kMillisecond;
constexpr Time kSlice = 300 * kMicrosecond;  // of a wait, which then goes on
constexpr size_t kWithGap = 16;              // and the gap between the two parameters

// A rank that waits lets others run.
class SimulatedGossip final : public GossipPort {
 public:
  SimulatedGossip(Bundle bundle, const Group* group, Transport* transport, Clock* clock,
                  std::function<void()> yield)
      : GossipPort(std::move(bundle), group, transport), yield_(std::move(yield)) {
    clock_ = clock;
  }

 protected:
  Status WaitFor(const Look& look, Time deadline) override {
    for (;;) {
      if (stop_.load()) return Status::Aborted("the simulation is over");
      const Looked looked = look(clock_->Now());
      if (looked.end) return *looked.end;
      if (clock_->Now() >= deadline) return Status::Timeout("the deadline is over");
      yield_();
    }
  }

 private:
  std::function<void()> yield_;
};

class Simulation final : public InprocWatcher {
 public:
  Simulation(uint64_t seed, int32_t ranks);
  TrainerPairsVerdict Run();

  void OnPoint(Rank r) override { Point(ToInt(r)); }
  void OnRing(Rank, bool) override {}

 private:
  struct Player {
    Group group;
    std::unique_ptr<SimulatedGossip> port;
    std::unique_ptr<TrainerPairs> pairs;
    std::unique_ptr<Trainer> trainer;
    std::unique_ptr<Fiber> fiber;
    Trainer::Ready ready;
    std::array<double, kWithGap> held{};
    Numbers model{}, learnt{};
    Time stopped_until = 0;
    bool is_killed = false, has_ended = false;
    bool has_gone_on = false;  // in the last finish()
  };

  Player& At(int32_t rank) { return players_[static_cast<size_t>(rank)]; }
  void Open(int32_t rank);
  void Point(int32_t rank) {
    if (closing_ || rank != current_) return;
    if (rng_.Below(1000) < swarm_.switch_permille) Yield(rank);
  }
  void Yield(int32_t rank) {
    if (!closing_) At(rank).fiber->Yield();
  }
  void Main(int32_t rank);
  void Step(int32_t rank);
  void EndEpoch(int32_t rank, uint64_t epoch);
  bool Gather(int32_t rank, bool settles);
  Status Drive(int32_t rank, const std::function<Trainer::Ready()>& call);
  bool Do(int32_t rank, const Trainer::Action& action);
  void Exchange(int32_t rank);
  void LookAround(int32_t rank);
  void Check(const Epoch& epoch, bool is_settled);
  void CheckEqual(const Player& player, uint64_t number);
  void Strike();
  void Fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  Rng rng_;
  TrainerPairsSwarm swarm_;
  InprocNetwork network_;
  MethodChoice method_;
  TrainerLayout layout_;
  std::vector<Player> players_;
  std::vector<Epoch> epochs_;
  std::map<uint64_t, Numbers> ends_;  // by the number of the finish(): its model
  int32_t current_ = -1;
  bool closing_ = false;
  std::string failure_;
  TrainerPairsVerdict verdict_;
};

Simulation::Simulation(uint64_t seed, int32_t ranks)
    : rng_(seed),
      swarm_(&rng_, ranks),
      network_({.size = swarm_.size,
                .seed = seed,
                .region_bytes = 1 << 20,
                .longest_news_delay = kLongestStop,
                .watcher = this}),
      layout_({{DType::kF64, 8}, {DType::kF64, 4}}),
      players_(static_cast<size_t>(swarm_.size)),
      epochs_(swarm_.epochs) {
  CHECK(ParseMethod(swarm_.method, &method_).ok(), "the swarm draws methods that there are");
  for (int32_t r = 0; r < swarm_.size; ++r) Open(r);
  std::vector<uint64_t> places;
  for (int32_t r = 0; r < swarm_.size; ++r)
    places.push_back(network_.transport(Rank{r}).AllocShared(At(r).port->BlockBytes()));
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = At(r);
    player.port->Open(places);
    player.pairs = std::make_unique<TrainerPairs>(
        TrainerPairs::Options{.port = player.port.get(),
                              .layout = &layout_,
                              .model = reinterpret_cast<std::byte*>(player.held.data()),
                              .kernels = &SplitKernels(),
                              .leave = [this, r] { At(r).port->Close(); }});
    player.trainer = std::make_unique<Trainer>(method_, MethodView{swarm_.size, GroupIndex{r}}, 0);
    player.fiber = std::make_unique<Fiber>([this, r] { Main(r); });
  }
}

void Simulation::Open(int32_t rank) {
  Player& player = At(rank);
  for (int32_t r = 0; r < swarm_.size; ++r) player.group.members.push_back(Rank{r});
  player.group.my_index = GroupIndex{rank};
  const MethodPairs pairs = method_.Plan({swarm_.size, GroupIndex{rank}}, 0).pairs;
  const RoundSpan span{DType::kF64, kWithGap};
  player.port = std::make_unique<SimulatedGossip>(
      GossipPort::Bundle{
          .name = "simulated",
          .layout = RoundLayout({&span, 1}, 64),
          .self = rank,
          .rule = {.topology = {.kind = pairs.topology, .size = swarm_.size, .seed = pairs.seed},
                   .all_begin = pairs.all_begin,
                   .local_steps = pairs.local_steps,
                   .is_random = pairs.is_random,
                   .non_blocking = pairs.non_blocking},
          .max_wait = pairs.max_wait.time,
          .kernels = &SplitKernels()},
      &player.group, &network_.transport(Rank{rank}), &network_.clock(),
      [this, rank] { Yield(rank); });
}

void Simulation::Main(int32_t rank) {
  Player& player = At(rank);
  for (uint64_t epoch = 0; epoch < swarm_.epochs && !closing_; ++epoch) {
    for (uint64_t step = 0; step < swarm_.steps && !closing_; ++step) {
      if (rng_.Percent(swarm_.looks_percent)) LookAround(rank);
      Step(rank);
    }
    if (!closing_) EndEpoch(rank, epoch);
  }
  player.has_ended = !closing_;
  player.pairs->Leave();
}

void Simulation::Step(int32_t rank) {
  Trainer& trainer = *At(rank).trainer;
  const Time begun = network_.clock().Now();
  Status status = Status::Ok();
  do {
    status = Drive(rank, [&] { return trainer.OnStep("", network_.clock().Now()); });
    if (network_.clock().Now() - begun > kSecond) return Fail("5: a step waits");
  } while (status.code() == StatusCode::kAborted && !closing_);
  if (!status.ok() && !closing_) Fail("4: a step ends with " + status.message());
}

void Simulation::EndEpoch(int32_t rank, uint64_t number) {
  Player& player = At(rank);
  const bool settles = (swarm_.settles >> number & 1) != 0 && number + 1 < swarm_.epochs;
  if (!Gather(rank, settles)) return;
  ++(settles ? verdict_.settled : verdict_.finished);
  if (!settles) CheckEqual(player, number);
  if (player.trainer->position().may_differ != settles && swarm_.steps > 0 && swarm_.is_strict)
    Fail("2: may_differ() is wrong");
  Epoch& epoch = epochs_[number];
  epoch.Add(player.model, player.learnt);
  if (epoch.models.size() == players_.size()) Check(epoch, settles);
  if (settles || !swarm_.finishes_twice || !Gather(rank, false)) return;
  ++verdict_.finished_again;
  CheckEqual(player, swarm_.epochs + number);
}

// Ends an epoch: repeats finish(), or with `settles` the call before a checkpoint (train-T17).
// Returns true once it has returned Ok, and false if the simulation ends or fails first.
bool Simulation::Gather(int32_t rank, bool settles) {
  Player& player = At(rank);
  player.has_gone_on = false;
  while (!closing_) {
    const Status status = Drive(rank, [&] {
      const Time now = network_.clock().Now();
      return settles ? player.trainer->OnSettle(now)
                     : player.trainer->OnFinish(swarm_.is_strict, now);
    });
    if (closing_ || status.ok()) break;
    verdict_.timeouts += status.code() == StatusCode::kTimeout ? 1 : 0;
    if (status.code() != StatusCode::kTimeout && status.code() != StatusCode::kAborted) {
      Fail("4: an epoch ends with " + status.message());
      return false;
    }
    const bool may_train_on = verdict_.trained_on < kMostTrainedOn;
    if (status.code() == StatusCode::kTimeout && rng_.Percent(swarm_.trains_on) && may_train_on) {
      ++verdict_.trained_on;
      Step(rank);
    }
  }
  return !closing_;
}

// Ranks that have not gone on without others have one model.
void Simulation::CheckEqual(const Player& player, uint64_t number) {
  const bool is_alone = verdict_.killed > 0 || verdict_.trained_on > 0;
  if (player.has_gone_on || is_alone) return;
  Numbers& first = ends_.try_emplace(number, player.model).first->second;
  verdict_.ended_later += verdict_.went_on > 0 ? 1 : 0;
  if (player.model != first) Fail("1: finish() leaves two models");
}

void Simulation::Check(const Epoch& epoch, bool is_settled) {
  // A rank that trains on while the others meet has work that is in no mean yet.
  if (verdict_.killed > 0 || verdict_.trained_on > 0 || !swarm_.is_strict) return;
  ++verdict_.whole;
  for (const Numbers& model : epoch.models)
    if (!is_settled && model != epoch.models[0]) Fail("1: finish() leaves two models");
  if (const std::string apart = epoch.Apart(); !apart.empty())
    Fail((is_settled ? "2: " : "1: ") + apart);
}

// To the end of the call, as an adapter does.
Status Simulation::Drive(int32_t rank, const std::function<Trainer::Ready()>& call) {
  Player& player = At(rank);
  player.ready = call();
  while (!player.ready.end.has_value()) {
    if (player.ready.exchange.has_value()) {
      Exchange(rank);
    } else {
      const Trainer::Action action = *player.ready.action;
      const int64_t before = player.trainer->version();
      const bool is_done = Do(rank, action);
      player.ready = player.trainer->OnAck(action.number, is_done, network_.clock().Now());
      const bool is_update = is_done && action.stage == Stage::kUpdate;
      if (player.trainer->version() - before != (is_update ? 1 : 0))
        Fail("4: version() has grown by " + std::to_string(player.trainer->version() - before));
    }
    if (closing_) return Status::Aborted("the simulation is over");
  }
  return *player.ready.end;
}

bool Simulation::Do(int32_t rank, const Trainer::Action& action) {
  Player& player = At(rank);
  Yield(rank);
  if (rng_.Below(1000) < swarm_.refusals_permille) {
    ++verdict_.refused;
    return false;
  }
  if (action.stage == Stage::kUpdate) {
    const auto by = static_cast<double>(rng_.Below(1000));
    Learn(by, &player.model, &player.learnt);
    ++verdict_.updates;
  }
  if (action.stage == Stage::kCollectModel)
    std::memcpy(player.held.data(), player.model.data(), sizeof(player.model));
  if (action.stage == Stage::kLoadModel)
    std::memcpy(player.model.data(), player.held.data(), sizeof(player.model));
  return true;
}

void Simulation::Exchange(int32_t rank) {
  Player& player = At(rank);
  const Trainer::Exchange exchange = *player.ready.exchange;
  if (!IsOfPairs(exchange.stage)) return Fail("4: an exchange that is not of pairs");
  StageResult result;
  Status status = Status::Ok();
  // In slices, as an adapter waits that looks for signals.
  while (!player.pairs->Perform(exchange,
                                std::min(network_.clock().Now() + kSlice, player.ready.deadline),
                                &status, &result)) {
    Yield(rank);
    if (closing_) return;
  }
  verdict_.went_on += exchange.stage == Stage::kSeenMean ? 1 : 0;
  player.has_gone_on |= exchange.stage == Stage::kSeenMean;
  if (!closing_)
    player.ready = player.trainer->OnExchangeEnd(status, result, network_.clock().Now());
}

void Simulation::LookAround(int32_t rank) {
  const auto other = static_cast<int32_t>(rng_.Below(players_.size()));
  std::array<double, kWithGap> model{};
  const auto to = reinterpret_cast<std::byte*>(model.data());
  if (At(rank).pairs->Peek(other, to).state != WindowState::kWhole) {
    ++verdict_.changed_meanwhile;
    return;
  }
  ++verdict_.seen;
  // Each update adds a number, and i to element i.
  for (size_t i = 2; i < kElements; ++i) {
    const double apart = model[i] - model[0] - static_cast<double>(i) * (model[1] - model[0]);
    if (std::abs(apart) > kNear * (1 + std::abs(model[i])))
      Fail("3: rank " + std::to_string(rank) + " sees parts of two models of rank " +
           std::to_string(other));
  }
}

// Stops or kills a rank, wherever it is.
void Simulation::Strike() {
  const size_t victim = rng_.Below(players_.size());
  Player& player = players_[victim];
  if (player.is_killed || player.fiber->done()) return;
  if (rng_.Below(1000) < swarm_.stops_permille && verdict_.stopped < kMostStops) {
    ++verdict_.stopped;
    player.stopped_until =
        network_.clock().Now() + static_cast<Time>(rng_.Below(uint64_t{kLongestStop}));
  }
  if (verdict_.killed == swarm_.most_killed || rng_.Below(10'000) > 20) return;
  ++verdict_.killed;
  player.is_killed = true;
  network_.Kill(Rank{static_cast<int32_t>(victim)}, "killed");
}

TrainerPairsVerdict Simulation::Run() {
  OnWorkDo([this] { Point(current_); });
  uint64_t resumes = 0;
  const auto is_over = [](const Player& player) {
    return player.is_killed || player.fiber->done();
  };
  for (; resumes < kMostResumes && failure_.empty(); ++resumes) {
    if (std::all_of(players_.begin(), players_.end(), is_over)) break;
    Strike();
    network_.clock().Advance(static_cast<Time>(rng_.Below(uint64_t{kLongestStep})));
    const size_t r = rng_.Below(players_.size());
    Player& player = players_[r];
    const bool is_slow = (swarm_.slow_ranks >> r & 1) != 0 && !rng_.Percent(5);
    if (is_over(player) || is_slow || player.stopped_until > network_.clock().Now()) continue;
    network_.transport(Rank{static_cast<int32_t>(r)}).PollPeers();
    current_ = static_cast<int32_t>(r);
    player.fiber->Resume();
    current_ = -1;
  }
  if (resumes == kMostResumes) Fail("5: training does not come to its end");
  for (const Player& player : players_) {
    verdict_.begun += player.pairs->counts().begun;
    verdict_.met += player.pairs->counts().met;
    for (const double one : player.model)
      verdict_.hash = verdict_.hash * 31 + static_cast<uint64_t>(static_cast<int64_t>(one));
  }
  verdict_.failure = failure_;
  verdict_.swarm = swarm_.ToString();
  verdict_.hash += resumes;
  // Calls of ranks that were killed must be run to their end, or their stacks would leak.
  closing_ = true;
  for (Player& player : players_) player.port->Interrupt();
  for (Player& player : players_)
    while (!player.fiber->done()) player.fiber->Resume();
  OnWorkDo(nullptr);
  return verdict_;
}

}  // namespace

TrainerPairsVerdict RunTrainersInPairs(uint64_t seed, int32_t ranks) {
  return Simulation(seed, ranks).Run();
}

}  // namespace covey
