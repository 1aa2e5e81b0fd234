#include "core/replicated/aggregator.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/partial/collect.h"
#include "core/partial/log.h"
#include "core/partial/suspicion.h"

namespace covey {

Aggregator::Aggregator(const Options& options, const RoundMemory::Shape& shape,
                       const RoundLayout& layout)
    : memory_(shape, layout),
      blocks_(&memory_),
      tiles_({.average = options.average, .kernels = options.kernels}, &memory_, &words_) {
  for (int32_t i = 0; i < shape.size; ++i)
    members_.push_back({.slot = Slot(i, &memory_, &words_, options.kernels),
                        .arrivals = Arrivals(options.admission, &memory_, &words_)});
}

void Aggregator::set_grace(Time grace) {
  for (auto& member : members_) member.arrivals.set_grace(grace);
}

void Aggregator::Open(const ReplicatedLog& log) {
  is_open_ = true;
  consumed_ = log.consumed();
  words_.Store(memory_.StateAt(), StateWord{.executed = log.executed()}.Word());
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
  return words_.Load(memory_.MemberAt(member));
}

Contribution Aggregator::OnContribution(int32_t member, const ReplicaMessage& message) {
  Slot& slot = members_[static_cast<size_t>(member)].slot;
  const Contribution& contribution = message.content;
  const SlotWord before = slot.offered();
  const bool is_added = before.state == SlotState::kPublished &&
                        memory_.Header(member, before.buffer)->content.count > 0;
  // replicated-W7b: contributions of a committed version are not counted again.
  CHECK(contribution.first > consumed_[static_cast<size_t>(member)], "a step counts once");
  if (contribution.count > 0) {
    std::memcpy(slot.open(), message.body.data(), memory_.layout().length_bytes());
    slot.Publish(contribution.last, message.hypers);
    Contribution* content = &memory_.Header(member, slot.offered().buffer)->content;
    if (!is_added) content->first = contribution.first;
    content->count = is_added ? content->count + contribution.count - 1 : contribution.count;
  }
  if (contribution.count == 0 || contribution.arrived > contribution.last)
    slot.Skip(contribution.arrived);
  return memory_.Header(member, slot.offered().buffer)->content;
}

std::optional<ReplicatedEntry> Aggregator::Fire(const std::vector<bool>& lost,
                                                const std::vector<bool>& heard, Time now,
                                                Time* until) {
  StateWord state = StateWord::Of(words_.Load(memory_.StateAt()));
  if (state.fired) return std::nullopt;
  const Arrivals::Answer answer = AskAll(state, lost, heard, now);
  *until = std::min(*until, answer.at);
  if (answer.at > now) return std::nullopt;
  state.fired = true;
  state.expired = answer.expired;
  words_.Store(memory_.StateAt(), state.Word());
  if (state.expired)
    for (Member& member : members_) member.arrivals.OnExpired(state.version());
  return Make(state, lost, now);
}

// The first of what those that are heard would answer, each by its own clock.
Arrivals::Answer Aggregator::AskAll(const StateWord& state, const std::vector<bool>& lost,
                                    const std::vector<bool>& heard, Time now) {
  Arrivals::Answer first;
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    const MemberStatus member_status{words_.Load(memory_.MemberAt(static_cast<int32_t>(i)))};
    // replicated-W8: the clock of a rank that the leader does not hear stands still.
    if (lost[i] || !heard[i]) continue;
    const WaitingRank waiter{.step = member.slot.offered().step,
                             .finished = member_status.finished(),
                             .max_wait = member.max_wait};
    // replicated-W8: each member waits by its own max_wait, as on one host.
    const Arrivals::Answer answer = member.arrivals.FireAt(state.version(), lost, waiter, now);
    member.over = member.arrivals.over() ? member.tries : 0;
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
  entry.body.assign(result, result + memory_.record_bytes() + memory_.layout().length_bytes());
  RoundRecord record;
  ReadRecord(memory_, result, &record);
  for (size_t i = 0; i < consumed_.size(); ++i)
    if (record.contributions[i].count > 0) consumed_[i] = record.contributions[i].last;
  entry.consumed = consumed_;
  entry.missing = record.missing;
  return entry;
}

void Aggregator::OnCommitted() {
  const StateWord state = StateWord::Of(words_.Load(memory_.StateAt()));
  UpdateSuspicion(memory_, &words_, state, inclusions_);
  words_.Store(memory_.StateAt(), StateWord{.executed = state.version()}.Word());
}

bool Aggregator::IsQuiet() {
  bool quiet = is_open_ && !StateWord::Of(words_.Load(memory_.StateAt())).fired;
  for (const Member& member : members_)
    quiet &= member.slot.offered().state != SlotState::kPublished;
  return quiet;
}

}  // namespace covey
