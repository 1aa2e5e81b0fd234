#include "tests/sim/simulator/host_model_simulation.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/sim/simulator/changed_model.h"
#include "tests/sim/simulator/host_model_journal.h"
#include "tests/sim/simulator/host_stage.h"

namespace covey {
namespace {

class HostModelSimulation final : public HostSimulation {
 public:
  HostModelSimulation(uint64_t seed, int32_t size);
  HostModelVerdict RunModels();

 private:
  struct Trainee {
    Bytes model;
    uint64_t published = 0;  // its last step that was
    bool has_ended = false;  // finish(), well, and with the final mean
    uint64_t settled = 0;    // the version that it has seen to be settled
  };

  void Check(int32_t rank) override;
  void Train(int32_t rank) override;
  void NoteFewer(int32_t rank) override { models_.OnFewer(rank); }
  void CheckEnd() override;
  uint64_t versions() const override { return models_.versions(); }
  Trainee& TraineeOf(int32_t rank) { return trainees_[static_cast<size_t>(rank)]; }
  void PublishModel(int32_t rank, bool again);
  void MergeWith(int32_t rank, uint64_t version);
  void GoOn(int32_t rank);
  void AwaitEnd(int32_t rank);
  void End(int32_t rank, bool gives_up);
  void LookForSettled(int32_t rank);
  void AwaitAll(int32_t rank);
  bool IsCalm() const;

  HostModelJournal models_;
  std::vector<Trainee> trainees_;
  uint64_t equal_ = 0;
};

HostModelSimulation::HostModelSimulation(uint64_t seed, int32_t size)
    : HostSimulation(seed, size, true),
      models_(&geometry_, swarm_.admission),
      trainees_(players_.size()) {
  for (int32_t r = 0; r < swarm_.size; ++r) {
    TraineeOf(r).model.resize(layout_.length_bytes());
    Replica& replica = *players_[static_cast<size_t>(r)].replica;
    std::memcpy(replica.open(), TraineeOf(r).model.data(), layout_.length_bytes());
    replica.Begin();
    models_.OnBegin(r, TraineeOf(r).model);
  }
}

// The versions it knows to be committed, before any other rank does anything.
void HostModelSimulation::Check(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  while (player.checked < player.replica->executed())
    if (const ReplicatedEntry* entry = player.replica->log().Find(++player.checked)) {
      models_.OnCommitted(rank, *entry);
      journal_.CheckSettled(entry->version);
      by_hub_ += entry->hub == rank ? 1 : 0;
    }
  if (!models_.failure().empty()) journal_.Fail(models_.failure());
}

void HostModelSimulation::PublishModel(int32_t rank, bool again) {
  Replica& replica = *players_[static_cast<size_t>(rank)].replica;
  Trainee& trainee = TraineeOf(rank);
  std::memcpy(replica.open(), trainee.model.data(), trainee.model.size());
  const uint64_t step = again ? replica.step() + 1 : std::max(replica.step() + 1, uint64_t{1});
  const double hypers[] = {static_cast<double>(step), static_cast<double>(rank)};
  models_.OnPublish(rank, step, trainee.model);
  const uint64_t before = replica.step();
  const uint64_t published = again ? replica.OfferAgain(hypers) : replica.Publish(hypers);
  Player& player = players_[static_cast<size_t>(rank)];
  player.awaited = again ? player.awaited : published;
  if (replica.step() == before) {
    ++player.dropped;
    ++dropped_;
    return;
  }
  if (again) models_.OnOffer(rank, step);
  if (replica.step() != step) models_.Fail("2: another step is published");
  trainee.published = step;
}

void HostModelSimulation::MergeWith(int32_t rank, uint64_t version) {
  Player& player = players_[static_cast<size_t>(rank)];
  Trainee& trainee = TraineeOf(rank);
  std::vector<void*> to;
  // To the next contribution, or elsewhere.
  std::byte* at = rng_.Percent(60) ? player.replica->open() : trainee.model.data();
  for (const size_t offset : layout_.offsets_bytes()) to.push_back(at + offset);
  Merged merged;
  const uint64_t step = trainee.published;
  const uint64_t consumed = player.replica->log().consumed()[static_cast<size_t>(rank)];
  const uint64_t executed = player.replica->executed();
  player.replica->Merge(version, to, &merged);
  if (at != trainee.model.data()) std::memcpy(trainee.model.data(), at, trainee.model.size());
  if (executed == 0) {
    if (!models_.IsPublished(rank, step, trainee.model))
      journal_.Fail("3: rank " + std::to_string(rank) + " has given up and not its own model");
    return;
  }
  const ReplicatedEntry* entry = player.replica->log().Find(merged.version);
  const bool has_mean = entry != nullptr && entry->body.size() > geometry_.record_bytes();
  models_.OnMerge(rank, step, version,
                  {.executed = executed,
                   .has_mean = has_mean,
                   .consumed = consumed,
                   .is_flushed = player.is_flushed || trainee.settled == executed},
                  merged, trainee.model);
  if (merged.late && models_.LastOfAll(merged.version) >= step &&
      player.replica->step() < merged.version)
    models_.Fail("6: rank " + std::to_string(rank) + " has missed a version of all and stays");
  if (!models_.failure().empty()) return journal_.Fail(models_.failure());
  // Sometimes it does not: then all that counts is in its own model.
  if (merged.kept && player.phase == Phase::kWaits && rng_.Percent(70)) PublishModel(rank, true);
}

void HostModelSimulation::Train(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  switch (player.phase) {
    case Phase::kComputes:
      if (player.computes_until > now_) return;
      ChangeAtRandom(layout_, &rng_, &TraineeOf(rank).model);
      PublishModel(rank, false);
      ++player.steps;
      player.phase = Phase::kWaits;
      return;
    case Phase::kWaits:
      if (player.replica->executed() >= player.awaited) return GoOn(rank);
      if (!LacksCommitted(rank) && player.replica->IsLeftBehind()) GoOn(rank);
      return;
    case Phase::kFinishes:
      return AwaitEnd(rank);
    case Phase::kMeets:
      return AwaitAll(rank);
    case Phase::kGoesOn:
      if (!player.replica->GoOnWithout()) return;
      LookForSettled(rank);
      if (player.replica->IsSettled()) NoteSettled(rank);
      return End(rank, true);
    default:
      return PerhapsLeave(rank);
  }
}

void HostModelSimulation::GoOn(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  // Not with one that its model is not offered to.
  if (player.replica->executed() >= player.awaited && TraineeOf(rank).published == player.awaited)
    MergeWith(rank, player.awaited);
  player.phase = Phase::kComputes;
  player.computes_until = now_ + static_cast<Time>(rng_.Below(100)) * kMicrosecond;
  if (player.steps < swarm_.steps[static_cast<size_t>(rank)]) return;
  player.phase = IsFlushable() ? Phase::kFinishes : Phase::kDone;
  if (!IsFlushable()) return;
  PublishModel(rank, false);
  NoteFewer(rank);
  player.replica->Finish();
}

void HostModelSimulation::AwaitEnd(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  const uint64_t executed = player.replica->executed();
  const bool is_flushed = player.replica->IsFlushed();
  if (is_flushed) models_.OnFlushed(rank, executed);
  if (LacksCommitted(rank)) return;
  const bool gives_up = player.replica->HasGivenUp();
  LookForSettled(rank);
  if (!gives_up && !is_flushed) return PerhapsStop(rank);
  player.is_flushed = is_flushed;
  rejoined_ += is_flushed && journal_.HasSettled() ? 1 : 0;
  gave_up_ += gives_up ? 1 : 0;
  if (gives_up && player.settles) {
    player.phase = Phase::kGoesOn;
    return;
  }
  End(rank, gives_up);
}

void HostModelSimulation::LookForSettled(int32_t rank) {
  const Replica& replica = *players_[static_cast<size_t>(rank)].replica;
  if (replica.IsSettled()) TraineeOf(rank).settled = replica.log().executed();
}

void HostModelSimulation::End(int32_t rank, bool gives_up) {
  Player& player = players_[static_cast<size_t>(rank)];
  const uint64_t executed = player.replica->executed();
  if (TraineeOf(rank).published > 0) MergeWith(rank, executed);
  player.is_flushed &= !gives_up;
  const ReplicatedEntry* last = player.replica->log().Find(executed);
  TraineeOf(rank).has_ended = TraineeOf(rank).published > 0 &&
                              (player.is_flushed || TraineeOf(rank).settled == executed) &&
                              last != nullptr && last->body.size() > geometry_.record_bytes();
  const bool meets = !gives_up && player.meets;
  player.phase = meets ? Phase::kMeets : Phase::kDone;
  if (meets) player.replica->Meet();
}

// But for those that are stopped for ever.
void HostModelSimulation::AwaitAll(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  for (const int32_t other : player.replica->Unmet()) {
    const Player& unmet = players_[static_cast<size_t>(other)];
    if (unmet.state == State::kRuns && unmet.phase != Phase::kDone) return;
  }
  player.phase = Phase::kDone;
}

// No rank or link was ever slower than the others, nor all of them so slow that an attempt was
// vain: a rank that is left out of one fetches the mean, for a time (replicated-W20).
bool HostModelSimulation::IsCalm() const {
  const bool is_fast = std::all_of(players_.begin(), players_.end(), [](const Player& player) {
    return player.replica->abandoned() == 0;
  });
  return is_fast && stopped_ + killed_ + stops_ + left_ + elections_.size() == 0 &&
         slow_replicas_ == 0 && clog_permille_ == 0 && !has_storms_ && cut_.begin == kNever;
}

void HostModelSimulation::CheckEnd() {
  if (IsCalm() && models_.absent > 0) models_.Fail("3: a mean is not there, and none was late");
  const Bytes* first = nullptr;
  for (size_t r = 0; r < players_.size(); ++r) {
    if (!trainees_[r].has_ended) continue;
    if (first == nullptr) first = &trainees_[r].model;
    equal_ += first == &trainees_[r].model ? 0 : 1;
    if (!models_.AreEqual(*first, trainees_[r].model))
      models_.Fail("4: finish() has left the ranks with different models");
  }
  if (!models_.failure().empty()) journal_.Fail(models_.failure());
}

HostModelVerdict HostModelSimulation::RunModels() {
  const HostVerdict verdict = Run();
  return {.failure = verdict.failure,
          .swarm = verdict.swarm + ", groups of " + std::to_string(rule_.group_size) +
                   ", all every " + std::to_string(rule_.sync_every) + ", between hosts every " +
                   std::to_string(rule_.cross_every),
          .hash = models_.hash() * 31 + verdict.hash,
          .versions = models_.versions(),
          .grouped = models_.grouped,
          .syncs = models_.syncs,
          .finals = models_.finals,
          .late = models_.late,
          .anew = models_.anew,
          .kept = models_.kept,
          .again = models_.again,
          .passive = models_.passive,
          .overdue = models_.overdue,
          .returned = models_.returned,
          .gave_up = verdict.gave_up,
          .equal = equal_,
          .newer = models_.newer,
          .stopped = verdict.stopped,
          .killed = verdict.killed,
          .elections = verdict.elections,
          .abandoned = verdict.abandoned,
          .adopted = verdict.adopted,
          .left = verdict.left,
          .settled = verdict.settled,
          .rejoined = verdict.rejoined,
          .dropped = verdict.dropped,
          .taken = models_.taken,
          .absent = models_.absent,
          .by_hub = by_hub_};
}

}  // namespace

HostModelVerdict RunHostModels(uint64_t seed, int32_t size) {
  return HostModelSimulation(seed, size).RunModels();
}

}  // namespace covey
