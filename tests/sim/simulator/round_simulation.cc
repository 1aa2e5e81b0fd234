#include "tests/sim/simulator/round_simulation.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "ops/transports/inproc.h"
#include "tests/sim/simulator/fiber.h"
#include "tests/sim/simulator/round_journal.h"
#include "tests/sim/simulator/split_kernels.h"

namespace covey {
namespace {

constexpr uint64_t kMostResumes = 400'000;
constexpr Time kLongestStep = 20 * kMicrosecond;
constexpr Time kLongestStop = 5 * kMillisecond;
constexpr uint64_t kMostStops = 40;
constexpr Time kLongestNews = 5 * kMillisecond;  // until a death is known

// What a seed turns on.
struct RoundSwarm {
  int32_t size, log;
  AdmissionRule admission;
  Time overdue, max_wait;
  std::vector<RoundSpan> spans;
  std::vector<uint64_t> steps;  // by rank
  uint64_t switch_permille;
  uint64_t slow_ranks;                                   // bit r: runs rarely
  uint64_t stops_permille;                               // of resumes: a rank stops for a while
  uint64_t most_stopped, most_killed, strikes_permille;  // for ever

  static RoundSwarm Draw(Rng* rng);
  std::string ToString() const;
};

RoundSwarm RoundSwarm::Draw(Rng* rng) {
  RoundSwarm s{};
  s.size = static_cast<int32_t>(1 + rng->Below(6));
  s.log = static_cast<int32_t>(1 + rng->Below(4));
  const auto count = static_cast<int32_t>(1 + rng->Below(static_cast<uint64_t>(s.size)));
  const AdmissionRule rules[] = {{.count = 1}, {}, {.count = count}, {.permille = 500}};
  s.admission = rules[rng->Below(4)];
  if (rng->Percent(40)) s.admission.grace = static_cast<Time>(rng->Below(200)) * kMicrosecond;
  s.overdue = static_cast<Time>(rng->Below(100)) * kMicrosecond;
  constexpr DType kTypes[] = {DType::kI64, DType::kI32, DType::kF32};
  for (uint64_t i = 0; i <= rng->Below(3); ++i)
    s.spans.push_back({kTypes[rng->Below(3)], 1 + rng->Below(40)});
  const uint64_t steps = 2 + rng->Below(10);
  const bool uneven = rng->Percent(30);
  for (int32_t r = 0; r < s.size; ++r) s.steps.push_back(uneven ? 1 + rng->Below(steps) : steps);
  constexpr uint64_t kSwitch[] = {5, 50, 300, 700};
  s.switch_permille = kSwitch[rng->Below(4)];
  s.slow_ranks = rng->Percent(50) ? rng->Next() : 0;
  s.stops_permille = rng->Percent(50) ? 1 + rng->Below(20) : 0;
  // For ever only as many as the admission can do without.
  const int32_t spare = s.size - s.admission.Wanted(s.size);
  // A rank that ends early is as good as stopped, when its finish() cannot be waited for.
  // With max_wait anybody.
  s.max_wait = rng->Percent(50) ? kNever : static_cast<Time>(1 + rng->Below(2000)) * kMicrosecond;
  const bool bounded = s.max_wait != kNever;
  const bool all_needed = uneven && s.admission.Wanted(s.size) > 1 && !bounded;
  if (rng->Percent(40) && !all_needed)
    s.most_stopped = rng->Below(static_cast<uint64_t>(bounded ? s.size : spare + 1));
  const bool all_spared = s.most_stopped == 0 || s.admission.Wanted(s.size) == 1 || bounded;
  if (rng->Percent(30) && all_spared) s.most_killed = rng->Below(static_cast<uint64_t>(s.size));
  s.strikes_permille = 1 + rng->Below(60);
  return s;
}

std::string RoundSwarm::ToString() const {
  return std::to_string(size) + " ranks, log " + std::to_string(log) + ", wanted " +
         std::to_string(admission.Wanted(size)) + ", grace " + std::to_string(admission.grace) +
         " ns, max_wait " + (max_wait == kNever ? "none" : std::to_string(max_wait) + " ns") +
         ", steps " + std::to_string(steps[0]) + ", stopped " + std::to_string(most_stopped) +
         ", killed " + std::to_string(most_killed) + ", switches " +
         std::to_string(switch_permille) + " permille";
}

class RoundSimulation final : public InprocWatcher {
 public:
  explicit RoundSimulation(uint64_t seed);
  RoundVerdict Run();

  void OnPoint(Rank r) override { Point(ToInt(r)); }
  void OnRing(Rank, bool) override {}
  // In the middle of a copy or a sum: where a stop hurts most.
  void OnWork() {
    if (swarm_.stops_permille > 0 && rng_.Percent(5)) StopForAWhile(current_);
    Point(current_);
  }

 private:
  enum class State : uint8_t { kRuns, kStopped, kKilled };
  struct Player {
    std::unique_ptr<Rounds> rounds;
    std::unique_ptr<Fiber> fiber;
    State state = State::kRuns;
    Time stopped_until = 0;
    Time known_dead_at = kNever;
    uint64_t read = 0;  // versions
  };

  void Point(int32_t rank);
  void Strike();
  void StopForAWhile(int32_t rank);
  void Main(int32_t rank);
  void Hear(Rounds* rounds);
  void Step(int32_t rank, uint64_t step);
  void Advance(int32_t rank, bool* moved);
  void AwaitVersion(int32_t rank, uint64_t version);
  void ReadAll(int32_t rank);
  bool AllHaveEnded() const;
  bool IsFlushable() const { return swarm_.most_stopped == 0 || swarm_.max_wait != kNever; }

  Rng rng_;
  RoundSwarm swarm_;
  InprocNetwork network_;
  RoundLayout layout_;
  RoundMemory memory_;
  std::unique_ptr<RoundJournal> journal_;
  std::vector<Player> players_;
  int32_t current_ = -1;
  bool closing_ = false;
  uint64_t stopped_ = 0, killed_ = 0, stops_ = 0, gone_ = 0, gave_up_ = 0;
};

RoundSimulation::RoundSimulation(uint64_t seed)
    : rng_(seed),
      swarm_(RoundSwarm::Draw(&rng_)),
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
    player.rounds = std::make_unique<Rounds>(Rounds::Options{.self = r,
                                                             .admission = swarm_.admission,
                                                             .max_wait = swarm_.max_wait,
                                                             .overdue = swarm_.overdue,
                                                             .kernels = &SplitKernels()},
                                             &memory_, network_.transport(Rank{r}).words());
    player.fiber = std::make_unique<Fiber>([this, r] { Main(r); });
  }
}

// ---- Inside a fiber -----------------------------------------------------------------------------

void RoundSimulation::Point(int32_t rank) {
  if (closing_ || rank != current_) return;
  journal_->Look();
  if (rng_.Below(1000) < swarm_.switch_permille) players_[static_cast<size_t>(rank)].fiber->Yield();
}

void RoundSimulation::Main(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  const uint64_t steps = swarm_.steps[static_cast<size_t>(rank)];
  for (uint64_t step = 1; step <= steps && !closing_; ++step) {
    Step(rank, step);
    AwaitVersion(rank, step);
    ReadAll(rank);
  }
  if (!IsFlushable() || closing_) return;
  journal_->OnFewer(rank);
  player.rounds->Finish();
  bool gives_up = false;
  while (!closing_ && !gives_up && !player.rounds->IsFlushed()) {
    bool moved = false;
    Advance(rank, &moved);
    gives_up = player.rounds->HasGivenUp();
    player.fiber->Yield();
  }
  gave_up_ += gives_up ? 1 : 0;
  ReadAll(rank);
}

void RoundSimulation::Step(int32_t rank, uint64_t step) {
  Rounds* rounds = players_[static_cast<size_t>(rank)].rounds.get();
  std::vector<std::byte> gradient(layout_.length_bytes());
  RoundJournal::Fill(layout_, rank, step, gradient.data());
  CopyInHalves(rounds->open(), gradient.data(), gradient.size(), Stores::kCached);
  const double hypers[] = {1.0 / static_cast<double>(step), static_cast<double>(rank)};
  journal_->OnPublish(rank, step);
  rounds->Publish(hypers);
}

void RoundSimulation::Advance(int32_t rank, bool* moved) {
  Rounds* rounds = players_[static_cast<size_t>(rank)].rounds.get();
  Hear(rounds);
  const uint64_t met = killed_ == 0 ? journal_->IsMet() : 0;
  const uint64_t expired = rounds->counters().expired;
  rounds->Advance(network_.clock().Now(), moved);
  if (closing_ || met == 0 || rounds->counters().expired == expired) return;
  const Turn turn = Turn::Of(*memory_.TurnAt());
  if (turn.fired && turn.version() == met)
    journal_->Fail("6: somebody has waited for a rank that is overdue, in version " +
                   std::to_string(met));
}

void RoundSimulation::AwaitVersion(int32_t rank, uint64_t version) {
  Player& player = players_[static_cast<size_t>(rank)];
  while (!closing_ && player.rounds->executed() < version) {
    bool moved = false;
    Advance(rank, &moved);
    if (!moved) player.fiber->Yield();
  }
}

void RoundSimulation::ReadAll(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  const uint64_t executed = player.rounds->executed();
  std::vector<std::byte> data(layout_.length_bytes());
  std::vector<void*> to;
  for (size_t offset : layout_.offsets_bytes()) to.push_back(data.data() + offset);
  RoundRecord record;
  while (!closing_ && player.read < executed) {
    const Found found = player.rounds->Read(++player.read, to, &record);
    if (found == Found::kYes) journal_->OnRead(rank, player.read, data, record);
    if (found == Found::kNotYet && !closing_) journal_->Fail("1: an executed version is not there");
    if (found == Found::kYes && record.header.leader >= 0 &&
        record.hypers[1] != static_cast<double>(record.header.leader))
      journal_->Fail("2: the hyper-parameters are not the leader's");
    gone_ += found == Found::kGone ? 1 : 0;
  }
}

void RoundSimulation::Hear(Rounds* rounds) {
  for (size_t r = 0; r < players_.size(); ++r)
    if (players_[r].known_dead_at <= network_.clock().Now())
      rounds->OnLoss(static_cast<int32_t>(r));
}

// ---- Outside ------------------------------------------------------------------------------------

// Stops or kills somebody, wherever it is.
void RoundSimulation::Strike() {
  const size_t victim = rng_.Below(players_.size());
  Player& player = players_[victim];
  if (player.state != State::kRuns || player.fiber->done()) return;
  if (rng_.Below(1000) < swarm_.stops_permille) StopForAWhile(static_cast<int32_t>(victim));
  if (rng_.Below(1000) >= swarm_.strikes_permille) return;
  // A job in which nobody runs shows nothing.
  const auto runs = std::count_if(players_.begin(), players_.end(),
                                  [](const Player& p) { return p.state == State::kRuns; });
  if (runs == 1) return;
  if (stopped_ < swarm_.most_stopped) {
    ++stopped_;
    player.state = State::kStopped;
  } else if (killed_ < swarm_.most_killed) {
    ++killed_;
    player.state = State::kKilled;
    player.known_dead_at =
        network_.clock().Now() + static_cast<Time>(rng_.Below(uint64_t{kLongestNews}));
    journal_->OnFewer(static_cast<int32_t>(victim));
  }
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
  uint64_t resumes = 0;
  for (; !AllHaveEnded() && journal_->failure().empty() && resumes < kMostResumes; ++resumes) {
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
  if (resumes == kMostResumes)
    journal_->Fail("4: somebody who runs waits for ever after version " +
                   std::to_string(journal_->versions()));
  for (int32_t r = 0; r < swarm_.size; ++r)
    journal_->CheckRank(r, players_[static_cast<size_t>(r)].state == State::kRuns,
                        IsFlushable() && players_[static_cast<size_t>(r)].state == State::kRuns);
  uint64_t again = 0;
  uint64_t expired = 0;
  for (const Player& player : players_) {
    again += player.rounds->counters().shards;
    expired += player.rounds->counters().expired;
  }
  const uint64_t needed = journal_->versions() * (layout_.shards().size() + 1);
  RoundVerdict verdict{.failure = journal_->failure(),
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
                       .gave_up = gave_up_};
  // What stopped ranks left in the middle must be run to its end, or their stacks would leak.
  closing_ = true;
  for (Player& player : players_)
    while (!player.fiber->done()) player.fiber->Resume();
  OnWorkDo(nullptr);
  return verdict;
}

}  // namespace

RoundVerdict RunRounds(uint64_t seed) { return RoundSimulation(seed).Run(); }

}  // namespace covey
