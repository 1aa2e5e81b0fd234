#include "tests/sim/simulator/model_simulation.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "ops/transports/inproc.h"
#include "tests/sim/simulator/changed_model.h"
#include "tests/sim/simulator/fiber.h"
#include "tests/sim/simulator/model_journal.h"
#include "tests/sim/simulator/model_patience.h"
#include "tests/sim/simulator/model_swarm.h"
#include "tests/sim/simulator/split_kernels.h"

namespace covey {
namespace {

constexpr uint64_t kMostResumes = 5'000'000;
constexpr Time kLongestStep = 20 * kMicrosecond;
constexpr Time kLongestStop = 5 * kMillisecond;
constexpr uint64_t kMostStops = 40;
constexpr Time kLongestNews = 5 * kMillisecond;  // until a death is known

class ModelSimulation final : public InprocWatcher {
 public:
  ModelSimulation(uint64_t seed, int32_t ranks);
  ModelVerdict Run();

  void OnPoint(Rank r) override { Point(ToInt(r)); }
  void OnRing(Rank, bool) override {}
  void OnWork() {
    if (swarm_.stops_permille > 0 && rng_.Percent(5)) StopForAWhile(current_);
    Point(current_);
  }

 private:
  enum class State : uint8_t { kRuns, kStopped, kKilled };
  struct Player {
    std::unique_ptr<Rounds> rounds;
    std::unique_ptr<Fiber> fiber;
    ModelPatience patience = {};
    State state = State::kRuns;
    Time stopped_until = 0;
    Time known_dead_at = kNever;
    Bytes model;
    uint64_t published = 0;  // its last step that was
    bool has_finished = false;
  };

  void Point(int32_t rank);
  void Strike();
  void StopForAWhile(int32_t rank);
  void Main(int32_t rank);
  void LookAtOne(int32_t rank);
  uint64_t Publish(int32_t rank);
  bool MergeWith(int32_t rank, uint64_t step, uint64_t version);
  void Advance(int32_t rank, bool* moved);
  bool AwaitVersion(int32_t rank, uint64_t version);
  void Finish(int32_t rank);
  void GoOn(int32_t rank);
  void GoOnWithout(int32_t rank);
  void Begin(int32_t rank);
  void OfferAgain(int32_t rank);
  bool AllHaveEnded() const;
  void CheckEnd();
  ModelVerdict Verdict(uint64_t resumes) const;

  Rng rng_;
  ModelSwarm swarm_;
  InprocNetwork network_;
  RoundLayout layout_;
  RoundMemory memory_;
  std::unique_ptr<ModelJournal> journal_;
  std::vector<Player> players_;
  int32_t current_ = -1;
  bool closing_ = false;
  int32_t gone_on_ = 0;
  uint64_t stopped_ = 0, killed_ = 0, stops_ = 0, gave_up_ = 0, equal_ = 0, newer_ = 0, jumps_ = 0;
  uint64_t looks_ = 0, torn_ = 0, dropped_ = 0;
};

ModelSimulation::ModelSimulation(uint64_t seed, int32_t ranks)
    : rng_(seed),
      swarm_(ModelSwarm::Draw(&rng_, ranks)),
      network_({.size = swarm_.size, .seed = seed, .region_bytes = 4 << 20, .watcher = this}),
      layout_(swarm_.spans, 64),
      memory_({.size = swarm_.size, .log = swarm_.log, .models = swarm_.models}, layout_) {
  std::vector<std::byte*> blocks;
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Transport& transport = network_.transport(Rank{r});
    blocks.push_back(transport.Base(Rank{r}) + transport.AllocShared(memory_.BlockBytes(r)));
  }
  memory_.Map(std::move(blocks));
  journal_ = std::make_unique<ModelJournal>(&memory_, swarm_.admission);
  players_.resize(static_cast<size_t>(swarm_.size));
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = players_[static_cast<size_t>(r)];
    player.model.resize(layout_.length_bytes());
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

void ModelSimulation::Point(int32_t rank) {
  if (closing_ || rank != current_) return;
  journal_->Look();
  if (rng_.Below(1000) < swarm_.switch_permille) players_[static_cast<size_t>(rank)].fiber->Yield();
}

void ModelSimulation::Main(int32_t rank) {
  const uint64_t steps = swarm_.steps[static_cast<size_t>(rank)];
  for (int epoch = 0; epoch < swarm_.epochs && !closing_; ++epoch) {
    if (epoch > 0) GoOn(rank);
    if (epoch == 0) Begin(rank);
    for (uint64_t i = 0; i < steps && !closing_; ++i) {
      ChangeAtRandom(layout_, &rng_, &players_[static_cast<size_t>(rank)].model);
      const uint64_t step = Publish(rank);
      if (AwaitVersion(rank, step) && MergeWith(rank, step, step)) OfferAgain(rank);
      if (swarm_.looks_percent > 0 && rng_.Percent(swarm_.looks_percent)) LookAtOne(rank);
    }
    if (!closing_) Finish(rank);
  }
}

// No rank publishes before all have come from finish().
void ModelSimulation::GoOn(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  player.rounds->GoOn();
  ++gone_on_;
  if (gone_on_ == swarm_.size) journal_->OnAllGoOn();
  while (!closing_ && gone_on_ < swarm_.size) player.fiber->Yield();
}

void ModelSimulation::Begin(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  std::memcpy(player.rounds->open(), player.model.data(), player.model.size());
  player.rounds->Begin();
  journal_->OnBegin(rank, player.model);
}

void ModelSimulation::LookAtOne(int32_t rank) {
  Bytes copy(layout_.length_bytes());
  std::vector<void*> to;
  for (size_t offset : layout_.offsets_bytes()) to.push_back(copy.data() + offset);
  const auto member = static_cast<int32_t>(rng_.Below(players_.size()));
  uint64_t step;
  const bool whole = players_[static_cast<size_t>(rank)].rounds->Peek(member, to, &step);
  if (closing_ || step == 0) return;
  ++looks_;
  torn_ += whole ? 0 : 1;
  if (whole) journal_->OnLook(member, step, copy);
}

uint64_t ModelSimulation::Publish(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  CopyInHalves(player.rounds->open(), player.model.data(), player.model.size(), Stores::kCached);
  const uint64_t before = player.rounds->step();
  journal_->OnPublish(rank, before + 1, player.model);
  const uint64_t step = player.rounds->Publish({});
  player.published = player.rounds->step() > before ? step : player.published;
  if (!closing_) dropped_ += player.rounds->step() > before ? 0 : 1;
  return step;
}

bool ModelSimulation::MergeWith(int32_t rank, uint64_t step, uint64_t version) {
  Player& player = players_[static_cast<size_t>(rank)];
  std::vector<void*> to;
  // To the next contribution, or elsewhere.
  std::byte* at = rng_.Percent(60) ? player.rounds->open() : player.model.data();
  for (size_t offset : layout_.offsets_bytes()) to.push_back(at + offset);
  Merged merged;
  const uint64_t last = player.rounds->executed();
  player.rounds->Merge(version, to, &merged);
  if (closing_) return false;
  if (at != player.model.data()) std::memcpy(player.model.data(), at, player.model.size());
  journal_->OnMerge(rank, step, version, merged, player.model);
  newer_ += merged.version > version ? 1 : 0;
  if (journal_->LastOfAll(last) > step && merged.version < last)
    journal_->Fail("6: rank " + std::to_string(rank) + " goes on from before a version of all");
  const uint64_t next = player.rounds->step();
  if (merged.late && journal_->LastOfAll(merged.version) >= step && next < merged.version)
    journal_->Fail("6: rank " + std::to_string(rank) + " has missed a version of all and stays");
  jumps_ += next > step ? 1 : 0;
  return merged.kept;
}

// Sometimes it does not: then all that counts is in its own model.
void ModelSimulation::OfferAgain(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  if (rng_.Percent(30)) return;
  CopyInHalves(player.rounds->open(), player.model.data(), player.model.size(), Stores::kCached);
  journal_->OnPublish(rank, player.rounds->step() + 1, player.model);
  journal_->OnOffer(rank, player.rounds->step() + 1);
  const uint64_t before = player.rounds->step();
  const uint64_t step = player.rounds->OfferAgain({});
  if (step > before) player.published = step;
}

void ModelSimulation::Advance(int32_t rank, bool* moved) {
  Player& player = players_[static_cast<size_t>(rank)];
  Rounds* rounds = player.rounds.get();
  for (size_t r = 0; r < players_.size(); ++r)
    if (players_[r].known_dead_at <= network_.clock().Now())
      rounds->OnLoss(static_cast<int32_t>(r));
  const Time now = network_.clock().Now();
  player.patience.Before(memory_, rank, rounds->step(), swarm_.max_wait, now);
  rounds->Advance(now, moved);
  if (closing_ || killed_ > 0) return;
  const int32_t slow = player.patience.After(memory_, swarm_.max_wait);
  if (slow >= 0)
    journal_->Fail("7: rank " + std::to_string(rank) + " goes on waiting for rank " +
                   std::to_string(slow) + ", which is slow");
}

// False: it is none that this rank's model may be in.
bool ModelSimulation::AwaitVersion(int32_t rank, uint64_t version) {
  Player& player = players_[static_cast<size_t>(rank)];
  while (!closing_ && player.rounds->executed() < version &&
         !player.rounds->epoch_end().IsLeftBehind()) {
    bool moved = false;
    Advance(rank, &moved);
    if (!moved) player.fiber->Yield();
  }
  return !closing_ && player.rounds->executed() >= version && player.published == version;
}

void ModelSimulation::Finish(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  Publish(rank);
  journal_->OnFewer(rank);
  player.rounds->epoch_end().Finish();
  bool gives_up = false;
  while (!closing_ && !gives_up && !player.rounds->epoch_end().IsFlushed()) {
    bool moved = false;
    Advance(rank, &moved);
    gives_up = player.rounds->epoch_end().HasGivenUp();
    player.fiber->Yield();
  }
  if (gives_up && rank % 2 == 0) GoOnWithout(rank);
  if (closing_) return;
  MergeWith(rank, player.published, player.rounds->executed());
  journal_->OnEnd(rank, player.rounds->executed());
  gave_up_ += gives_up ? 1 : 0;
  player.has_finished = !gives_up;
}

void ModelSimulation::GoOnWithout(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  while (!closing_ && !player.rounds->epoch_end().GoOnWithout()) {
    bool moved = false;
    Advance(rank, &moved);
    player.fiber->Yield();
  }
  if (!closing_) journal_->OnGoOnWithout(rank, player.rounds->executed());
}

// ---- Outside ------------------------------------------------------------------------------------

// Stops or kills a rank, wherever it is.
void ModelSimulation::Strike() {
  const size_t victim = rng_.Below(players_.size());
  Player& player = players_[victim];
  if (player.state != State::kRuns || player.fiber->done()) return;
  if (rng_.Below(1000) < swarm_.stops_permille) StopForAWhile(static_cast<int32_t>(victim));
  if (rng_.Below(1000) >= swarm_.strikes_permille) return;
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
    journal_->OnKill(static_cast<int32_t>(victim));
  }
}

void ModelSimulation::StopForAWhile(int32_t rank) {
  if (closing_ || stops_ == kMostStops) return;
  ++stops_;
  Player& player = players_[static_cast<size_t>(rank)];
  player.stopped_until =
      network_.clock().Now() + static_cast<Time>(rng_.Below(uint64_t{kLongestStop}));
  if (rank == current_) player.fiber->Yield();
}

bool ModelSimulation::AllHaveEnded() const {
  return std::all_of(players_.begin(), players_.end(),
                     [](const Player& p) { return p.state != State::kRuns || p.fiber->done(); });
}

// Where no rank was struck or gave up, all have one model.
void ModelSimulation::CheckEnd() {
  const bool all =
      std::all_of(players_.begin(), players_.end(), [](const Player& p) { return p.has_finished; });
  if (!all || stopped_ + killed_ + gave_up_ > 0) return;
  ++equal_;
  for (const Player& player : players_)
    for (const RoundLayout::Tile& tile : layout_.tiles())
      if (std::memcmp(player.model.data() + tile.offset_bytes,
                      players_[0].model.data() + tile.offset_bytes,
                      tile.count * SizeOf(tile.dtype)) != 0)
        journal_->Fail("5: finish() has left the ranks with different models");
}

ModelVerdict ModelSimulation::Run() {
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
    journal_->Fail("5: somebody who runs waits for ever after version " +
                   std::to_string(journal_->versions()));
  CheckEnd();
  const ModelVerdict verdict = Verdict(resumes);
  // Calls of stopped ranks must be run to their end, or their stacks would leak.
  closing_ = true;
  for (Player& player : players_)
    while (!player.fiber->done()) player.fiber->Resume();
  OnWorkDo(nullptr);
  return verdict;
}

ModelVerdict ModelSimulation::Verdict(uint64_t resumes) const {
  return {.failure = journal_->failure(),
          .swarm = swarm_.ToString(),
          .hash = journal_->hash() * 31 + resumes,
          .versions = journal_->versions(),
          .passive = journal_->passive,
          .again = journal_->again,
          .late = journal_->late,
          .old = journal_->old,
          .syncs = journal_->syncs,
          .finals = journal_->finals,
          .stopped = stopped_,
          .killed = killed_,
          .overdue = journal_->overdue,
          .returned = journal_->returned,
          .gave_up = gave_up_,
          .equal = equal_,
          .newer = newer_,
          .jumps = jumps_,
          .anew = journal_->anew,
          .kept = journal_->kept,
          .taken = journal_->taken,
          .looks = looks_,
          .torn = torn_,
          .dropped = dropped_};
}

}  // namespace

ModelVerdict RunModels(uint64_t seed, int32_t ranks) { return ModelSimulation(seed, ranks).Run(); }

}  // namespace covey
