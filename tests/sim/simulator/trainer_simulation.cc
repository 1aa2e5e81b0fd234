#include "tests/sim/simulator/trainer_simulation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/replicated/replica_port.h"
#include "tests/sim/simulator/split_kernels.h"
#include "tests/sim/simulator/trainer_stage.h"

namespace covey {
namespace {

constexpr uint64_t kMostResumes = 2'000'000;
constexpr uint64_t kMostStops = 30;
constexpr Time kLongestStep = 20 * kMicrosecond;
constexpr Time kLongestStop = 3 * kMillisecond;

// Rounds of deltas as those of eager, whose sums make the replicated model: so everything in it can
// be counted. Settings: those of eager, then local_steps.
MethodPlan PlanOfDeltas(std::span<const int64_t> settings, const MethodView& view,
                        int64_t version) {
  MethodPlan plan = FindMethod("eager")->plan(settings.first(settings.size() - 1), view, version);
  plan.payload = Payload::kDelta;
  plan.rounds.local_steps = settings.back();
  return plan;
}

void AddUp(std::span<const int64_t>, const CombineArrays& arrays) {
  const auto* sum = reinterpret_cast<const double*>(arrays.sum);
  auto* model = reinterpret_cast<double*>(arrays.model);
  auto* deltas = reinterpret_cast<double*>(arrays.state[0]);
  for (size_t i = 0; i < arrays.count; ++i) {
    model[i] -= sum[i];
    deltas[i] += static_cast<double>(arrays.deltas);
  }
}

constexpr const char* kDeltas[] = {"deltas"};
constexpr Method kSumOfDeltas{.name = "deltas",
                              .help = "",
                              .bytes = "",
                              .citation = "",
                              .parameters = {},
                              .plan = PlanOfDeltas,
                              .state = kDeltas,
                              .combine = AddUp};

}  // namespace

TrainerSimulation::TrainerSimulation(uint64_t seed, int32_t ranks, bool is_far)
    : rng_(seed),
      swarm_(TrainerSwarm::Draw(&rng_, ranks, is_far)),
      network_({.size = swarm_.size,
                .seed = seed,
                .region_bytes = 1 << 20,
                .longest_delay = swarm_.longest_delay,
                .refusal_percent = swarm_.refusal_percent,
                .clog_percent = swarm_.longest_clog > 0 ? uint64_t{3} : 0,
                .longest_clog = swarm_.longest_clog,
                .longest_news_delay = kLongestStop,
                .watcher = this}),
      layout_({{DType::kF64, 8}, {DType::kF64, 4}}),
      players_(static_cast<size_t>(swarm_.size)) {
  const Status parsed = ParseMethod(swarm_.method, &method_);
  if (!parsed.ok()) Fail(parsed.message());
  if (swarm_.local_steps > 0) {
    method_.method = &kSumOfDeltas;
    method_.settings.push_back(swarm_.local_steps);
  }
  for (int32_t r = 0; r < swarm_.size; ++r) {
    if (is_far) At(r).channels = std::make_unique<RankChannels>(&network_.transport(Rank{r}));
    OpenParts(r);
  }
  for (const auto& [from, part] : players_[0].parts) {
    std::vector<uint64_t> places;
    for (int32_t r = 0; r < swarm_.size; ++r)
      places.push_back(
          is_far ? static_cast<uint64_t>(from) + 1
                 : network_.transport(Rank{r}).AllocShared(At(r).parts[from].port->BlockBytes()));
    for (int32_t r = 0; r < swarm_.size; ++r) {
      At(r).parts[from].port->Open(places);
      if (is_far) At(r).parts[from].port->Join(At(r).channels->mux());
      OpenRounds(method_, ViewOf(At(r).group), from, swarm_.end,
                 {.copies = reinterpret_cast<std::byte*>(At(r).copies.data()),
                  .model = reinterpret_cast<std::byte*>(At(r).held.data()),
                  .layout = &layout_,
                  .transport = &network_.transport(Rank{r})},
                 &At(r).parts[from]);
    }
  }
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = At(r);
    player.trainer = std::make_unique<Trainer>(method_, ViewOf(player.group), 0, false, swarm_.end);
    player.fiber = std::make_unique<Fiber>([this, r] { Main(r); });
  }
}

void TrainerSimulation::OpenParts(int32_t rank) {
  Player& player = At(rank);
  for (int32_t r = 0; r < swarm_.size; ++r) player.group.members.push_back(Rank{r});
  player.group.my_index = GroupIndex{rank};
  player.group.shares_memory = player.channels == nullptr;
  const MethodView view = ViewOf(player.group);
  for (const int64_t from : Trainer::PartsOf(Admission::kRounds, method_, view, 0, swarm_.end)) {
    const MethodPlan plan = method_.Plan(view, from);
    player.parts[from].payload = plan.payload;
    player.parts[from].port = NewPort(rank, SimulatedBundle(plan, player.group, kWithGap));
  }
}

void TrainerSimulation::Interrupt(Player* player) {
  for (auto& [from, part] : player->parts) part.port->Interrupt();
}

std::unique_ptr<RoundsPort> TrainerSimulation::NewPort(int32_t rank, RoundsPort::Bundle bundle) {
  Player& player = At(rank);
  if (player.channels == nullptr)
    return std::make_unique<SimulatedPort>(std::move(bundle), &player.group,
                                           &network_.transport(Rank{rank}), &network_.clock(),
                                           [this, rank] { Yield(rank); });
  // As many hosts as ranks, or fewer.
  std::vector<int32_t> hosts;
  for (int32_t r = 0; r < swarm_.size; ++r) hosts.push_back(swarm_.steps % 2 == 0 ? r : r / 2);
  const auto drive = [this, rank](const std::atomic<bool>& ended, Time deadline) {
    while (!ended && !closing_ && network_.clock().Now() < deadline) Yield(rank);
    if (closing_) Interrupt(&At(rank));
    return ended.load();
  };
  return std::make_unique<ReplicaPort>(
      std::move(bundle), &player.group, std::move(hosts),
      ChannelDriver{.drive = drive, .kick = [] {}, .clock = &network_.clock()});
}

void TrainerSimulation::CheckModel(int32_t rank) {
  const Player& player = At(rank);
  if (closing_ || IsLocal(player) || MayBeLost()) return;
  const int64_t version = player.trainer->version();
  const auto [known, is_new] = models_.emplace(version, player.model);
  if (!is_new && !(known->second == player.model))
    Fail("1: rank " + std::to_string(rank) + " has another model at version " +
         std::to_string(version));
}

// The replicated arrays of a method of deltas, at a version.
void TrainerSimulation::CheckArrays(int32_t rank, uint64_t version) {
  std::vector<std::byte> all;
  for (const std::span<std::byte> array : RoundsOf(At(rank), 0).outer()->arrays())
    all.insert(all.end(), array.begin(), array.end());
  const Player& player = At(rank);
  if (player.is_finishing && std::memcmp(player.held.data(), all.data(), sizeof(player.held)) != 0)
    Fail("2: rank " + std::to_string(rank) +
         " ends finish() with another than the replicated model");
  if (MayBeLost()) return;
  const auto [known, is_new] = arrays_.emplace(version, all);
  if (!is_new && known->second != all)
    Fail("1: rank " + std::to_string(rank) + " has another replicated model at version " +
         std::to_string(version));
}

// All ranks have ended a strict call of finish(), or a call of settle(). An earlier finish() may
// have gone on without some.
void TrainerSimulation::CheckGathered(int32_t rank, uint64_t epoch) {
  const auto has_left = [](const Player& it) { return it.has_left; };
  if (verdict_.killed > 0 || std::any_of(players_.begin(), players_.end(), has_left)) return;
  ++verdict_.gathered;
  const Player& player = At(rank);
  const int64_t version = player.trainer->version();
  const std::pair<int64_t, Numbers> here{version, player.model.sum};
  const auto [first, is_new] = gathered_.emplace(epoch, here);
  if (!is_new && first->second != here)
    Fail("2: rank " + std::to_string(rank) + " ends a strict finish(), or settle(), at version " +
         std::to_string(version) + ", another one at " + std::to_string(first->second.first) +
         ", or with another model");
}

void TrainerSimulation::CheckEnd() {
  bool is_whole = verdict_.killed == 0 && verdict_.went_on == 0;
  int64_t version = -1;
  for (const Player& player : players_) {
    is_whole &= player.has_ended;
    if (!player.has_ended && swarm_.end < kForever && verdict_.killed == 0)
      Fail("9: a rank gives up before its trainer is over");
    if (!player.has_ended) continue;
    if (version < 0) version = player.trainer->version();
    if (is_whole && version != player.trainer->version() && HasMean(player))
      Fail("2: ranks end with versions " + std::to_string(version) + " and " +
           std::to_string(player.trainer->version()));
  }
  verdict_.whole += is_whole ? 1 : 0;
  for (const Player& player : players_)
    if (is_whole && HasMean(player) && player.model.sum != players_[0].model.sum)
      Fail("2: ranks end with two models");
  if (is_whole && swarm_.hands_over) CheckHandOver();
  if (swarm_.payload == Payload::kModel || swarm_.hands_over) return;
  for (size_t i = 0; is_whole && i < published_.size(); ++i)
    if (players_[0].model.sum[i] != -published_[i])
      Fail("2: the sum of all gradients is " + std::to_string(published_[i]) + ", applied were " +
           std::to_string(-players_[0].model.sum[i]));
}

// Each gradient of the rounds before a hand-over is in a version, or in its rank's own model.
void TrainerSimulation::CheckHandOver() {
  const auto last = models_.find(handed_with_);
  if (handed_with_ < 0 || last == models_.end()) return;
  ++verdict_.handed_whole;
  for (size_t i = 0; i < published_.size(); ++i)
    if (last->second.sum[i] - withdrawn_[i] != -published_[i])
      Fail("8: the sum of all gradients is " + std::to_string(published_[i]) + ", applied were " +
           std::to_string(withdrawn_[i] - last->second.sum[i]));
}

// Stops or kills a rank, wherever it is.
void TrainerSimulation::Strike() {
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

// A line for each rank: its next step, its version, and the stage in which it waits.
std::string TrainerSimulation::Where() const {
  std::string text;
  for (const Player& player : players_) {
    const bool waits = player.ready.exchange.has_value();
    text += " " + std::to_string(player.trainer->step()) + "/" +
            std::to_string(player.trainer->version()) + "/" +
            (player.is_through
                 ? "end"
                 : std::to_string(waits ? static_cast<int>(player.ready.exchange->stage) : -1));
  }
  return text;
}

TrainerVerdict TrainerSimulation::Run() {
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
    if (player.is_killed || player.fiber->done() || is_slow ||
        player.stopped_until > network_.clock().Now())
      continue;
    if (player.channels == nullptr) network_.transport(Rank{static_cast<int32_t>(r)}).PollPeers();
    current_ = static_cast<int32_t>(r);
    player.fiber->Resume();
    current_ = -1;
  }
  if (resumes == kMostResumes) Fail("4: training does not come to its end:" + Where());
  if (failure_.empty()) CheckEnd();
  verdict_.deltas = swarm_.payload == Payload::kDelta ? 1 : 0;
  verdict_.models = swarm_.payload == Payload::kModel ? 1 : 0;
  verdict_.failure = failure_;
  verdict_.swarm = swarm_.ToString();
  verdict_.hash = resumes;
  for (const auto& [version, model] : models_) verdict_.hash = verdict_.hash * 31 + model.order;
  // Calls of ranks that were killed must be run to their end, or their stacks would leak.
  closing_ = true;
  for (Player& player : players_)
    if (player.channels == nullptr) Interrupt(&player);
  for (Player& player : players_)
    while (!player.fiber->done()) player.fiber->Resume();
  OnWorkDo(nullptr);
  return verdict_;
}

TrainerVerdict RunTrainers(uint64_t seed, int32_t ranks) {
  return TrainerSimulation(seed, ranks, false).Run();
}

TrainerVerdict RunHostTrainers(uint64_t seed, int32_t ranks) {
  return TrainerSimulation(seed, ranks, true).Run();
}

}  // namespace covey
