#include "tests/sim/simulator/trainer_pairs_simulation.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "tests/sim/simulator/mailed_transport.h"
#include "tests/sim/simulator/simulated_gossip.h"
#include "tests/sim/simulator/split_kernels.h"
#include "tests/sim/simulator/trainer_pairs_stage.h"

namespace covey {
namespace {

constexpr uint64_t kMostResumes = 1'000'000;
constexpr uint64_t kMostStops = 30;
constexpr Time kLongestStep = 20 * kMicrosecond;
constexpr Time kLongestStop = 3 * kMillisecond;
constexpr size_t kRegionBytes = 1 << 20;
constexpr uint64_t kOffers = 1, kMeans = 2;  // channels, where ranks share no memory

}  // namespace

TrainerPairsSimulation::TrainerPairsSimulation(uint64_t seed, int32_t ranks, bool is_far)
    : rng_(seed),
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
      layout_({{DType::kF64, 8}, {DType::kF64, 4}}),
      players_(static_cast<size_t>(swarm_.size)),
      epochs_(swarm_.epochs) {
  CHECK(ParseMethod(swarm_.method, &method_).ok(), "the swarm draws methods that there are");
  std::vector<HostsPort*> far;
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Group& group = At(r).group;
    for (int32_t m = 0; m < swarm_.size; ++m) group.members.push_back(Rank{m});
    group.my_index = GroupIndex{r};
    group.shares_memory = !is_far;
    if (is_far)
      far.push_back(OpenFar(r));
    else
      Open(r);
  }
  std::vector<uint64_t> places;
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Transport& transport = is_far ? *At(r).transport : network_.transport(Rank{r});
    const bool has_block = !is_far || far[static_cast<size_t>(r)]->HasBlock();
    places.push_back(has_block ? transport.AllocShared(At(r).port->BlockBytes()) : 0);
  }
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = At(r);
    if (is_far) {
      player.means->Open({kMeans});
      far[static_cast<size_t>(r)]->Open(places, kOffers, player.means.get());
      player.means->Join(player.channels->mux());
      player.port->Join(player.channels->mux());
    } else {
      static_cast<SimulatedGossip&>(*player.port).Open(places);
    }
    player.pairs = std::make_unique<TrainerPairs>(
        TrainerPairs::Options{.port = player.port.get(),
                              .layout = &layout_,
                              .model = reinterpret_cast<std::byte*>(player.held.data()),
                              .kernels = &SplitKernels(),
                              .leave = [this, r] {
                                At(r).port->Close();
                                if (At(r).means != nullptr) At(r).means->Close();
                              }});
    player.trainer = std::make_unique<Trainer>(method_, ViewOf(player.group), 0);
    player.fiber = std::make_unique<Fiber>([this, r] { Main(r); });
  }
}

PairsPort::Bundle TrainerPairsSimulation::BundleOf(int32_t rank) {
  const MethodPairs pairs = method_.Plan(ViewOf(At(rank).group), 0).pairs;
  const RoundSpan span{DType::kF64, kWithGap};
  return {.name = "simulated",
          .layout = RoundLayout({&span, 1}, 64),
          .self = rank,
          .rule = {.topology = {.kind = pairs.topology, .size = swarm_.size, .seed = pairs.seed},
                   .all_begin = pairs.all_begin,
                   .local_steps = pairs.local_steps,
                   .is_random = pairs.is_random,
                   .non_blocking = pairs.non_blocking},
          .max_wait = pairs.max_wait.time,
          .kernels = &SplitKernels()};
}

void TrainerPairsSimulation::Open(int32_t rank) {
  At(rank).port = std::make_unique<SimulatedGossip>(
      BundleOf(rank), &At(rank).group, &network_.transport(Rank{rank}), &network_.clock(),
      [this, rank] { Yield(rank); });
}

HostsPort* TrainerPairsSimulation::OpenFar(int32_t rank) {
  Player& player = At(rank);
  const Status opened =
      OpenMailedTransport(&network_, Rank{rank}, swarm_.per_host,
                          {.arena_bytes = kRegionBytes, .put_bytes = 64}, &player.transport);
  CHECK(opened.ok(), opened.message().c_str());
  player.channels = std::make_unique<RankChannels>(player.transport.get());
  const auto drive = [this, rank](const std::atomic<bool>& ended, Time deadline) {
    while (!ended && !closing_ && network_.clock().Now() < deadline) Yield(rank);
    if (closing_) At(rank).port->Interrupt();
    return ended.load();
  };
  const ChannelDriver driver{.drive = drive, .kick = [] {}, .clock = &network_.clock()};
  std::vector<int32_t> hosts;
  for (const Rank member : player.group.members)
    hosts.push_back(ToInt(player.transport->HostOf(member)));
  const PairsPort::Bundle bundle = BundleOf(rank);
  player.means = std::make_unique<ReplicaPort>(HostsPort::RoundsOf(bundle, swarm_.size),
                                               &player.group, std::move(hosts), driver);
  auto port = std::make_unique<HostsPort>(bundle, &player.group, player.transport.get(), driver);
  HostsPort* opened_port = port.get();
  player.port = std::move(port);
  return opened_port;
}

void TrainerPairsSimulation::Yield(int32_t rank) {
  Player& player = At(rank);
  const bool passes = !closing_ && player.channels != nullptr;
  if (passes && !player.channels->Pass(network_.clock().Now())) Fail("4: a frame is refused");
  if (!closing_) player.fiber->Yield();
}

// Stops or kills a rank, wherever it is.
void TrainerPairsSimulation::Strike() {
  const size_t victim = rng_.Below(players_.size());
  Player& player = players_[victim];
  if (player.is_killed || player.is_through) return;
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

TrainerPairsVerdict TrainerPairsSimulation::Run() {
  OnWorkDo([this] { Point(current_); });
  uint64_t resumes = 0;
  const auto is_over = [](const Player& player) { return player.is_killed || player.is_through; };
  for (; resumes < kMostResumes && failure_.empty(); ++resumes) {
    if (std::all_of(players_.begin(), players_.end(), is_over)) break;
    Strike();
    network_.clock().Advance(static_cast<Time>(rng_.Below(uint64_t{kLongestStep})));
    const size_t r = rng_.Below(players_.size());
    Player& player = players_[r];
    const bool is_slow = (swarm_.slow_ranks >> r & 1) != 0 && !rng_.Percent(5);
    const bool has_ended = player.is_killed || player.fiber->done();
    if (has_ended || is_slow || player.stopped_until > network_.clock().Now()) continue;
    if (player.channels == nullptr) network_.transport(Rank{static_cast<int32_t>(r)}).PollPeers();
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
  for (Player& player : players_)
    if (player.channels == nullptr) player.port->Interrupt();
  for (Player& player : players_)
    while (!player.fiber->done()) player.fiber->Resume();
  OnWorkDo(nullptr);
  return verdict_;
}

TrainerPairsVerdict RunTrainersInPairs(uint64_t seed, int32_t ranks) {
  return TrainerPairsSimulation(seed, ranks, false).Run();
}

TrainerPairsVerdict RunHostTrainersInPairs(uint64_t seed, int32_t ranks) {
  return TrainerPairsSimulation(seed, ranks, true).Run();
}

}  // namespace covey
