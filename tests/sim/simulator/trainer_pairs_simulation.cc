#include "tests/sim/simulator/trainer_pairs_simulation.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "tests/sim/simulator/mailed_transport.h"
#include "tests/sim/simulator/simulated_gossip.h"
#include "tests/sim/simulator/simulated_port.h"
#include "tests/sim/simulator/split_kernels.h"
#include "tests/sim/simulator/trainer_pairs_stage.h"

namespace covey {
namespace {

constexpr uint64_t kMostResumes = 1'000'000;
constexpr uint64_t kMostStops = 30;
constexpr Time kLongestStep = 20 * kMicrosecond;
constexpr Time kLongestStop = 3 * kMillisecond;
constexpr size_t kRegionBytes = 1 << 20;

// Channels of a part, where ranks share no memory.
constexpr uint64_t kOffers = 1, kMeans = 2, kRounds = 3;

uint64_t ChannelOf(int64_t from, uint64_t which) {
  return static_cast<uint64_t>(from) * (kRounds + 1) + which;
}

}  // namespace

TrainerPairsSimulation::TrainerPairsSimulation(uint64_t seed, int32_t ranks, Setting setting)
    : rng_(seed),
      swarm_(&rng_, ranks, setting.mixes, setting.is_far),
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
      is_far_(setting.is_far),
      epochs_(swarm_.epochs) {
  const Status parsed = ParseMethod(swarm_.method, &method_);
  CHECK(parsed.ok(), parsed.message().c_str());
  OpenAll();
  const MethodView view = ViewOf(At(0).group);
  for (const int64_t from : Trainer::PartsOf(Admission::kPairs, method_, view, 0)) OpenPairs(from);
  for (const int64_t from : Trainer::PartsOf(Admission::kRounds, method_, view, 0))
    OpenRoundsFrom(from);
  for (int32_t r = 0; r < swarm_.size; ++r) {
    At(r).trainer = std::make_unique<Trainer>(method_, ViewOf(At(r).group), 0);
    At(r).fiber = std::make_unique<Fiber>([this, r] { Main(r); });
  }
}

void TrainerPairsSimulation::OpenAll() {
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = At(r);
    for (int32_t m = 0; m < swarm_.size; ++m) player.group.members.push_back(Rank{m});
    player.group.my_index = GroupIndex{r};
    player.group.shares_memory = !is_far_;
    if (!is_far_) continue;
    const Status opened =
        OpenMailedTransport(&network_, Rank{r}, swarm_.per_host,
                            {.arena_bytes = kRegionBytes, .put_bytes = 64}, &player.transport);
    CHECK(opened.ok(), opened.message().c_str());
    player.channels = std::make_unique<RankChannels>(player.transport.get());
    player.group.hosts = HostsOf(player);
  }
}

// All ranks' ports of the part that begins at version `from`.
void TrainerPairsSimulation::OpenPairs(int64_t from) {
  std::vector<uint64_t> places;
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = At(r);
    Pairs& pairs = player.pairs[from];
    Transport& transport = is_far_ ? *player.transport : network_.transport(Rank{r});
    bool has_block = true;
    if (is_far_) {
      const PairsPort::Bundle bundle = BundleOf(r, from);
      pairs.means = std::make_unique<ReplicaPort>(HostsPort::RoundsOf(bundle, swarm_.size),
                                                  &player.group, HostsOf(player), DriverOf(r));
      auto port = std::make_unique<HostsPort>(bundle, &player.group, &transport, DriverOf(r));
      has_block = port->HasBlock();
      pairs.port = std::move(port);
    } else {
      pairs.port = std::make_unique<SimulatedGossip>(BundleOf(r, from), &player.group, &transport,
                                                     &network_.clock(), [this, r] { Yield(r); });
    }
    places.push_back(has_block ? transport.AllocShared(pairs.port->BlockBytes()) : 0);
  }
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = At(r);
    Pairs& pairs = player.pairs[from];
    if (is_far_) {
      ChannelMux* mux = player.channels->mux();
      pairs.means->Open({ChannelOf(from, kMeans)});
      static_cast<HostsPort&>(*pairs.port)
          .Open(places, ChannelOf(from, kOffers), pairs.means.get());
      pairs.means->Join(mux);
      pairs.port->Join(mux);
    } else {
      static_cast<SimulatedGossip&>(*pairs.port).Open(places);
    }
    const auto leave = [&pairs] {
      pairs.port->Close();
      if (pairs.means != nullptr) pairs.means->Close();
    };
    pairs.exchanges = std::make_unique<TrainerPairs>(
        TrainerPairs::Options{.port = pairs.port.get(),
                              .layout = &layout_,
                              .model = reinterpret_cast<std::byte*>(player.held.data()),
                              .kernels = &SplitKernels(),
                              .leave = leave});
  }
}

void TrainerPairsSimulation::OpenRoundsFrom(int64_t from) {
  std::vector<uint64_t> places;
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = At(r);
    SimulatedRounds& part = player.rounds[from];
    Transport& transport = network_.transport(Rank{r});
    const MethodPlan plan = method_.Plan(ViewOf(player.group), from);
    RoundsPort::Bundle bundle = SimulatedBundle(plan, player.group, kWithGap);
    part.payload = plan.payload;
    if (is_far_) {
      part.port = std::make_unique<ReplicaPort>(std::move(bundle), &player.group, HostsOf(player),
                                                DriverOf(r));
      places.push_back(ChannelOf(from, kRounds));
    } else {
      part.port = std::make_unique<SimulatedPort>(std::move(bundle), &player.group, &transport,
                                                  &network_.clock(), [this, r] { Yield(r); });
      places.push_back(transport.AllocShared(part.port->BlockBytes()));
    }
  }
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = At(r);
    SimulatedRounds& part = player.rounds[from];
    part.port->Open(places);
    if (is_far_) part.port->Join(player.channels->mux());
    OpenRounds(method_, ViewOf(player.group), from, kForever,
               {.copies = reinterpret_cast<std::byte*>(player.copies.data()),
                .model = reinterpret_cast<std::byte*>(player.held.data()),
                .layout = &layout_,
                .transport = is_far_ ? player.transport.get() : &network_.transport(Rank{r})},
               &part);
  }
}

PairsPort::Bundle TrainerPairsSimulation::BundleOf(int32_t rank, int64_t from) {
  const MethodView view = ViewOf(At(rank).group);
  const MethodPairs pairs = method_.Plan(view, from).pairs;
  const RoundSpan span{DType::kF64, kWithGap};
  return {.name = "simulated",
          .layout = RoundLayout({&span, 1}, 64),
          .self = rank,
          .rule = {.topology = TopologyOf(pairs, view),
                   .all_begin = pairs.all_begin,
                   .local_steps = pairs.local_steps,
                   .is_random = pairs.is_random,
                   .non_blocking = pairs.non_blocking},
          .max_wait = pairs.max_wait.time,
          .kernels = &SplitKernels()};
}

ChannelDriver TrainerPairsSimulation::DriverOf(int32_t rank) {
  const auto drive = [this, rank](const std::atomic<bool>& ended, Time deadline) {
    while (!ended && !closing_ && network_.clock().Now() < deadline) Yield(rank);
    if (closing_) Interrupt(rank);
    return ended.load();
  };
  return {.drive = drive, .kick = [] {}, .clock = &network_.clock()};
}

std::vector<int32_t> TrainerPairsSimulation::HostsOf(const Player& player) const {
  std::vector<int32_t> hosts;
  for (const Rank member : player.group.members)
    hosts.push_back(ToInt(player.transport->HostOf(member)));
  return hosts;
}

void TrainerPairsSimulation::Interrupt(int32_t rank) {
  for (auto& [from, pairs] : At(rank).pairs) pairs.port->Interrupt();
  for (auto& [from, part] : At(rank).rounds) part.port->Interrupt();
}

void TrainerPairsSimulation::LeaveAll(int32_t rank) {
  for (auto& [from, pairs] : At(rank).pairs) pairs.exchanges->Leave();
  for (auto& [from, part] : At(rank).rounds) part.Close();
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
    for (const auto& [from, pairs] : player.pairs) {
      verdict_.begun += pairs.exchanges->counts().begun;
      verdict_.met += pairs.exchanges->counts().met;
    }
    for (const double one : player.model)
      verdict_.hash = verdict_.hash * 31 + static_cast<uint64_t>(static_cast<int64_t>(one));
  }
  verdict_.failure = failure_;
  verdict_.swarm = swarm_.ToString();
  verdict_.hash += resumes;
  // Calls of ranks that were killed must be run to their end, or their stacks would leak.
  closing_ = true;
  for (int32_t r = 0; r < swarm_.size && !is_far_; ++r) Interrupt(r);
  for (Player& player : players_)
    while (!player.fiber->done()) player.fiber->Resume();
  OnWorkDo(nullptr);
  return verdict_;
}

TrainerPairsVerdict RunTrainersInPairs(uint64_t seed, int32_t ranks) {
  return TrainerPairsSimulation(seed, ranks, {}).Run();
}

TrainerPairsVerdict RunHostTrainersInPairs(uint64_t seed, int32_t ranks) {
  return TrainerPairsSimulation(seed, ranks, {.is_far = true}).Run();
}

TrainerPairsVerdict RunTrainersInParts(uint64_t seed) {
  return TrainerPairsSimulation(seed, 0, {.mixes = true}).Run();
}

TrainerPairsVerdict RunHostTrainersInParts(uint64_t seed) {
  return TrainerPairsSimulation(seed, 0, {.is_far = true, .mixes = true}).Run();
}

}  // namespace covey
