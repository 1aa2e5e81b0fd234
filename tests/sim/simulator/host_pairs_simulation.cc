#include "tests/sim/simulator/host_pairs_simulation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/gossip/hosts_port.h"
#include "core/replicated/replica_port.h"
#include "ops/transports/inproc.h"
#include "tests/sim/simulator/fiber.h"
#include "tests/sim/simulator/host_pairs_swarm.h"
#include "tests/sim/simulator/learnt_models.h"
#include "tests/sim/simulator/mailed_transport.h"
#include "tests/sim/simulator/pair_swarm.h"
#include "tests/sim/simulator/rank_channels.h"
#include "tests/sim/simulator/split_kernels.h"

namespace covey {
namespace {

constexpr uint64_t kMostResumes = 2'000'000;
constexpr uint64_t kMostStops = 30;
constexpr uint64_t kMostTrainedOn = 200;  // Else waiting ranks might miss each other for ever.
constexpr Time kLongestStep = 20 * kMicrosecond;
constexpr Time kLongestStop = 3 * kMillisecond;
constexpr Time kSlice = 300 * kMicrosecond;  // of a wait, which then goes on
constexpr size_t kRegionBytes = size_t{1} << 18;
constexpr uint64_t kOffers = 1, kMeans = 2;  // channels

class HostPairsSimulation final : public InprocWatcher {
 public:
  HostPairsSimulation(uint64_t seed, int32_t ranks);
  HostPairsVerdict Run();

  void OnPoint(Rank r) override { Point(ToInt(r)); }
  void OnRing(Rank, bool) override {}

 private:
  enum class State : uint8_t { kRuns, kGone, kKilled };
  struct Player {
    Group group;
    std::unique_ptr<Transport> transport;
    std::unique_ptr<RankChannels> channels;
    std::unique_ptr<ReplicaPort> means;
    std::unique_ptr<HostsPort> port;
    std::unique_ptr<Fiber> fiber;
    Numbers model{}, learnt{};
    std::array<float, kElements> coded{};  // learns the same; with a codec only
    Time stopped_until = 0;
    State state = State::kRuns;
    bool has_given_up = false, has_ended = false;
  };

  Player& At(int32_t rank) { return players_[static_cast<size_t>(rank)]; }
  // Its model: all of it, or without what a codec is for.
  std::vector<void*> SpansOf(Player* player) const {
    std::vector<void*> spans{player->model.data()};
    if (!swarm_.codec.empty()) spans.push_back(player->coded.data());
    return spans;
  }
  void Open(int32_t rank);
  void Point(int32_t rank) {
    if (closing_ || rank != current_) return;
    if (rng_.Below(1000) < swarm_.switch_permille) Yield(rank);
  }
  void Yield(int32_t rank) {
    if (!closing_) At(rank).fiber->Yield();
  }
  void Pass(int32_t rank);
  void Main(int32_t rank);
  void Step(int32_t rank);
  void Look(int32_t rank);
  void EndEpoch(int32_t rank, uint64_t number);
  void Check(const Epoch& epoch, double near, bool is_settled);
  void Strike();
  void Fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  const uint64_t seed_;
  Rng rng_;
  HostPairsSwarm swarm_;
  InprocNetwork network_;
  std::vector<Player> players_;
  std::vector<Epoch> epochs_, coded_;
  int32_t current_ = -1;
  bool closing_ = false;
  std::string failure_;
  HostPairsVerdict verdict_;
};

HostPairsSimulation::HostPairsSimulation(uint64_t seed, int32_t ranks)
    : seed_(seed),
      rng_(seed),
      swarm_(&rng_, ranks),
      network_({.size = swarm_.size,
                .seed = seed,
                .region_bytes = kRegionBytes,
                .longest_delay = swarm_.longest_delay,
                .refusal_percent = swarm_.refusal_percent,
                .clog_percent = swarm_.longest_clog > 0 ? uint64_t{3} : 0,
                .longest_clog = swarm_.longest_clog,
                .longest_news_delay = kLongestStop,
                .watcher = this}),
      players_(static_cast<size_t>(swarm_.size)),
      epochs_(swarm_.epochs),
      coded_(swarm_.epochs) {
  for (int32_t r = 0; r < swarm_.size; ++r) Open(r);
  std::vector<uint64_t> places;
  for (int32_t r = 0; r < swarm_.size; ++r) {
    const HostsPort& port = *At(r).port;
    places.push_back(port.HasBlock() ? At(r).transport->AllocShared(port.BlockBytes()) : 0);
  }
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = At(r);
    player.means->Open({kMeans});
    player.port->Open(places, kOffers, player.means.get());
    player.means->Join(player.channels->mux());
    player.port->Join(player.channels->mux());
    player.fiber = std::make_unique<Fiber>([this, r] { Main(r); });
  }
}

void HostPairsSimulation::Open(int32_t rank) {
  Player& player = At(rank);
  const Status opened =
      OpenMailedTransport(&network_, Rank{rank}, swarm_.per_host,
                          {.arena_bytes = kRegionBytes, .put_bytes = 64}, &player.transport);
  CHECK(opened.ok(), opened.message().c_str());
  player.channels = std::make_unique<RankChannels>(player.transport.get());
  for (int32_t r = 0; r < swarm_.size; ++r) player.group.members.push_back(Rank{r});
  player.group.my_index = GroupIndex{rank};
  std::vector<RoundSpan> spans{{DType::kF64, kElements}};
  if (!swarm_.codec.empty()) spans.push_back({DType::kF32, kElements});
  const PairsPort::Bundle bundle{.name = "simulated",
                                 .layout = RoundLayout(spans, 64),
                                 .self = rank,
                                 .rule = swarm_.rule,
                                 .codec = ParsePairCodec(swarm_.codec),
                                 .max_wait = swarm_.max_wait,
                                 .kernels = &SplitKernels()};
  // A rank that waits carries messages, and lets others run.
  const ChannelDriver driver{
      .drive =
          [this, rank](const std::atomic<bool>& ended, Time deadline) {
            while (!ended && !closing_ && network_.clock().Now() < deadline) {
              Pass(rank);
              Yield(rank);
            }
            return ended.load();
          },
      .kick = [] {},
      .clock = &network_.clock()};
  std::vector<int32_t> hosts;
  for (const Rank member : player.group.members)
    hosts.push_back(ToInt(player.transport->HostOf(member)));
  player.means = std::make_unique<ReplicaPort>(HostsPort::RoundsOf(bundle, swarm_.size),
                                               &player.group, std::move(hosts), driver);
  player.port = std::make_unique<HostsPort>(bundle, &player.group, player.transport.get(), driver);
}

// ---- Inside a fiber -----------------------------------------------------------------------------

void HostPairsSimulation::Pass(int32_t rank) {
  if (!closing_ && !At(rank).channels->Pass(network_.clock().Now()))
    Fail("4: rank " + std::to_string(rank) + " refuses a frame");
}

void HostPairsSimulation::Main(int32_t rank) {
  Player& player = At(rank);
  const std::vector<void*> spans = SpansOf(&player);
  player.port->Begin({const_cast<const void* const*>(spans.data()), spans.size()});
  for (uint64_t epoch = 0; epoch < swarm_.epochs && !closing_; ++epoch) {
    for (uint64_t step = 0; step < swarm_.steps && !closing_; ++step) Step(rank);
    if (!closing_ && !player.has_given_up) EndEpoch(rank, epoch);
  }
  if (closing_) return;
  player.has_ended = true;
  player.port->Close();
  player.means->Close();
  // Its process lives on: others may need its vote.
  while (!closing_) {
    Pass(rank);
    Yield(rank);
  }
}

void HostPairsSimulation::Step(int32_t rank) {
  Player& player = At(rank);
  const auto by = static_cast<double>(rng_.Below(1000));
  Learn(by, &player.model, &player.learnt);
  for (size_t i = 0; i < kElements; ++i) player.coded[i] += static_cast<float>(by + 1. * i);
  ++verdict_.steps;
  const int32_t yields = static_cast<int32_t>(rng_.Below(6));
  for (int32_t i = 0; i < yields && !closing_; ++i) {
    Pass(rank);
    Yield(rank);
  }
  if (!closing_) player.port->Step(SpansOf(&player));
  if (!closing_) Look(rank);
}

// Numbers of each model are on a line: so begins it, and Learn, a mean and a difference keep it.
void HostPairsSimulation::Look(int32_t rank) {
  Numbers model{};
  std::array<float, kElements> coded{};
  std::vector<void*> spans{model.data()};
  if (!swarm_.codec.empty()) spans.push_back(coded.data());
  const auto member = static_cast<int32_t>((verdict_.steps + seed_) % players_.size());
  const PairsPort::Seen seen = At(rank).port->Peek(member, spans);
  if (seen.state != WindowState::kWhole) return;
  ++verdict_.looks;
  for (size_t i = 1; i < kElements; ++i) {
    const double expected = model[0] + static_cast<double>(i) * (model[1] - model[0]);
    if (std::abs(model[i] - expected) > kNear * (1 + std::abs(expected)))
      return Fail("5: a look sees a model of two moments");
  }
}

void HostPairsSimulation::EndEpoch(int32_t rank, uint64_t number) {
  Player& player = At(rank);
  const bool settles = (swarm_.settles >> number & 1) != 0;
  for (;;) {
    const Time until = network_.clock().Now() + kSlice;
    const std::vector<void*> spans = SpansOf(&player);
    const Status status =
        settles ? player.port->Settle(spans, until) : player.port->Finish(spans, until);
    if (closing_) return;
    if (status.ok()) break;
    if (status.code() == StatusCode::kTimeout && status.peer() == kNoRank) continue;
    // All ranks with the mean have died.
    const bool is_gone = status.code() == StatusCode::kAborted && status.peer() != kNoRank &&
                         At(ToInt(status.peer())).state == State::kKilled;
    if (is_gone) {
      ++verdict_.without_mean;
      player.has_given_up = true;
      return;
    }
    ++verdict_.timeouts;
    if (status.code() != StatusCode::kTimeout)
      return Fail("3: an epoch ends with " + status.message());
    // One that has stopped for ever never comes.
    if (verdict_.gone > 0 && rng_.Percent(30)) {
      player.has_given_up = true;
      return;
    }
    if (!settles && rng_.Percent(swarm_.goes_on_percent)) {
      ++verdict_.went_on;
      Player seen = {};
      seen.model = player.model, seen.coded = player.coded;
      player.port->GoOnWithout(SpansOf(&seen));
      return;
    }
    const bool may_train_on = verdict_.trained_on < kMostTrainedOn;
    if (rng_.Percent(swarm_.trains_on_percent) && may_train_on) {
      ++verdict_.trained_on;
      Step(rank);
    }
  }
  ++(settles ? verdict_.settled : verdict_.finished);
  Numbers coded{};
  std::copy(player.coded.begin(), player.coded.end(), coded.begin());
  Epoch& epoch = epochs_[number];
  // Half of the ranks decide where the first is one of them, and may die with what they have.
  const bool may_be_gone = 2 * verdict_.killed >= players_.size();
  // A finish() of a rank that did no step since it went on is still the one before.
  const bool is_of_all = verdict_.trained_on == 0 && (verdict_.went_on == 0 || swarm_.steps > 0);
  const bool is_second = !settles && is_of_all && !epoch.models.empty() && !may_be_gone;
  verdict_.ended_later += is_second && verdict_.went_on > 0 ? 1 : 0;
  if (is_second && player.model != epoch.models[0]) Fail("1: finish() leaves two models");
  epoch.Add(player.model, player.learnt);
  if (epoch.models.size() == players_.size()) Check(epoch, kNear, settles);
  if (swarm_.codec.empty()) return;
  Epoch& of_codec = coded_[number];
  if (is_second && coded != of_codec.models[0]) Fail("1: finish() leaves two models of a codec");
  of_codec.Add(coded, player.learnt);
  if (of_codec.models.size() == players_.size()) Check(of_codec, kNearFloat, settles);
}

void HostPairsSimulation::Check(const Epoch& epoch, double near, bool is_settled) {
  // A rank that trains on while the others meet has work that is in no mean yet.
  if (verdict_.killed > 0 || verdict_.gone > 0 || verdict_.trained_on > 0) return;
  if (verdict_.went_on > 0) return;
  ++verdict_.whole;
  if (const std::string apart = epoch.Apart(near); !apart.empty())
    Fail((is_settled ? "2: " : "1: ") + apart);
}

// ---- Outside ------------------------------------------------------------------------------------

// Stops or kills a rank, wherever it is.
void HostPairsSimulation::Strike() {
  const size_t victim = rng_.Below(players_.size());
  Player& player = players_[victim];
  if (player.state != State::kRuns) return;
  if (rng_.Below(1000) < swarm_.stops_permille && verdict_.stopped < kMostStops) {
    ++verdict_.stopped;
    player.stopped_until =
        network_.clock().Now() + static_cast<Time>(rng_.Below(uint64_t{kLongestStop}));
  }
  const auto run = std::count_if(players_.begin(), players_.end(),
                                 [](const Player& p) { return p.state == State::kRuns; });
  if (run == 1 || rng_.Below(10'000) > 20) return;
  if (verdict_.gone < swarm_.most_gone) {
    ++verdict_.gone;
    player.state = State::kGone;
  } else if (verdict_.killed < swarm_.most_killed) {
    ++verdict_.killed;
    player.state = State::kKilled;
    network_.Kill(Rank{static_cast<int32_t>(victim)}, "killed");
  }
}

HostPairsVerdict HostPairsSimulation::Run() {
  OnWorkDo([this] { Point(current_); });
  uint64_t resumes = 0;
  const auto has_ended = [](const Player& player) {
    return player.state != State::kRuns || player.has_ended;
  };
  for (; resumes < kMostResumes && failure_.empty(); ++resumes) {
    if (std::all_of(players_.begin(), players_.end(), has_ended)) break;
    Strike();
    network_.clock().Advance(static_cast<Time>(rng_.Below(uint64_t{kLongestStep})));
    const size_t r = rng_.Below(players_.size());
    Player& player = players_[r];
    const bool is_slow = (swarm_.slow_ranks >> r & 1) != 0 && !rng_.Percent(5);
    if (player.state != State::kRuns || is_slow) continue;
    if (player.stopped_until > network_.clock().Now()) continue;
    current_ = static_cast<int32_t>(r);
    player.fiber->Resume();
    current_ = -1;
  }
  if (resumes == kMostResumes) Fail("3: training does not come to its end");
  // Calls of ranks that were killed must be run to their end, or their stacks would leak, and their
  // ports stay locked.
  closing_ = true;
  for (Player& player : players_)
    while (!player.fiber->done()) player.fiber->Resume();
  OnWorkDo(nullptr);
  for (Player& player : players_) {
    const FarPairs::Counters far = player.port->far_counters();
    verdict_.near += player.port->counters().exchanges;
    verdict_.offers += far.offers;
    verdict_.taken += far.taken;
    verdict_.declined += far.declined;
    verdict_.lost += far.lost;
    const QuantizedCounters quantized = player.port->totals();
    verdict_.decoded += quantized.decoded;
    verdict_.repaired += quantized.repaired;
    if (far.malformed > 0) Fail("4: a message is refused");
    for (const double one : player.model)
      verdict_.hash = verdict_.hash * 31 + static_cast<uint64_t>(static_cast<int64_t>(one));
  }
  verdict_.failure = failure_;
  verdict_.swarm = swarm_.ToString();
  verdict_.hash += resumes;
  return verdict_;
}

}  // namespace

HostPairsVerdict RunHostPairs(uint64_t seed, int32_t ranks) {
  return HostPairsSimulation(seed, ranks).Run();
}

}  // namespace covey
