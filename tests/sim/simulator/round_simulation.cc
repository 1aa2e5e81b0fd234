#include "tests/sim/simulator/round_simulation.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/sim/simulator/round_stage.h"
#include "tests/sim/simulator/split_kernels.h"

namespace covey {
namespace {

// For each rank and each other that it looks at; as for six at least. With 50 laggards, of which
// some run rarely, a seed has taken 17 million.
constexpr uint64_t kMostResumes = 42'000;
constexpr Time kLongestStep = 20 * kMicrosecond;
constexpr Time kLongestStop = 5 * kMillisecond;
constexpr uint64_t kMostStops = 40;
constexpr Time kLongestNews = 5 * kMillisecond;  // until a death is known

}  // namespace

RoundSimulation::RoundSimulation(uint64_t seed, int32_t ranks)
    : rng_(seed),
      swarm_(RoundSwarm::Draw(&rng_, ranks)),
      network_({.size = swarm_.size, .seed = seed, .region_bytes = 1 << 20, .watcher = this}),
      layout_(swarm_.spans, 64),
      memory_({.size = swarm_.size, .log = swarm_.log, .hypers = 2}, layout_) {
  std::vector<std::byte*> blocks;
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Transport& transport = network_.transport(Rank{r});
    blocks.push_back(transport.Base(Rank{r}) + transport.AllocShared(memory_.BlockBytes(r)));
  }
  memory_.Map(std::move(blocks));
  journal_ = std::make_unique<RoundJournal>(&memory_, swarm_.admission);
  players_.resize(static_cast<size_t>(swarm_.size));
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = players_[static_cast<size_t>(r)];
    player.rounds =
        std::make_unique<Rounds>(Rounds::Options{.self = r,
                                                 .admission = swarm_.admission,
                                                 .max_wait = swarm_.max_wait,
                                                 .skips_ahead = swarm_.skips_ahead,
                                                 .overdue = swarm_.overdue,
                                                 .snapshot_overdue = swarm_.snapshot_overdue,
                                                 .kernels = &SplitKernels()},
                                 &memory_, network_.transport(Rank{r}).words());
    Transport& transport = network_.transport(Rank{r});
    player.place = transport.Base(Rank{r}) + transport.AllocShared(sizeof(RoundModel));
    player.fiber = std::make_unique<Fiber>([this, r] { Main(r); });
  }
}

// ---- Outside ------------------------------------------------------------------------------------

// Stops or kills a rank, wherever it is.
void RoundSimulation::Strike() {
  const size_t victim = rng_.Below(players_.size());
  Player& player = players_[victim];
  if (player.state != State::kRuns || player.fiber->done()) return;
  if (rng_.Below(1000) < swarm_.stops_permille) StopForAWhile(static_cast<int32_t>(victim));
  if (rng_.Below(1000) >= swarm_.strikes_permille) return;
  if (Stop(static_cast<int32_t>(victim)) || killed_ == swarm_.most_killed || IsLast()) return;
  ++killed_;
  player.state = State::kKilled;
  player.known_dead_at =
      network_.clock().Now() + static_cast<Time>(rng_.Below(uint64_t{kLongestNews}));
  journal_->OnKill(static_cast<int32_t>(victim));
}

// A job in which no rank runs shows nothing.
bool RoundSimulation::IsLast() const {
  const auto runs = std::count_if(players_.begin(), players_.end(),
                                  [](const Player& p) { return p.state == State::kRuns; });
  return runs == 1;
}

// For ever, from the next point on.
bool RoundSimulation::Stop(int32_t rank) {
  if (stopped_ == swarm_.most_stopped || IsLast()) return false;
  ++stopped_;
  players_[static_cast<size_t>(rank)].state = State::kStopped;
  if (rank == current_) players_[static_cast<size_t>(rank)].fiber->Yield();
  return true;
}

void RoundSimulation::StopForAWhile(int32_t rank) {
  if (closing_ || stops_ == kMostStops) return;
  ++stops_;
  Player& player = players_[static_cast<size_t>(rank)];
  player.stopped_until =
      network_.clock().Now() + static_cast<Time>(rng_.Below(uint64_t{kLongestStop}));
  if (rank == current_) player.fiber->Yield();
}

bool RoundSimulation::AllHaveEnded() const {
  return std::all_of(players_.begin(), players_.end(),
                     [](const Player& p) { return p.state != State::kRuns || p.fiber->done(); });
}

RoundVerdict RoundSimulation::Run() {
  OnWorkDo([this] { OnWork(); });
  const uint64_t looked_at = std::max<size_t>(6, players_.size());
  const uint64_t most = kMostResumes * looked_at * looked_at;
  uint64_t resumes = 0;
  for (; !AllHaveEnded() && journal_->failure().empty() && resumes < most; ++resumes) {
    Strike();
    const size_t r = rng_.Below(players_.size());
    network_.clock().Advance(static_cast<Time>(rng_.Below(uint64_t{kLongestStep})));
    Player& player = players_[r];
    const bool slow = (swarm_.slow_ranks >> r & 1) != 0 && !rng_.Percent(3);
    if (player.state != State::kRuns || player.fiber->done() || slow) continue;
    if (player.stopped_until > network_.clock().Now()) continue;
    current_ = static_cast<int32_t>(r);
    player.fiber->Resume();
    current_ = -1;
    journal_->Look();
  }
  if (resumes == most)
    journal_->Fail("4: somebody who runs waits for ever after version " +
                   std::to_string(journal_->versions()));
  for (int32_t r = 0; r < swarm_.size; ++r) {
    const Player& player = players_[static_cast<size_t>(r)];
    const bool runs = player.state == State::kRuns;
    journal_->CheckRank(r, runs, IsFlushable() && runs && !player.has_fallen_out && !player.leaves);
  }
  uint64_t again = 0;
  uint64_t expired = 0;
  for (const Player& player : players_) {
    again += player.rounds->counters().tiles;
    expired += player.rounds->counters().expired;
  }
  const uint64_t needed = journal_->versions() * (layout_.tiles().size() + 1);
  RoundVerdict verdict{
      .failure = journal_->failure(),
      .swarm = swarm_.ToString(),
      .hash = journal_->hash() * 31 + resumes,
      .versions = journal_->versions(),
      .late = journal_->late(),
      .merged = journal_->merged(),
      .stopped = stopped_,
      .killed = killed_,
      .again = again > needed ? again - needed : 0,
      .gone = gone_,
      .expired = expired,
      .overdue = journal_->overdue(),
      .returned = journal_->returned(),
      .gave_up = gave_up_,
      .at_limit = journal_->oldest() > 1 ? journal_->oldest() / swarm_.admission.staleness : 0,
      .skipped = journal_->skipped(),
      .given = given_,
      .taken = taken_,
      .retracted = retracted_,
      .empty_steps = empty_steps_,
      .taken_back = taken_back_,
      .dropped = journal_->dropped(),
      .rejoined = journal_->rejoined()};
  // Calls of stopped ranks must be run to their end, or their stacks would leak.
  closing_ = true;
  for (Player& player : players_)
    while (!player.fiber->done()) player.fiber->Resume();
  OnWorkDo(nullptr);
  return verdict;
}

RoundVerdict RunRounds(uint64_t seed, int32_t ranks) { return RoundSimulation(seed, ranks).Run(); }

}  // namespace covey
