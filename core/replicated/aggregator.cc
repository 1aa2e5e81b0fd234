#include "core/replicated/aggregator.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/partial/collect.h"
#include "core/partial/log.h"
#include "core/partial/suspicion.h"

namespace covey {
namespace {

constexpr size_t kTileBytes = 64;  // of no content

// Adds a later contribution to an earlier one.
void Append(const Contribution& later, Contribution* to) {
  to->arrived = later.arrived;
  // partial-W11: an empty contribution only moves how far its member has come.
  if (later.count == 0) return;
  if (to->count == 0) to->first = later.first;
  to->last = later.last;
  to->count += later.count;
}

}  // namespace

Aggregator::Aggregator(const AdmissionRule& admission, const RoundMemory::Shape& shape,
                       const Kernels* kernels)
    : memory_(shape, RoundLayout({}, kTileBytes)),
      blocks_(&memory_),
      tiles_({.kernels = kernels}, &memory_, &words_) {
  for (int32_t i = 0; i < shape.size; ++i)
    members_.push_back({.arrivals = Arrivals(admission, &memory_, &words_)});
}

void Aggregator::set_grace(Time grace) {
  for (auto& member : members_) member.arrivals.set_grace(grace);
}

void Aggregator::Open(const ReplicatedLog& log) {
  is_open_ = true;
  consumed_ = log.consumed();
  if (const ReplicatedEntry* last = log.Find(log.executed())) {
    RoundRecord record;
    ReadRecord(memory_, last->body.data(), &record);
    final_ = record.header.final;
  }
  settled_ = log.settled();
  Rest(log.executed());
  for (int32_t i = 0; i < memory_.size(); ++i) {
    const auto missing = static_cast<uint32_t>(log.missing()[static_cast<size_t>(i)]);
    words_.Store(memory_.SuspicionAt(i), Suspicion{log.executed(), missing}.Word());
  }
}

void Aggregator::OnAppendResponse(int32_t member, const ReplicaMessage& state) {
  Member& m = members_[static_cast<size_t>(member)];
  if (state.tries != m.tries) m.arrivals.Restart();
  m.tries = state.tries;
  m.max_wait = state.max_wait;
  words_.Store(memory_.MemberAt(member), state.member_status);
  words_.Store(memory_.AppliedAt(member), state.applied);
  words_.Store(memory_.LeftAt(member, member), state.left ? 1 : 0);
}

uint64_t Aggregator::StatusOf(int32_t member) {
  if (words_.Load(memory_.LeftAt(member, member)) != 0) return kHasLeft;
  return words_.Load(memory_.MemberAt(member)) - (IsHeldUp(member) ? 1 : 0);
}

// The next version waits for a member that is held up, for max_wait, though it has finished.
void Aggregator::HoldUp(int32_t member, bool is_held_up) {
  const MemberStatus status{words_.Load(memory_.MemberAt(member))};
  // replicated-W21: a silent rank that has finished is missing, or finish() would not end.
  members_[static_cast<size_t>(member)].is_held_up = is_held_up && status.finished();
}

SlotWord Aggregator::SlotOf(int32_t member) {
  return SlotWord::Of(words_.Load(memory_.SlotAt(member)));
}

void Aggregator::SetSlot(int32_t member, SlotState state, uint32_t buffer, uint64_t step) {
  words_.Store(memory_.SlotAt(member), SlotWord{state, buffer, step}.Word());
}

// A member has two headers; the version under way uses one at most.
Contribution Aggregator::OnContribution(int32_t member, const ReplicaMessage& message) {
  const SlotWord slot = SlotOf(member);
  const bool is_published = slot.state == SlotState::kPublished;
  const uint32_t buffer = is_published ? slot.buffer : 1 - slot.buffer;
  Contribution* content = &memory_.Header(member, buffer)->content;
  if (!is_published) *content = {};
  // replicated-W7b: contributions of a committed version are not counted again.
  CHECK(message.content.first > consumed_[static_cast<size_t>(member)], "a step counts once");
  Append(message.content, content);
  if (message.content.count > 0)
    std::copy(message.hypers.begin(), message.hypers.end(),
              memory_.HeaderHypers(member, buffer).begin());
  SetSlot(member, SlotState::kPublished, buffer, content->arrived);
  return *content;
}

Contribution Aggregator::OnModel(int32_t member, const ReplicaMessage& message) {
  const SlotWord slot = SlotOf(member);
  const uint32_t buffer = slot.state == SlotState::kPublished ? slot.buffer : 1 - slot.buffer;
  memory_.Header(member, buffer)->content = message.content;
  std::ranges::copy(message.hypers, memory_.HeaderHypers(member, buffer).begin());
  SetSlot(member, StateOf(member, message.content.last), buffer, message.content.arrived);
  return message.content;
}

SlotState Aggregator::StateOf(int32_t member, uint64_t step) const {
  return step > consumed_[static_cast<size_t>(member)] ? SlotState::kPublished : SlotState::kTaken;
}

bool Aggregator::IsOffered(const SlotWord& slot) const {
  return slot.state == SlotState::kPublished ||
         (memory_.models().on() && slot.state == SlotState::kTaken);
}

// The contribution that the abandoned version had taken, and what has come since.
void Aggregator::Restore(int32_t member, uint32_t taken) {
  const SlotWord slot = SlotOf(member);
  if (memory_.models().on()) {
    if (slot.state != SlotState::kPublished)
      SetSlot(member, StateOf(member, slot.step), taken, slot.step);
    return;
  }
  if (slot.state != SlotState::kPublished)
    return SetSlot(member, SlotState::kPublished, taken, slot.step);
  Contribution content = memory_.Header(member, taken)->content;
  const Contribution& later = memory_.Header(member, slot.buffer)->content;
  Append(later, &content);
  if (later.count == 0)
    std::ranges::copy(memory_.HeaderHypers(member, taken),
                      memory_.HeaderHypers(member, slot.buffer).begin());
  memory_.Header(member, slot.buffer)->content = content;
}

Time Aggregator::WaitedAt(const std::vector<bool>& heard, Time now) {
  const StateWord state = StateWord::Of(words_.Load(memory_.StateAt()));
  Time first = kNever;
  for (int32_t i = 0; i < memory_.size(); ++i) {
    Member& member = members_[static_cast<size_t>(i)];
    if (!heard[static_cast<size_t>(i)]) continue;
    const MemberStatus status{words_.Load(memory_.MemberAt(i))};
    const WaitingRank waiter{
        .step = SlotOf(i).step, .finished = status.finished(), .max_wait = member.max_wait};
    // replicated-W8: an attempt at a version is a part of the wait for it.
    first = std::min(first, member.arrivals.WaitedAt(state.version(), waiter, now));
  }
  return first;
}

void Aggregator::Abandon(bool is_over) {
  const StateWord state = StateWord::Of(words_.Load(memory_.StateAt()));
  if (is_over) over_version_ = state.version();
  for (int32_t i = 0; i < memory_.size(); ++i) {
    const Inclusion& inclusion = inclusions_[static_cast<size_t>(i)];
    // replicated-W14: a contribution of an abandoned attempt is offered to the next.
    if (inclusion.decision == Decision::kIn) Restore(i, inclusion.buffer);
    words_.Store(memory_.InclusionAt(i), 0);
  }
  words_.Store(memory_.CursorAt(state.buffer), 0);
  words_.Store(memory_.DoneAt(state.buffer, 0), 0);
  Rest(state.executed);
}

// The last step of a member before the contribution that it cannot give now.
uint64_t Aggregator::LastCounted(int32_t member, const SlotWord& slot) {
  // Models replace each other: an older one is not missing.
  if (memory_.models().on()) return slot.step;
  const Contribution& content = memory_.Header(member, slot.buffer)->content;
  // replicated-W9: what cannot be given now is as old as its first step.
  return content.count > 0 ? content.first - 1 : slot.step;
}

std::optional<ReplicatedEntry> Aggregator::Fire(const Hearing& hearing, Time now, Time* until) {
  const StateWord state = StateWord::Of(words_.Load(memory_.StateAt()));
  if (state.fired) return std::nullopt;
  std::vector<uint64_t> steps;
  std::vector<std::pair<int32_t, SlotWord>> hidden;
  for (int32_t i = 0; i < memory_.size(); ++i) {
    const auto index = static_cast<size_t>(i);
    const SlotWord slot = SlotOf(i);
    steps.push_back(slot.step);
    const bool is_missing = !hearing.able[index] && !hearing.lost[index];
    // replicated-W21: a final mean waits for the last model of each rank that lives.
    HoldUp(i, is_missing && slot.state == SlotState::kPublished);
    // replicated-W13: a member that cannot give its content now is not in the version, and has not
    // arrived.
    if (hearing.able[index] || !IsOffered(slot)) continue;
    SetSlot(i, SlotState::kOpen, slot.buffer, LastCounted(i, slot));
    if (!hearing.lost[index]) hidden.emplace_back(i, slot);
  }
  for (int32_t i = 0; i < memory_.size(); ++i)
    words_.Store(memory_.MemberAt(i), words_.Load(memory_.MemberAt(i)) - (IsHeldUp(i) ? 1 : 0));
  std::optional<ReplicatedEntry> entry = FireOffered(state, hearing, steps, now, until);
  for (int32_t i = 0; i < memory_.size(); ++i)
    words_.Store(memory_.MemberAt(i), words_.Load(memory_.MemberAt(i)) + (IsHeldUp(i) ? 1 : 0));
  for (const auto& [member, slot] : hidden) SetSlot(member, slot.state, slot.buffer, slot.step);
  return entry;
}

std::optional<ReplicatedEntry> Aggregator::FireOffered(const StateWord& state,
                                                       const Hearing& hearing,
                                                       const std::vector<uint64_t>& steps, Time now,
                                                       Time* until) {
  const Arrivals::Answer answer = AskAll(state, hearing, steps, now);
  *until = std::min(*until, answer.at);
  if (answer.at > now) return std::nullopt;
  StateWord fired = state;
  fired.fired = true;
  // replicated-W8: a rank for which an attempt has waited for max_wait is overdue.
  fired.expired = answer.expired || (over_version_ == state.version() && !answer.final);
  fired.final = answer.final;
  words_.Store(memory_.StateAt(), fired.Word());
  return Make(fired, hearing.lost, now);
}

// The first of what those that are heard would answer, each by its own clock. All see the same
// members, which are counted once.
Arrivals::Answer Aggregator::AskAll(const StateWord& state, const Hearing& hearing,
                                    const std::vector<uint64_t>& steps, Time now) {
  Arrivals::Answer first;
  members_.front().arrivals.CountMembers(state.version(), hearing.lost, &count_);
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    const MemberStatus member_status{words_.Load(memory_.MemberAt(static_cast<int32_t>(i)))};
    // replicated-W8: the clock of a rank that the leader does not hear stands still.
    if (!hearing.heard[i]) continue;
    const WaitingRank waiter{.step = steps[i],
                             .finished = member_status.finished(),
                             .times = member_status.times(),
                             .max_wait = member.max_wait};
    // replicated-W8: each member waits by its own max_wait, as on one host.
    const Arrivals::Answer answer =
        member.arrivals.FireAt(state.version(), count_, hearing.lost, waiter, now);
    member.over = waiter.finished && member.arrivals.over() ? member.tries : 0;
    if (answer.at < first.at || (answer.at == first.at && first.expired)) first = answer;
  }
  return first;
}

ReplicatedEntry Aggregator::Make(const StateWord& state, const std::vector<bool>& lost, Time now) {
  CHECK(Collect(memory_, &words_, lost, state, &inclusions_), "the version is under way");
  Time until = kNever;
  while (tiles_.Work(state, inclusions_, nullptr, now, &until) != Tiles::Outcome::kDone) {
  }
  ReplicatedEntry entry{.version = state.version()};
  const std::byte* result = memory_.Result(state.buffer);
  entry.body = Bytes(result, result + memory_.record_bytes());
  RoundRecord record;
  ReadRecord(memory_, result, &record);
  consumed_after_ = consumed_;
  for (size_t i = 0; i < consumed_.size(); ++i)
    if (record.contributions[i].count > 0) consumed_after_[i] = record.contributions[i].last;
  entry.consumed = consumed_after_;
  entry.missing = record.missing;
  return entry;
}

void Aggregator::OnCommitted() {
  const StateWord state = StateWord::Of(words_.Load(memory_.StateAt()));
  UpdateSuspicion(memory_, &words_, state, inclusions_);
  consumed_ = consumed_after_;
  if (state.expired)
    for (Member& member : members_) member.arrivals.OnExpired(state.version());
  final_ = state.final;
  settled_ = 0;
  Rest(state.version());
}

// No version is under way.
void Aggregator::Rest(uint64_t executed) {
  StateWord state{.executed = executed, .final = final_};
  // replicated-W26: the last version is settled: none is made without those that have gone on.
  if (settled_ > 0) state.expired = state.final = true;
  state.times = static_cast<uint32_t>(settled_ % (uint64_t{1} << StateWord::kTimesBits));
  words_.Store(memory_.StateAt(), state.Word());
}

void Aggregator::Settle(uint64_t times) {
  settled_ = times;
  Rest(StateWord::Of(words_.Load(memory_.StateAt())).executed);
}

uint64_t Aggregator::DropLate(int32_t member) {
  const SlotWord slot = SlotOf(member);
  if (memory_.models().on() || slot.state != SlotState::kPublished) return 0;
  SetSlot(member, SlotState::kOpen, slot.buffer, slot.step);
  return slot.step;
}

bool Aggregator::IsQuiet(const std::vector<bool>& lost) {
  const StateWord state = StateWord::Of(words_.Load(memory_.StateAt()));
  bool quiet = is_open_ && !state.fired;
  // partial-W8c: after the settled version no other is made of what is published.
  if (state.settled()) return quiet;
  // partial-W8b: models end with a final version.
  if (memory_.models().on()) quiet &= final_;
  for (int32_t i = 0; i < memory_.size(); ++i)
    quiet &= lost[static_cast<size_t>(i)] || SlotOf(i).state != SlotState::kPublished;
  return quiet;
}

}  // namespace covey
