#include "tests/sim/simulator/pair_simulation.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/gossip/steps.h"
#include "ops/transports/inproc.h"
#include "tests/sim/simulator/fiber.h"
#include "tests/sim/simulator/pair_draws.h"
#include "tests/sim/simulator/pair_journal.h"
#include "tests/sim/simulator/pair_learning.h"
#include "tests/sim/simulator/pair_swarm.h"
#include "tests/sim/simulator/split_kernels.h"

namespace covey {
namespace {

constexpr uint64_t kMostResumes = 3'000'000;
constexpr Time kLongestStep = 20 * kMicrosecond;
constexpr Time kLongestStop = 5 * kMillisecond;
constexpr uint64_t kMostStops = 40;
constexpr Time kLongestNews = 5 * kMillisecond;  // until a death is known

class PairSimulation final : public InprocWatcher {
 public:
  PairSimulation(uint64_t seed, int32_t ranks);
  PairVerdict Run();

  void OnPoint(Rank r) override { Point(ToInt(r)); }
  void OnRing(Rank, bool) override {}
  void OnWork() {
    if (swarm_.stops_permille > 0 && rng_.Percent(5)) StopForAWhile(current_);
    Point(current_);
  }

 private:
  enum class State : uint8_t { kRuns, kStopped, kKilled };
  struct Player {
    std::unique_ptr<Gossip> gossip;
    std::unique_ptr<GossipSteps> steps;
    std::unique_ptr<Fiber> fiber;
    State state = State::kRuns;
    Time stopped_until = 0;
    Time known_dead_at = kNever;
    Bytes model;
    int64_t local_steps = 0;  // since it pushed
    bool finishes = false, has_finished = false;
    int gave_up = 0;
  };

  void Point(int32_t rank);
  void Strike();
  void StopForAWhile(int32_t rank);
  void Main(int32_t rank);
  void Learn(int32_t rank);
  void StepByRule(int32_t rank);
  void Average(int32_t rank);
  void LookAtOne(int32_t rank);
  void Step(int32_t rank);
  bool Finish(int32_t rank, int epoch);
  void TakeAtEnd(int32_t rank, int epoch, bool all, bool learnt);
  void GoOn(int32_t rank);
  void Hear(Gossip* own);
  bool IsAwaited(const std::vector<int32_t>& ranks) const;
  std::vector<void*> SpansOf(Bytes* model) const;
  std::vector<const void*> ConstSpansOf(Bytes* model) const;
  void CheckEnd();
  bool AllHaveEnded() const;
  PairVerdict Verdict(uint64_t resumes) const;

  Rng rng_;
  PairSwarm swarm_;
  InprocNetwork network_;
  RoundLayout layout_;
  PairMemory memory_;
  PairJournal journal_;
  std::vector<Player> players_;
  int32_t current_ = -1;
  bool closing_ = false;
  int32_t goes_on_ = 0, gone_on_ = 0;  // ranks
  uint64_t resumes_ = 0;
  uint64_t others_ran_ = 0;  // how often the rank that runs was another one than before
  int32_t ran_last_ = -1;
  uint64_t stops_ = 0;
  PairVerdict came_up_;  // what is counted here
};

PairMemory Mapped(InprocNetwork* network, int32_t size, const RoundLayout& layout) {
  PairMemory memory(size, layout);
  std::vector<std::byte*> blocks;
  for (int32_t r = 0; r < size; ++r) {
    Transport& transport = network->transport(Rank{r});
    blocks.push_back(transport.Base(Rank{r}) + transport.AllocShared(memory.BlockBytes()));
  }
  memory.Map(std::move(blocks));
  return memory;
}

PairSimulation::PairSimulation(uint64_t seed, int32_t ranks)
    : rng_(seed),
      swarm_(PairSwarm::Draw(&rng_, ranks)),
      network_({.size = swarm_.size, .seed = seed, .region_bytes = 1 << 20, .watcher = this}),
      layout_(swarm_.spans, 64),
      memory_(Mapped(&network_, swarm_.size, layout_)),
      journal_(&memory_) {
  players_.resize(static_cast<size_t>(swarm_.size));
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = players_[static_cast<size_t>(r)];
    player.model.resize(layout_.length_bytes());
    player.gossip = std::make_unique<Gossip>(r, &memory_, network_.transport(Rank{r}).words(),
                                             &SplitKernels(), swarm_.Codec());
    player.steps = std::make_unique<GossipSteps>(r, swarm_.rule, player.gossip.get());
    player.fiber = std::make_unique<Fiber>([this, r] { Main(r); });
  }
  const auto error_of = [this](size_t rank) { return players_[rank].gossip->error(); };
  if (!swarm_.codec.empty()) journal_.ExpectCodec(error_of, swarm_.KeepsEqual());
  if (!swarm_.by_rule) return;
  if (swarm_.rule.non_blocking) journal_.ExpectCopies();
  if (const std::string wrong = FindDrawThatIsWrong(swarm_.rule); !wrong.empty())
    journal_.Fail("6: " + wrong);
}

// ---- Inside a fiber -----------------------------------------------------------------------------

void PairSimulation::Point(int32_t rank) {
  if (closing_ || rank != current_) return;
  journal_.Look();
  if (swarm_.stops_at_words && rng_.Percent(2)) return StopForAWhile(rank);
  if (rng_.Below(1000) < swarm_.switch_permille) players_[static_cast<size_t>(rank)].fiber->Yield();
}

void PairSimulation::Main(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  player.gossip->Begin(ConstSpansOf(&player.model));
  for (int epoch = 0; epoch < swarm_.epochs && !closing_; ++epoch) {
    if (epoch > 0) GoOn(rank);
    for (uint64_t i = 0; i < swarm_.steps[static_cast<size_t>(rank)] && !closing_; ++i) Step(rank);
    while (!closing_ && !Finish(rank, epoch)) Step(rank);
  }
}

void PairSimulation::Step(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  Hear(player.gossip.get());
  Learn(rank);
  if (swarm_.by_rule) return StepByRule(rank);
  player.gossip->Update(SpansOf(&player.model));
  if (closing_) return;
  journal_.OnTaken(rank, player.model);
  if (rng_.Percent(10)) LookAtOne(rank);
  if (rng_.Percent(swarm_.exchange_percent)) Average(rank);
}

void PairSimulation::Learn(int32_t rank) {
  journal_.OnProgress(rank, LearnWhole(layout_, &rng_, &players_[static_cast<size_t>(rank)].model));
}

void PairSimulation::StepByRule(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  ++player.local_steps;
  player.steps->Step(SpansOf(&player.model));
  if (closing_) return;
  journal_.Look();
  const bool has_pushed = journal_.HasPushed(rank);
  if (!swarm_.rule.is_random && has_pushed != (player.local_steps == swarm_.rule.local_steps))
    journal_.Fail("6: rank " + std::to_string(rank) + " is at step " +
                  std::to_string(player.local_steps) + " of " +
                  std::to_string(swarm_.rule.local_steps) + " and has " +
                  (has_pushed ? "" : "not ") + "pushed");
  if (!has_pushed) return;
  ++came_up_.batches;
  player.local_steps = 0;
  journal_.OnTaken(rank, player.model);
}

void PairSimulation::Average(int32_t rank) {
  if (swarm_.size == 1 || (swarm_.half_ask && rank % 2 == 1)) return;
  Player& player = players_[static_cast<size_t>(rank)];
  const auto others = static_cast<uint64_t>(swarm_.size - 1);
  const auto hop = static_cast<int32_t>(1 + rng_.Below(others));
  Gossip::Outcome outcome = Gossip::Outcome::kBusy;
  for (int i = 0; i < swarm_.tries && outcome == Gossip::Outcome::kBusy; ++i) {
    const uint64_t ran = others_ran_;
    outcome = player.gossip->Exchange((rank + hop) % swarm_.size, SpansOf(&player.model));
    if (closing_) return;
    if (outcome == Gossip::Outcome::kBusy && ran == others_ran_)
      journal_.Fail("3: rank " + std::to_string(rank) + " was refused, and nobody else ran");
    if (outcome != Gossip::Outcome::kAbsent && outcome != Gossip::Outcome::kNoBuffers)
      journal_.OnTaken(rank, player.model);
  }
}

void PairSimulation::LookAtOne(int32_t rank) {
  Bytes copy(layout_.length_bytes());
  const auto member = static_cast<int32_t>(rng_.Below(players_.size()));
  const bool whole = players_[static_cast<size_t>(rank)].gossip->Peek(member, SpansOf(&copy));
  if (closing_) return;
  ++came_up_.looks;
  came_up_.torn += whole ? 0 : 1;
  if (whole && !journal_.IsEqual(copy, *journal_.ModelOf(member)))
    journal_.Fail("1: rank " + std::to_string(rank) + " has seen what rank " +
                  std::to_string(member) + " does not have");
}

void PairSimulation::Hear(Gossip* own) {
  for (size_t r = 0; r < players_.size(); ++r)
    if (players_[r].known_dead_at <= network_.clock().Now()) own->OnLoss(static_cast<int32_t>(r));
}

// Whether one of those will come, or is known to be dead soon.
bool PairSimulation::IsAwaited(const std::vector<int32_t>& ranks) const {
  return std::any_of(ranks.begin(), ranks.end(), [&](int32_t rank) {
    return players_[static_cast<size_t>(rank)].state != State::kStopped;
  });
}

// False: it has given up waiting, and trains on.
bool PairSimulation::Finish(int32_t rank, int epoch) {
  Player& player = players_[static_cast<size_t>(rank)];
  if (swarm_.by_rule) player.steps->PushDelta(SpansOf(&player.model));
  if (closing_) return true;
  journal_.Look();
  if (!journal_.HasPushed(rank))
    journal_.Fail("6: rank " + std::to_string(rank) + " finishes with steps that it keeps");
  player.local_steps = 0;
  player.gossip->Finish(FinishNumber::Of(static_cast<uint64_t>(epoch + 1), swarm_.keeps_own));
  player.finishes = true;
  bool gives_up = false;
  while (!closing_ && !gives_up && IsAwaited(player.gossip->Unfinished())) {
    Hear(player.gossip.get());
    player.fiber->Yield();
    gives_up = swarm_.gives_up && player.gave_up < 3 && rng_.Percent(10);
  }
  if (closing_) return true;
  Hear(player.gossip.get());
  player.gave_up += gives_up ? 1 : 0;
  came_up_.gave_up += gives_up ? 1 : 0;
  if (gives_up && player.gossip->LeaveBarrier()) return player.finishes = false;
  came_up_.came_too_late += gives_up ? 1 : 0;
  const bool all = gives_up || player.gossip->Unfinished().empty();
  TakeAtEnd(rank, epoch, all, gives_up);
  player.gossip->Meet();
  while (!closing_ && IsAwaited(player.gossip->Unmet())) {
    Hear(player.gossip.get());
    player.fiber->Yield();
  }
  player.has_finished = all && !gives_up && !closing_;
  player.finishes = false;
  return true;
}

// The epoch has ended, if `all` had finished; `learnt`: this rank has trained on nevertheless.
void PairSimulation::TakeAtEnd(int32_t rank, int epoch, bool all, bool learnt) {
  Player& player = players_[static_cast<size_t>(rank)];
  const Gossip::Taking take = swarm_.keeps_own ? &Gossip::OwnModel : &Gossip::Mean;
  Bytes taken(layout_.length_bytes());
  ((*player.gossip).*take)(SpansOf(&taken));
  if (closing_) return;
  if (all && swarm_.keeps_own) journal_.CheckOwn(rank, taken);
  if (all && !swarm_.keeps_own) journal_.CheckMeanOfEpoch(rank, epoch, taken);
  if (!learnt) {
    player.model = taken;
    return;
  }
  Learn(rank);
  player.gossip->TakeWithProgress(SpansOf(&player.model), take);
  if (!closing_) journal_.CheckProgress(rank, taken, player.model);
}

void PairSimulation::GoOn(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  if (goes_on_++ == 0) CheckEnd();
  journal_.OnGoOn(rank);
  player.gossip->GoOn(ConstSpansOf(&player.model));
  ++gone_on_;
  came_up_.epochs += gone_on_ == swarm_.size ? 1 : 0;
}

std::vector<void*> PairSimulation::SpansOf(Bytes* model) const {
  std::vector<void*> spans;
  for (size_t offset : layout_.offsets_bytes()) spans.push_back(model->data() + offset);
  return spans;
}

std::vector<const void*> PairSimulation::ConstSpansOf(Bytes* model) const {
  std::vector<const void*> spans;
  for (size_t offset : layout_.offsets_bytes()) spans.push_back(model->data() + offset);
  return spans;
}

// ---- Outside ------------------------------------------------------------------------------------

// Stops or kills a rank, wherever it is.
void PairSimulation::Strike() {
  const size_t victim = rng_.Below(players_.size());
  Player& player = players_[victim];
  if (player.state != State::kRuns || player.fiber->done()) return;
  if (rng_.Below(1000) < swarm_.stops_permille) StopForAWhile(static_cast<int32_t>(victim));
  const uint64_t often = player.finishes ? 10 : 1;
  if (rng_.Below(1000) >= swarm_.strikes_permille * often) return;
  const auto runs = std::count_if(players_.begin(), players_.end(),
                                  [](const Player& p) { return p.state == State::kRuns; });
  if (runs == 1) return;
  if (came_up_.stopped < swarm_.most_stopped) {
    ++came_up_.stopped;
    player.state = State::kStopped;
  } else if (came_up_.killed < swarm_.most_killed) {
    ++came_up_.killed;
    player.state = State::kKilled;
    player.known_dead_at =
        network_.clock().Now() + static_cast<Time>(rng_.Below(uint64_t{kLongestNews}));
  }
}

void PairSimulation::StopForAWhile(int32_t rank) {
  if (closing_ || stops_ == kMostStops) return;
  ++stops_;
  Player& player = players_[static_cast<size_t>(rank)];
  player.stopped_until =
      network_.clock().Now() + static_cast<Time>(rng_.Below(uint64_t{kLongestStop}));
  if (rank == current_) player.fiber->Yield();
}

bool PairSimulation::AllHaveEnded() const {
  return std::all_of(players_.begin(), players_.end(),
                     [](const Player& p) { return p.state != State::kRuns || p.fiber->done(); });
}

// All that have finished, with none missing, have one model.
void PairSimulation::CheckEnd() {
  const Player* first = nullptr;
  for (const Player& player : players_) {
    if (!player.has_finished && player.state != State::kKilled) return;
    if (first == nullptr && player.has_finished) first = &player;
  }
  ++came_up_.equal;
  if (swarm_.keeps_own) return;
  for (const Player& player : players_)
    if (player.has_finished && !journal_.IsEqual(player.model, first->model))
      journal_.Fail("5: finish() has left the ranks with different models");
  if (came_up_.killed > 0) return;
  journal_.CheckMeanOfAll(first->model);
}

PairVerdict PairSimulation::Run() {
  OnWorkDo([this] { OnWork(); });
  for (; !AllHaveEnded() && journal_.failure().empty() && resumes_ < kMostResumes; ++resumes_) {
    Strike();
    const size_t r = rng_.Below(players_.size());
    network_.clock().Advance(static_cast<Time>(rng_.Below(uint64_t{kLongestStep})));
    Player& player = players_[r];
    const bool slow = (swarm_.slow_ranks >> r & 1) != 0 && !rng_.Percent(3);
    if (player.state != State::kRuns || player.fiber->done() || slow) continue;
    if (player.stopped_until > network_.clock().Now()) continue;
    current_ = static_cast<int32_t>(r);
    others_ran_ += current_ != ran_last_ ? 1 : 0;
    ran_last_ = current_;
    player.fiber->Resume();
    current_ = -1;
    journal_.Look();
  }
  if (resumes_ == kMostResumes) journal_.Fail("3: somebody who runs waits for ever");
  CheckEnd();
  const PairVerdict verdict = Verdict(resumes_);
  // Calls of stopped ranks must be run to their end, or their stacks would leak.
  closing_ = true;
  for (Player& player : players_)
    while (!player.fiber->done()) player.fiber->Resume();
  OnWorkDo(nullptr);
  return verdict;
}

PairVerdict PairSimulation::Verdict(uint64_t resumes) const {
  PairVerdict verdict = came_up_;
  verdict.failure = journal_.failure();
  verdict.swarm = swarm_.ToString();
  verdict.hash = journal_.hash() * 31 + resumes;
  verdict.updates = journal_.updates;
  verdict.exchanges = journal_.exchanges;
  verdict.undecided = journal_.undecided;
  verdict.coded = journal_.coded;
  for (const Player& player : players_) {
    const Gossip::Counters& counters = player.gossip->counters();
    verdict.merged += counters.merged;
    verdict.busy += counters.busy;
    verdict.no_buffers += counters.no_buffers;
    verdict.absent += counters.absent;
    verdict.decoded += player.gossip->quantized().decoded;
    verdict.repaired += player.gossip->quantized().repaired;
  }
  return verdict;
}

}  // namespace

PairVerdict RunPairs(uint64_t seed, int32_t ranks) { return PairSimulation(seed, ranks).Run(); }

}  // namespace covey
