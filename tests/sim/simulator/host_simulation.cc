#include "tests/sim/simulator/host_simulation.h"

#include <algorithm>
#include <utility>

#include "core/replicated/quorum.h"
#include "tests/sim/simulator/host_stage.h"

namespace covey {
namespace {

constexpr uint64_t kMostTurns = 400'000;  // for each rank
constexpr Time kLongestTurn = 20 * kMicrosecond;
constexpr Time kGracesOfCuts = 60;

RoundSwarm Drawn(Rng* rng, int32_t size) {
  RoundSwarm swarm = RoundSwarm::Draw(rng, 0);
  if (rng->Percent(50)) swarm.log = 1000;
  // Larger ones too, odd and prime.
  if (size == 0) size = swarm.size + (rng->Percent(15) ? static_cast<int32_t>(rng->Below(10)) : 0);
  swarm.size = size;
  swarm.steps.resize(static_cast<size_t>(size), swarm.steps[0]);
  // As in the draw, for so many.
  const bool needs_all = swarm.admission.warmup > 0;
  if ((needs_all || swarm.admission.Wanted(size) > 1) && swarm.max_wait == kNever)
    swarm.most_stopped = 0;
  return swarm;
}

// As ranks that average models have it.
RoundSwarm WithModels(RoundSwarm swarm, Rng rng) {
  for (RoundSpan& span : swarm.spans) span.dtype = rng.Percent(50) ? DType::kF32 : DType::kF64;
  swarm.admission.staleness = 0;
  swarm.empty_permille = 0;
  // Versions of all wait for all.
  if (swarm.max_wait == kNever) swarm.most_stopped = 0;
  return swarm;
}

// `apart`: so that seeds of before mean what they did.
ModelRule DrawRule(const RoundSwarm& swarm, const std::vector<int32_t>& hosts, Rng rng, Rng apart) {
  const auto size = static_cast<uint64_t>(swarm.size);
  const auto drawn = static_cast<int32_t>(1 + rng.Below(size));
  return {.group_size = rng.Percent(30) ? (swarm.size + 1) / 2 : drawn,
          .sync_every = rng.Percent(20) ? 1000 : 1 + rng.Below(6),
          .ending = swarm.admission.ending,
          .hosts = hosts,
          .cross_every = apart.Percent(50) ? 1 : static_cast<int64_t>(2 + apart.Below(3))};
}

// Which rank lies on which host: each on its own, all on one, or any.
std::vector<int32_t> DrawHosts(Rng rng, int32_t size) {
  std::vector<int32_t> hosts;
  const uint64_t most = 1 + rng.Below(rng.Percent(50) ? 3 : static_cast<uint64_t>(size));
  const bool are_apart = rng.Percent(30);
  for (int32_t r = 0; r < size; ++r)
    hosts.push_back(are_apart ? r : static_cast<int32_t>(rng.Below(most)));
  return hosts;
}

}  // namespace

HostSimulation::HostSimulation(uint64_t seed, int32_t size, bool has_models, bool has_witness)
    : rng_(seed),
      swarm_(has_models ? WithModels(Drawn(&rng_, size), Rng(seed * 7 + 3)) : Drawn(&rng_, size)),
      hosts_(DrawHosts(Rng(seed * 3 + 1), swarm_.size)),
      rule_(has_models ? DrawRule(swarm_, hosts_, Rng(seed * 7 + 4), Rng(seed * 11 + 5))
                       : ModelRule{}),
      layout_(swarm_.spans, 64),
      geometry_({.size = swarm_.size, .log = swarm_.log, .hypers = 2, .models = rule_}, layout_),
      journal_(&geometry_, swarm_.admission),
      has_storms_(rng_.Percent(30)),
      grace_(static_cast<Time>(has_storms_ ? 50 + rng_.Below(200) : 200 + rng_.Below(2000)) *
             kMicrosecond),
      longest_delay_(static_cast<Time>(1 + rng_.Below(has_storms_ ? 800 : 200)) * kMicrosecond),
      slow_replicas_(rng_.Percent(20) ? rng_.Next() & rng_.Next() : 0),
      clog_permille_(rng_.Percent(40) ? 1 + rng_.Below(20) : 0),
      leaves_permille_(rng_.Percent(60) ? 1 + rng_.Below(300) : 0),
      longest_linger_(rng_.Percent(25) ? 0 : static_cast<Time>(rng_.Below(30)) * grace_),
      reads_late_(Rng(~seed).Percent(30)),
      has_users_of_c_(rng_.Percent(50)),
      losses_percent_(rng_.Percent(30) ? 60 : 5),
      players_(static_cast<size_t>(swarm_.size)),
      links_(players_.size() * players_.size()),
      cut_(DrawCut(Rng(seed * 5 + 2))) {
  if (has_witness) {
    split_ = DrawSplit(Rng(seed * 13 + 6));
    witness_ = std::make_unique<HostWitness>(Rng(seed * 17 + 7), players_.size(), now_,
                                             kGracesOfCuts * grace_, longest_delay_);
  }
  Rng apart(seed * 19 + 8);
  const bool is_any_to_go_on = apart.Percent(50);
  for (int32_t r = 0; r < swarm_.size; ++r) {
    Player& player = players_[static_cast<size_t>(r)];
    player.told.resize(players_.size());
    player.meets = !has_users_of_c_ || rng_.Percent(30);
    player.settles = is_any_to_go_on && apart.Percent(70);
    player.replica = std::make_unique<Replica>(
        Replica::Options{.self = r,
                         .admission = swarm_.admission,
                         .max_wait = swarm_.max_wait,
                         .skips_ahead = swarm_.skips_ahead,
                         .election_timeout = grace_,
                         .kernels = &ScalarKernels(),
                         .hosts = hosts_,
                         .limits = {.least_bytes = 64, .most_bytes = 128},
                         .has_witness = has_witness},
        RoundMemory::Shape{.size = swarm_.size, .log = swarm_.log, .hypers = 2, .models = rule_},
        layout_);
  }
}

HostSimulation::Cut HostSimulation::DrawCut(Rng rng) const {
  if (players_.size() < 2 || rng.Percent(60)) return {};
  Cut cut{.from = rng.Below(players_.size()), .both_ways = rng.Percent(50)};
  cut.to = (cut.from + 1 + rng.Below(players_.size() - 1)) % players_.size();
  cut.begin = now_ + static_cast<Time>(rng.Below(static_cast<uint64_t>(20 * grace_)));
  cut.end = cut.begin + static_cast<Time>(rng.Below(static_cast<uint64_t>(60 * grace_)));
  return cut;
}

HostSimulation::Split HostSimulation::DrawSplit(Rng rng) const {
  if (rng.Percent(30)) return {};
  // Half of them, or any.
  uint64_t side = 0;
  const size_t half = players_.size() / 2;
  for (size_t left = rng.Percent(80) ? half : 1 + rng.Below(players_.size() - 1); left > 0;) {
    const uint64_t bit = uint64_t{1} << rng.Below(players_.size());
    if ((side & bit) == 0) --left;
    side |= bit;
  }
  Split split{.side = side, .to_it = rng.Percent(75)};
  split.from_it = !split.to_it || rng.Percent(70);
  const auto length = static_cast<uint64_t>(kGracesOfCuts * grace_);
  split.begin = now_ + static_cast<Time>(rng.Below(length / 2));
  split.end = split.begin + static_cast<Time>(rng.Below(length));
  return split;
}

// 0: the link is there.
Time HostSimulation::CutUntil(int32_t from, int32_t to) const {
  const bool is_out = (split_.side >> from & 1) != 0, is_in = (split_.side >> to & 1) != 0;
  const bool is_split = is_out != is_in && (is_in ? split_.to_it : split_.from_it);
  if (is_split && split_.begin <= now_ && now_ < split_.end) return split_.end;
  const auto a = static_cast<size_t>(from), b = static_cast<size_t>(to);
  const bool is_it =
      (a == cut_.from && b == cut_.to) || (cut_.both_ways && a == cut_.to && b == cut_.from);
  return is_it && cut_.begin <= now_ && now_ < cut_.end ? cut_.end : 0;
}

// ---- Faults of ranks ----------------------------------------------------------------------------

// Whether a quorum of replicas is left without it.
bool HostSimulation::CanSpare(int32_t rank, bool leaves) const {
  std::vector<bool> in;
  std::vector<bool> lost;
  for (size_t r = 0; r < players_.size(); ++r) {
    const Player& player = players_[r];
    const bool is_it = static_cast<int32_t>(r) == rank;
    in.push_back(player.state == State::kRuns && !player.leaves && !is_it);
    lost.push_back(player.state == State::kKilled || player.leaves || (is_it && leaves));
  }
  if (std::count(in.begin(), in.end(), true) == 0) return false;
  if (witness_ == nullptr) return IsQuorum(in, lost);
  // Some of those left have all versions, and what the witness has accepted, or will have.
  bool is_known = false;
  for (size_t r = 0; r < players_.size(); ++r) {
    const ReplicatedLog& log = players_[r].replica->log();
    is_known |= in[r] && journal_.HasAll(log) &&
                Progress::IsUpToDate(witness_->record().accepted, log.progress());
  }
  return is_known && !witness_->HasRequestOf(rank) &&
         IsQuorum(in, lost, witness_->may_be_gone() ? Half::kMissing : Half::kWithThem);
}

void HostSimulation::Strike() {
  const size_t victim = rng_.Below(players_.size());
  const auto rank = static_cast<int32_t>(victim);
  Player& player = players_[victim];
  if (player.state != State::kRuns) return;
  if (rng_.Below(1000) < swarm_.stops_permille && stops_ < kMostStops) {
    ++stops_;
    player.stopped_until = now_ + static_cast<Time>(rng_.Below(uint64_t{kLongestStop}));
  }
  if (rng_.Below(1000) >= swarm_.strikes_permille || !CanSpare(rank, false)) return;
  if (player.leaves) return;
  if (stopped_ < swarm_.most_stopped) {
    ++stopped_;
    player.state = State::kStopped;
  } else if (killed_ < swarm_.most_killed) {
    Kill(rank);
  }
}

void HostSimulation::Kill(int32_t rank) {
  ++killed_;
  journal_.OnKill(rank);
  players_[static_cast<size_t>(rank)].state = State::kKilled;
  players_[static_cast<size_t>(rank)].unsent.clear();
  NoteFewer(rank);
}

bool HostSimulation::AllHaveEnded() const {
  return std::all_of(players_.begin(), players_.end(), [](const Player& p) {
    return p.state != State::kRuns || p.phase == Phase::kDone;
  });
}

HostVerdict HostSimulation::Run() {
  const uint64_t most_turns = kMostTurns * players_.size();
  uint64_t turns = 0;
  for (; !AllHaveEnded() && journal_.failure().empty() && turns < most_turns; ++turns) {
    Strike();
    now_ += static_cast<Time>(rng_.Below(uint64_t{kLongestTurn}));
    const size_t r = rng_.Below(players_.size());
    Player& player = players_[r];
    if (player.state != State::kRuns || player.stopped_until > now_) continue;
    if ((slow_replicas_ >> r & 1) != 0 && !rng_.Percent(10)) continue;
    Act(static_cast<int32_t>(r));
  }
  if (turns == most_turns)
    journal_.Fail("4: somebody who runs waits for ever after version " +
                  std::to_string(versions()));
  CheckEnd();
  return Verdict(turns);
}

void HostSimulation::CheckEnd() {
  for (int32_t r = 0; r < swarm_.size && journal_.failure().empty(); ++r) {
    const Player& player = players_[static_cast<size_t>(r)];
    // A rank that lacks entries does not know which steps count; none of its own will.
    const bool lacks_committed = player.lacks_committed || player.replica->Lacking().last > 0;
    if (player.state != State::kKilled && !lacks_committed)
      journal_.CheckRank(r, player.replica->pending().contents(), player.is_flushed);
  }
}

HostVerdict HostSimulation::Verdict(uint64_t turns) const {
  uint64_t adopted = 0;
  uint64_t abandoned = 0;
  for (const Player& player : players_) {
    adopted += player.replica->adopted();
    abandoned += player.replica->abandoned();
  }
  return {.failure = journal_.failure(),
          .swarm = swarm_.ToString() + ", election_timeout " + std::to_string(grace_) +
                   " ns, delays " + std::to_string(longest_delay_) + " ns",
          .hash = journal_.hash() * 31 + turns,
          .versions = journal_.versions(),
          .late = journal_.late(),
          .merged = journal_.merged(),
          .stopped = stopped_,
          .killed = killed_,
          .expired = journal_.expired(),
          .overdue = journal_.overdue(),
          .returned = journal_.returned(),
          .gave_up = gave_up_,
          .terms = terms_.size(),
          .elections = elections_.size(),
          .skipped = skipped_,
          .taken = taken_,
          .empty_steps = empty_steps_,
          .adopted = adopted,
          .abandoned = abandoned,
          .by_hub = by_hub_,
          .left = left_,
          .lacking = lacking_,
          .settled = settled_,
          .rejoined = rejoined_,
          .dropped = dropped_,
          .witness_votes = witness_ == nullptr ? 0 : witness_->votes(),
          .witness_acceptances = witness_ == nullptr ? 0 : witness_->acceptances()};
}

// ---- Actions of ranks ---------------------------------------------------------------------------

// One turn of its engine, and perhaps of its trainer.
void HostSimulation::Act(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  Send(rank);
  if (!player.unsent.empty()) return;
  if (player.replica->has_departed()) {
    player.state = State::kLeft;
    ++left_;
    return;
  }
  HearOfLosses(rank);
  for (uint64_t messages = rng_.Below(has_storms_ ? 3 : 8); messages > 0; --messages) Deliver(rank);
  if (witness_ != nullptr) CallWitness(rank);
  player.replica->Advance(now_);
  NoteDropped(rank);
  if (witness_ != nullptr) CallWitness(rank);
  Check(rank);
  const bool slow = (swarm_.slow_ranks >> rank & 1) != 0 && !rng_.Percent(3);
  if (!slow && rng_.Percent(50)) Train(rank);
  for (EncodedMessage& message : player.replica->TakeMessages())
    player.unsent.push_back(std::move(message));
  if (player.replica->has_departed() && rng_.Percent(30)) DropUnsent(&player);
  Send(rank);
  if (player.replica->term() > player.term) terms_.insert(player.replica->term());
  player.term = player.replica->term();
  if (player.replica->leads() && player.term > 1) elections_.insert(player.term);
}

void HostSimulation::CallWitness(int32_t rank) {
  Replica& replica = *players_[static_cast<size_t>(rank)].replica;
  for (WitnessAnswer answer; witness_->Receive(rank, now_, &answer);)
    replica.OnWitness(answer, now_);
  if (std::optional<WitnessRequest> request = replica.TakeWitnessRequest())
    witness_->Send(rank, *std::move(request), now_);
}

// A rank that is stopped here has sent some of its messages.
void HostSimulation::Send(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  while (!player.unsent.empty()) {
    if (rng_.Percent(2)) return;
    EncodedMessage message = std::move(player.unsent.front());
    player.unsent.pop_front();
    std::deque<Mail>& link = LinkOf(rank, message.to);
    Time arrives = now_ + static_cast<Time>(rng_.Below(static_cast<uint64_t>(longest_delay_)));
    arrives = std::max(arrives, CutUntil(rank, message.to));
    if (rng_.Below(1000) < clog_permille_)
      arrives += static_cast<Time>(rng_.Below(static_cast<uint64_t>(3 * grace_)));
    if (!link.empty()) arrives = std::max(arrives, link.back().arrives);
    link.push_back({arrives, std::move(message)});
  }
}

// Delivers a message to `rank`, from a sender drawn among those that have sent one.
void HostSimulation::Deliver(int32_t rank) {
  const auto first = static_cast<int32_t>(rng_.Below(players_.size()));
  for (int32_t i = 0; i < swarm_.size; ++i) {
    const int32_t from = (first + i) % swarm_.size;
    std::deque<Mail>& link = LinkOf(from, rank);
    if (link.empty() || link.front().arrives > now_) continue;
    Bytes bytes = link.front().message.Whole();
    link.pop_front();
    return players_[static_cast<size_t>(rank)].replica->OnMessage(from, std::move(bytes), now_);
  }
}

// To peers that take nothing goes its kLeave alone (core/replicated/fragmenter.h).
void HostSimulation::DropUnsent(Player* player) {
  std::erase_if(player->unsent, [](const EncodedMessage& message) { return !message.is_leave; });
}

// Of a death a rank hears after the last message.
void HostSimulation::HearOfLosses(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  for (size_t r = 0; r < players_.size(); ++r) {
    const bool is_gone = players_[r].state == State::kKilled || players_[r].state == State::kLeft;
    if (!is_gone || player.told[r]) continue;
    if (!LinkOf(static_cast<int32_t>(r), rank).empty() || !rng_.Percent(losses_percent_)) continue;
    player.told[r] = true;
    player.replica->OnLoss(static_cast<int32_t>(r));
  }
}

// The versions it knows to be committed, before any other rank does anything.
void HostSimulation::Check(int32_t rank) {
  Player& player = players_[static_cast<size_t>(rank)];
  while (player.checked < player.replica->executed()) {
    const ReplicatedEntry* entry = player.replica->log().Find(++player.checked);
    if (entry == nullptr) continue;
    journal_.OnCommitted(rank, *entry);
    by_hub_ += entry->hub == rank ? 1 : 0;
  }
}

HostVerdict RunHosts(uint64_t seed, int32_t size) { return HostSimulation(seed, size).Run(); }

HostVerdict RunHostsWithWitness(uint64_t seed) {
  constexpr int32_t kSizes[] = {2, 2, 2, 2, 4, 4, 4, 4, 4, 6};
  return HostSimulation(seed, kSizes[seed % std::size(kSizes)], false, true).Run();
}

}  // namespace covey
