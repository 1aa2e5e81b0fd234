// The actions of a trainer in the simulator of replicas.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/sim/simulator/host_stage.h"

namespace covey {

void HostSimulation::Train(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  if (player.phase != Phase::kSeeks && !player.is_stranded && !player.is_away) Serve(rank);
  switch (player.phase) {
    case Phase::kComputes:
      if (player.computes_until <= now_) Publish(rank);
      return;
    case Phase::kWaits:
      if (player.replica->executed() < player.awaited && LacksCommitted(rank)) return;
      if (player.replica->executed() < player.awaited && !player.replica->IsLeftBehind()) return;
      ReadAll(rank);
      if (player.phase == Phase::kSeeks) return;
      player.phase = Phase::kComputes;
      player.computes_until = now_ + static_cast<Time>(rng_.Below(100)) * kMicrosecond;
      if (player.steps < swarm_.steps[static_cast<size_t>(rank)]) return;
      player.phase = IsFlushable() ? Phase::kFinishes : Phase::kDone;
      if (!IsFlushable()) return;
      journal_.OnFewer(rank);
      player.replica->Finish();
      return;
    case Phase::kFinishes:
      return AwaitFlush(rank);
    case Phase::kSeeks:
      return RequestSnapshot(rank);
    case Phase::kMeets:
      return AwaitOthers(rank);
    case Phase::kGoesOn:
      return GoOnWithout(rank);
    case Phase::kDone:
      if (player.is_stranded) return;
      ReadAll(rank);
      if (player.goes_away && player.phase == Phase::kDone) {
        Serve(rank);
        player.is_away = true;
      }
      return PerhapsLeave(rank);
  }
}

// It has been told that it lacks versions: then it does, and no rank can give them.
bool HostSimulation::LacksCommitted(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  if (player.replica->Lacking().last == 0) return false;
  for (const Player& other : players_)
    if (other.state == State::kRuns && other.stopped_until <= now_ &&
        !other.replica->has_departed() && other.replica->executed() > player.replica->executed())
      journal_.Fail("4: rank " + std::to_string(rank) + " lacks what others have");
  if (player.replica->Lacking().last > versions())
    journal_.Fail("4: rank " + std::to_string(rank) + " lacks what nobody has had");
  player.phase = Phase::kDone;
  lacking_ += player.lacks_committed ? 0 : 1;
  player.lacks_committed = true;
  return true;
}

void HostSimulation::PerhapsLeave(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  if (player.phase != Phase::kDone || player.leaves || rng_.Below(1000) >= leaves_permille_ ||
      !CanSpare(rank, true))
    return;
  player.leaves = true;
  NoteFewer(rank);
  player.replica->Leave();
  player.replica->LeaveGracefully(now_ +
                                  static_cast<Time>(rng_.Below(uint64_t(longest_linger_) + 1)));
}

// Gives a snapshot if it is this rank's turn.
void HostSimulation::Serve(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  if (!player.replica->IsAsked(player.read, now_)) return;
  const auto* bytes = reinterpret_cast<const std::byte*>(&player.model);
  player.replica->Give(player.read, Bytes(bytes, bytes + sizeof(RoundModel)));
}

void HostSimulation::RequestSnapshot(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  Replica::Snapshot snapshot;
  if (!player.replica->RequestSnapshot(&snapshot)) {
    if (!CanAnybodyGive(rank)) GiveUp(rank);
    return;
  }
  if (snapshot.state.size() != sizeof(RoundModel) || snapshot.version <= player.read)
    return journal_.Fail("7: a snapshot that is none");
  std::memcpy(&player.model, snapshot.state.data(), snapshot.state.size());
  player.read = snapshot.version;
  player.skips_ahead = swarm_.skips_ahead || journal_.WasOverdue(rank, player.replica->executed());
  player.phase = player.goes_on;
  ++taken_;
  journal_.OnApplied(rank, snapshot.version, player.model);
}

// It is told that no rank can give it a snapshot. Its process ends then, unless the others commit
// nothing without its replica: a snapshot may be under way to one of them, which then goes on.
void HostSimulation::GiveUp(int32_t rank) {
  if (CanSpare(rank, true)) return Kill(rank);
  Player& player = players_[static_cast<size_t>(rank)];
  player.phase = Phase::kDone;
  player.is_stranded = true;
}

// A running rank has applied what it lacks.
bool HostSimulation::CanAnybodyGive(int32_t to) const {
  for (size_t r = 0; r < players_.size(); ++r) {
    const Player& other = players_[r];
    if (static_cast<int32_t>(r) == to || other.state != State::kRuns) continue;
    if (other.phase != Phase::kSeeks && !other.is_stranded) return true;
  }
  return false;
}

// As RoundsPort has it, whose logs are longer.
bool HostSimulation::IsToRead(const Player& player) const {
  const uint64_t executed = player.replica->executed();
  const auto half = static_cast<uint64_t>(swarm_.log + 1) / 2;
  return !reads_late_ || executed >= player.read + half ||
         (executed > player.read && player.replica->IsAnyInNeed()) || player.replica->IsFlushed() ||
         player.replica->HasGivenUp();
}

void HostSimulation::AwaitFlush(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  if (IsToRead(player)) ReadAll(rank);
  if (player.phase == Phase::kSeeks) return;
  const bool is_flushed = player.replica->IsFlushed();
  if (is_flushed) journal_.OnFlushed(rank, player.replica->executed());
  rejoined_ += is_flushed && journal_.HasSettled() ? 1 : 0;
  if (LacksCommitted(rank)) return;
  const bool gives_up = player.replica->HasGivenUp();
  player.is_flushed = !gives_up && is_flushed;
  if (!gives_up && !player.is_flushed) return PerhapsStop(rank);
  gave_up_ += gives_up ? 1 : 0;
  if (gives_up && player.settles) {
    player.phase = Phase::kGoesOn;
    return;
  }
  const bool meets = !gives_up && player.meets;
  player.phase = meets ? Phase::kMeets : Phase::kDone;
  if (meets) player.replica->Meet();
  // A process may end at once and without a word: nothing of its own is awaited any more.
  const bool may_end = killed_ == 0 || killed_ < swarm_.most_killed;
  if (player.is_flushed && !meets && may_end && rng_.Percent(70) && CanSpare(rank, false))
    Kill(rank);
}

// Then its trainer leaves its state, if it is asked, and has gone.
void HostSimulation::GoOnWithout(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  if (!player.replica->GoOnWithout()) return;
  if (player.replica->IsSettled()) NoteSettled(rank);
  player.has_gone_on = true;
  player.phase = Phase::kDone;
  ReadAll(rank);
}

void HostSimulation::NoteSettled(int32_t rank) {
  ++settled_;
  journal_.OnSettled(rank, players_[static_cast<size_t>(rank)].replica->executed(), versions());
  players_[static_cast<size_t>(rank)].goes_away = true;
}

// Steps that it has published, and that no version has.
void HostSimulation::NoteDropped(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  const uint64_t dropped = player.replica->dropped() - player.dropped;
  if (dropped > 0) journal_.OnDropped(rank, dropped);
  player.dropped += dropped;
  dropped_ += dropped;
}

// Losses then are the first that it hears of.
void HostSimulation::PerhapsStop(int32_t rank) {
  if (!has_users_of_c_ || stops_ == kMostStops || rng_.Below(1000) >= 20) return;
  ++stops_;
  Player& player = players_[static_cast<size_t>(rank)];
  player.stopped_until = now_ + static_cast<Time>(rng_.Below(uint64_t{kLongestStop}));
}

// Until all that live have applied everything; but for those that are stopped for ever.
void HostSimulation::AwaitOthers(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  for (const int32_t other : player.replica->Unmet()) {
    const Player& unmet = players_[static_cast<size_t>(other)];
    if (unmet.state == State::kRuns && unmet.phase != Phase::kDone) return;
  }
  for (size_t r = 0; player.replica->Unmet().empty() && r < players_.size(); ++r)
    if (players_[r].state != State::kKilled && !players_[r].leaves && !players_[r].has_gone_on &&
        players_[r].read < player.read)
      journal_.Fail("7: rank " + std::to_string(rank) + " has met rank " + std::to_string(r) +
                    ", which has not applied everything");
  player.phase = Phase::kDone;
}

void HostSimulation::Publish(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  const uint64_t step = player.replica->next_step();
  if (player.skips_ahead && step <= player.read)
    journal_.Fail("9: rank " + std::to_string(rank) + " is late for ever");
  ++player.steps;
  player.phase = Phase::kWaits;
  if (swarm_.empty_permille > 0 && rng_.Below(1000) < swarm_.empty_permille) {
    std::memset(player.replica->open(), 0x55, layout_.length_bytes());
    ++empty_steps_;
    player.awaited = player.replica->Skip();
    if (player.replica->step() != step) ++player.dropped;
    return;
  }
  RoundJournal::Fill(layout_, rank, step, player.replica->open());
  const double hypers[] = {1.0 / static_cast<double>(step), static_cast<double>(rank)};
  journal_.OnPublish(rank, step);
  player.awaited = player.replica->Publish(hypers);
  if (player.replica->step() == step) return;
  ++player.dropped;
  ++dropped_;
  journal_.OnNotPublished(rank, step);
}

void HostSimulation::ReadAll(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  std::vector<std::byte> data(layout_.length_bytes());
  std::vector<void*> to;
  for (size_t offset : layout_.offsets_bytes()) to.push_back(data.data() + offset);
  RoundRecord record;
  while (player.read < player.replica->executed()) {
    std::fill(data.begin(), data.end(), std::byte{0});
    const Found found = player.replica->Read(player.read + 1, to, &record);
    if (found == Found::kNotYet) return journal_.Fail("1: an executed version is not there");
    if (found == Found::kGone) {
      ++skipped_;
      player.goes_on = player.phase;
      player.phase = Phase::kSeeks;
      return;
    }
    if (record.header.leader >= 0 && record.hypers[1] != static_cast<double>(record.header.leader))
      journal_.Fail("2: the hyper-parameters are not the leader's");
    player.skips_ahead = swarm_.skips_ahead || record.missing[static_cast<size_t>(rank)] > 0;
    player.model.Apply(data);
    journal_.OnApplied(rank, ++player.read, player.model);
  }
}

}  // namespace covey
