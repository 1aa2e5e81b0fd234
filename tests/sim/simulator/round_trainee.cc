// The actions of a simulated rank: all that runs inside its fiber.
#include <algorithm>
#include <cstring>

#include "tests/sim/simulator/round_stage.h"
#include "tests/sim/simulator/split_kernels.h"

namespace covey {
namespace {

constexpr Time kLongestMeeting = 20 * kMillisecond;

}  // namespace

void RoundSimulation::Point(int32_t rank) {
  if (closing_ || rank != current_) return;
  journal_->Look();
  if (rng_.Below(1000) < swarm_.switch_permille) players_[static_cast<size_t>(rank)].fiber->Yield();
}

void RoundSimulation::Main(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  player.data.resize(layout_.length_bytes());
  player.holds = rank % 4 >= 2;
  if (rank % 4 == 1) player.rounds->RegisterOutput(SpansOf(&player.data));
  const uint64_t steps = swarm_.steps[static_cast<size_t>(rank)];
  for (uint64_t step = 1; step <= steps && !closing_ && !player.has_fallen_out; ++step) {
    AwaitVersion(rank, Step(rank));
    ReadAll(rank);
    if (rng_.Below(1000) < swarm_.retractions_permille) Retract(rank);
    Serve(rank);
  }
  if (IsFlushable() && !closing_ && !player.has_fallen_out) Flush(rank);
}

// A contribution published too late counts elsewhere.
void RoundSimulation::Retract(int32_t rank) {
  const std::byte* content = players_[static_cast<size_t>(rank)].rounds->Retract();
  if (content == nullptr || closing_) return;
  const SlotWord slot = SlotWord::Of(*memory_.SlotAt(rank));
  journal_->OnWithdrawn(rank, memory_.Header(rank, slot.buffer)->content, content);
  ++taken_back_;
}

void RoundSimulation::Flush(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  journal_->OnFinish(rank);
  player.rounds->epoch_end().Finish();
  bool gives_up = false;
  while (!closing_ && !gives_up && !player.has_fallen_out &&
         !player.rounds->epoch_end().IsFlushed()) {
    bool moved = false;
    Advance(rank, &moved);
    gives_up = player.rounds->epoch_end().HasGivenUp();
    if (!gives_up && player.rounds->executed() > player.read) ReadAll(rank);
    const uint64_t given = given_;
    Serve(rank);
    player.fiber->Yield();
    player.leaves |= given_ > given && rng_.Percent(30);
    gives_up |= player.leaves;
  }
  if (closing_) return;
  if (player.rounds->epoch_end().dropped() > 0) journal_->OnDropped(rank);
  gave_up_ += gives_up ? 1 : 0;
  if (!player.has_fallen_out) ReadAll(rank);
  if (!gives_up) Meet(rank);
  if (gives_up && !player.leaves && !player.has_fallen_out) GoOnWithout(rank);
  if (closing_ || player.has_fallen_out) return;
  if (!player.leaves) journal_->OnEnd(rank, player.read);
  CheckHeld(rank);
  player.rounds->epoch_end().Leave();
  if (player.rounds->epoch_end().HaveAllLeft()) std::memset(player.place, 0x55, sizeof(RoundModel));
}

void RoundSimulation::GoOnWithout(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  while (!closing_ && !player.rounds->epoch_end().GoOnWithout()) {
    bool moved = false;
    Advance(rank, &moved);
    player.fiber->Yield();
  }
  if (closing_) return;
  if (player.rounds->epoch_end().dropped() > 0) journal_->OnDropped(rank);
  if (StateWord::Of(*memory_.StateAt()).settled()) journal_->OnSettled(rank);
  ReadAll(rank);
  Serve(rank);  // for those that come later
}

uint64_t RoundSimulation::Step(int32_t rank) {
  Rounds* rounds = players_[static_cast<size_t>(rank)].rounds.get();
  const uint64_t step = rounds->next_step();
  const Player& player = players_[static_cast<size_t>(rank)];
  if (player.skips_ahead && step <= player.read)
    journal_->Fail("9: rank " + std::to_string(rank) + " is late for ever");
  std::vector<std::byte> gradient(layout_.length_bytes());
  if (swarm_.empty_permille > 0 && rng_.Below(1000) < swarm_.empty_permille) {
    std::memset(rounds->open(), 0x55, gradient.size());
    ++empty_steps_;
    journal_->OnSkip(rank);
    return rounds->Skip();
  }
  RoundJournal::Fill(layout_, rank, step, gradient.data());
  CopyInHalves(rounds->open(), gradient.data(), gradient.size(), Stores::kCached);
  const double hypers[] = {1.0 / static_cast<double>(step), static_cast<double>(rank)};
  journal_->OnPublish(rank, step);
  const uint64_t awaited = rounds->Publish(hypers);
  if (!closing_ && rounds->step() != step) journal_->OnNotPublished(rank, step);
  return awaited;
}

void RoundSimulation::Advance(int32_t rank, bool* moved) {
  Rounds* rounds = players_[static_cast<size_t>(rank)].rounds.get();
  Hear(rounds);
  const uint64_t met = killed_ == 0 ? journal_->IsMet() : 0;
  const uint64_t expired = rounds->counters().expired;
  rounds->Advance(network_.clock().Now(), moved);
  if (closing_ || met == 0 || rounds->counters().expired == expired) return;
  const StateWord state = StateWord::Of(*memory_.StateAt());
  if (state.fired && state.version() == met)
    journal_->Fail("6: somebody has waited for a rank that is overdue, in version " +
                   std::to_string(met));
}

// Whether a rank that is waited for is too far behind for `version`.
bool RoundSimulation::IsStale(int32_t rank, uint64_t version) const {
  const bool counts = players_[static_cast<size_t>(rank)].known_dead_at == kNever &&
                      !MemberStatus{*memory_.MemberAt(rank)}.finished() &&
                      !Suspicion::Of(*memory_.SuspicionAt(rank)).overdue();
  const uint64_t step = SlotWord::Of(*memory_.SlotAt(rank)).step;
  return counts && swarm_.admission.staleness > 0 && step + swarm_.admission.staleness < version;
}

// Before a look: how long it has waited, at least, for each that has not gained on its limit since,
// nor may have in between.
void RoundSimulation::CountLaggards(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  const StateWord state = StateWord::Of(*memory_.StateAt());
  const Time now = network_.clock().Now();
  const bool goes_on = player.waits_for == state.version() && swarm_.max_wait != kNever;
  const Time since = goes_on ? std::min(now - player.looked_at, swarm_.max_wait / 4) : 0;
  // The version of its step may have ended since it asked: it waits for no later one.
  player.waits_for = state.version() <= player.rounds->step() ? state.version() : 0;
  player.looked_at = now;
  player.laggards.resize(players_.size());
  for (size_t r = 0; r < players_.size(); ++r) {
    Laggard& laggard = player.laggards[r];
    const uint64_t step = SlotWord::Of(*memory_.SlotAt(static_cast<int32_t>(r))).step;
    if (laggard.is_stale) laggard.waited += since;
    if (step > laggard.step + (laggard.is_stale ? 1 : 0)) laggard.waited = 0;
    laggard.step = step;
    laggard.is_stale = !state.fired && IsStale(static_cast<int32_t>(r), state.version());
  }
}

// After it: the ranks that held up the version all the time, for max_wait.
void RoundSimulation::CheckLaggards(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  const StateWord state = StateWord::Of(*memory_.StateAt());
  const bool waits = !state.fired && !state.settled() && state.version() == player.waits_for;
  for (size_t r = 0; r < players_.size(); ++r) {
    Laggard& laggard = player.laggards[r];
    laggard.is_stale &= waits && IsStale(static_cast<int32_t>(r), state.version());
    if (laggard.is_stale && swarm_.max_wait != kNever && laggard.waited >= swarm_.max_wait)
      journal_->Fail("11: rank " + std::to_string(rank) + " has waited for rank " +
                     std::to_string(r) + ", which is slow, for " + std::to_string(laggard.waited) +
                     " ns");
  }
}

void RoundSimulation::AwaitVersion(int32_t rank, uint64_t version) {
  Player& player = players_[static_cast<size_t>(rank)];
  while (!closing_ && player.rounds->executed() < version &&
         !player.rounds->epoch_end().IsLeftBehind()) {
    bool moved = false;
    CountLaggards(rank);
    Advance(rank, &moved);
    if (!closing_) CheckLaggards(rank);
    Serve(rank);
    if (!moved) player.fiber->Yield();
  }
}

void RoundSimulation::ReadAll(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  const uint64_t executed = player.rounds->executed();
  RoundRecord record;
  while (!closing_ && player.read < executed) {
    const uint64_t version = player.read + 1;
    const Found found = Read(rank, version, &record);
    if (found == Found::kNotYet && !closing_) journal_->Fail("1: an executed version is not there");
    if (found == Found::kGone) {
      ++gone_;
      player.has_fallen_out = !Recover(rank);
      if (player.has_fallen_out) return;
      continue;
    }
    journal_->OnRead(rank, version, player.data, record);
    if (record.header.leader >= 0 && record.hypers[1] != static_cast<double>(record.header.leader))
      journal_->Fail("2: the hyper-parameters are not the leader's");
    player.skips_ahead = swarm_.skips_ahead || record.missing[static_cast<size_t>(rank)] > 0;
    player.model.Apply(player.data);
    player.read = version;
    journal_->OnApplied(rank, version, player.model);
  }
}

// Copies, or holds it.
Found RoundSimulation::Read(int32_t rank, uint64_t version, RoundRecord* record) {
  Player& player = players_[static_cast<size_t>(rank)];
  if (!player.holds) return player.rounds->Read(version, SpansOf(&player.data), record);
  CheckHeld(rank);
  const std::byte* result = nullptr;
  player.held = nullptr;
  Found found = player.rounds->Hold(version, &result);
  if (found != Found::kYes) return found;
  player.held = result + memory_.record_bytes();
  std::memcpy(player.data.data(), player.held, player.data.size());
  if (!closing_) journal_->OnHeld(rank, version, player.data);
  found = player.rounds->Read(version, {}, record);
  CheckHeld(rank);
  return found;
}

// A result that a rank holds stays as it was.
void RoundSimulation::CheckHeld(int32_t rank) {
  const Player& player = players_[static_cast<size_t>(rank)];
  if (closing_ || player.held == nullptr) return;
  if (std::memcmp(player.held, player.data.data(), player.data.size()) != 0)
    journal_->Fail("12: what rank " + std::to_string(rank) + " holds of version " +
                   std::to_string(player.read) + " has changed");
}

std::vector<void*> RoundSimulation::SpansOf(std::vector<std::byte>* data) const {
  std::vector<void*> spans;
  for (size_t offset : layout_.offsets_bytes()) spans.push_back(data->data() + offset);
  return spans;
}

// Until all have applied everything, or it has waited for long.
void RoundSimulation::Meet(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  if (closing_ || player.has_fallen_out) return;
  player.rounds->epoch_end().Meet();
  const Time until = swarm_.max_wait == kNever ? kNever : network_.clock().Now() + kLongestMeeting;
  while (!closing_ && IsAnybodyThere(rank) && network_.clock().Now() < until) {
    Hear(player.rounds.get());
    if (player.rounds->epoch_end().Unmet().empty()) return;
    Serve(rank);
    player.fiber->Yield();
  }
}

// A rank that could give, and has seen one claim for long, does not wait for it any longer.
void RoundSimulation::CheckClaim(int32_t rank, Time looked_at) {
  Player& player = players_[static_cast<size_t>(rank)];
  const Ask ask = Ask::Of(*memory_.AskAt());
  const uint64_t claim = *memory_.ClaimAt();
  bool is_open = ask.number > 0 && ask.number == Claim::Of(claim).number &&
                 ask.version <= player.read &&
                 ask.version + memory_.log() >= player.read;  // one given for it is of use
  // Retracted or not: a rank that has seen it stand has settled the ask, until there is another.
  for (int32_t r = 0; r < swarm_.size; ++r) is_open &= *memory_.OfferAt(r) / 2 < ask.version;
  if (!is_open || player.claim != claim) {
    player.claim = is_open ? claim : 0;
    player.claim_since = kNever;
    return;
  }
  // It was claimed before the look that ends here: from then on its patience runs.
  if (player.claim_since == kNever) player.claim_since = looked_at;
  if (looked_at - player.claim_since < swarm_.snapshot_overdue) return;
  journal_->Fail("7: rank " + std::to_string(rank) + " waits for another one's snapshot");
}

// Gives a snapshot if it is this rank's turn. The model is that after all versions it has read.
void RoundSimulation::Serve(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  if (closing_) return;
  Snapshots& snapshots = player.rounds->snapshots();
  if (snapshots.IsStale(player.read)) snapshots.Retract();
  const Time now = network_.clock().Now();
  if (!player.rounds->IsAsked(player.read, now)) return CheckClaim(rank, now);
  if (rng_.Percent(50)) Stop(rank);
  const auto* bytes = reinterpret_cast<const std::byte*>(&player.model);
  const Snapshots::Part parts[] = {{bytes, 24}, {bytes + 24, sizeof(RoundModel) - 24}};
  in_snapshot_ = true;
  snapshots.Give(player.read, player.place, parts);
  in_snapshot_ = false;
  ++given_;
}

// False: no rank is there that could give a snapshot.
bool RoundSimulation::Recover(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  Rounds* rounds = player.rounds.get();
  while (!closing_) {
    const Offer offer = rounds->snapshots().Find(player.read, rounds->executed());
    if (offer.member < 0) {
      if (!rounds->epoch_end().FindDonors().any || !CanAnybodyGive(rank)) {
        CheckKept(rank);
        return false;
      }
      bool moved = false;
      Advance(rank, &moved);
      player.fiber->Yield();
      continue;
    }
    std::vector<std::byte> image(offer.length_bytes);
    in_snapshot_ = true;
    const bool taken = rounds->snapshots().Take(offer, image.data());
    in_snapshot_ = false;
    if (!taken) {
      ++retracted_;
      continue;
    }
    if (image.size() != sizeof(RoundModel) || offer.version <= player.read) {
      journal_->Fail("7: a snapshot that is none");
      return false;
    }
    std::memcpy(&player.model, image.data(), image.size());
    player.read = offer.version;
    rounds->OnSnapshot(offer.version);
    player.skips_ahead = swarm_.skips_ahead || Suspicion::Of(*memory_.SuspicionAt(rank)).overdue();
    journal_->OnApplied(rank, player.read, player.model);
    ++taken_;
    return true;
  }
  return false;
}

// One that stopped or died took nothing with it that others needed. But the last that has not
// finished goes on alone.
void RoundSimulation::CheckKept(int32_t rank) {
  uint64_t expired = 0;
  uint64_t ended = 0;
  int awaited = 0;  // a rank alone among finished ones runs ahead of them
  for (int32_t r = 0; r < swarm_.size; ++r) {
    const Player& player = players_[static_cast<size_t>(r)];
    expired += player.rounds->counters().expired;
    ended += player.fiber->done() || player.leaves ? 1 : 0;
    awaited += MemberStatus{*memory_.MemberAt(r)}.finished() ? 0 : 1;
  }
  const bool is_kept = swarm_.admission.staleness > 0 && expired == 0 && awaited >= 2;
  if (is_kept && ended == 0 && stopped_ + killed_ <= 1)
    journal_->Fail("10: rank " + std::to_string(rank) + " can go on from nobody's snapshot");
}

// But `rank`; perhaps in need of what it has.
bool RoundSimulation::IsAnybodyThere(int32_t rank) const {
  for (size_t r = 0; r < players_.size(); ++r) {
    const Player& other = players_[r];
    if (static_cast<int32_t>(r) == rank || other.has_fallen_out) continue;
    if (other.state == State::kRuns && !other.fiber->done()) return true;
  }
  return false;
}

bool RoundSimulation::CanAnybodyGive(int32_t to) const {
  for (size_t r = 0; r < players_.size(); ++r) {
    const Player& other = players_[r];
    if (static_cast<int32_t>(r) == to || other.has_fallen_out) continue;
    if (other.rounds->snapshots().NeedOf(static_cast<int32_t>(r)) % 2 == 1) continue;
    if (other.state == State::kRuns && !other.fiber->done()) return true;
  }
  return false;
}

void RoundSimulation::Hear(Rounds* rounds) {
  for (size_t r = 0; r < players_.size(); ++r)
    if (players_[r].known_dead_at <= network_.clock().Now())
      rounds->OnLoss(static_cast<int32_t>(r));
}

}  // namespace covey
