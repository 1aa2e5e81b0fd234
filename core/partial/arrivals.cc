#include "core/partial/arrivals.h"

#include <algorithm>
#include <utility>

namespace covey {
namespace {

// At most this part of max_wait counts between two looks of a waiter: it was stopped.
constexpr Time kLooks = 4;
// One part in so many of the elapsed time is subtracted from a lagging member's sum.
constexpr Time kForgiven = 12;

}  // namespace

int32_t AdmissionRule::Wanted(int32_t active) const {
  if (count > 0) return std::min(count, active);
  return std::max(1, (active * permille + 999) / 1000);
}

bool AdmissionRule::IsMet(const std::vector<Counted>& counted, uint64_t version) const {
  // partial-W4a: one of the drawn members suffices.
  if (drawn > 0) return HasOneDrawnArrived(counted, drawn, seed, version);
  const auto arrived =
      std::count_if(counted.begin(), counted.end(), [](const Counted& one) { return one.arrived; });
  return arrived >= Wanted(static_cast<int32_t>(counted.size()));
}

Arrivals::Answer Arrivals::FireAt(uint64_t version, const Count& count,
                                  const std::vector<bool>& lost, const WaitingRank& waiter,
                                  Time now) {
  NoteLags(count);
  FindLaggards(version, count, now);
  over_ = false;
  bool any = false;
  // partial-W8c: once others have settled the last version, no other is made without them.
  if (HasEnded(lost, &any)) return Rest(version, waiter, any, now);
  // partial-W8b: all have finished: published contributions make one more version, of models the
  // final one.
  if (count.active == 0 && !count.others) {
    const bool has_models = memory_->models().on();
    if (has_models ? IsLeft(count, version) : count.published)
      return {.at = now, .final = has_models};
    // partial-W8: a member that has ended its finish() ahead (partial-W8b) may be away since.
    return waiter.times > count.least_times ? Rest(version, waiter, false, now) : Answer{};
  }
  // partial-W8a: only overdue members are left: the first of them that arrives is enough.
  if (count.active == 0 && count.others_arrived) return {.at = now};
  if (count.active > 0 && count.arrived == count.active) {
    const bool waits = count.coming && MayEndWith(version);
    return {.at = waits ? MetAt(version, now) + std::min(patience_, waiter.max_wait) : now};
  }
  Answer answer;
  if (count.is_met) {
    // partial-W4: every waiter fires, not the k-th alone: that one may have been stopped.
    answer.at = MetAt(version, now) + RuleOf(version).grace;
  }
  // partial-W8: only a rank that has arrived, or finished, fires when its max_wait is over.
  if (!waiter.finished && waiter.step < version) return answer;
  const Time over_at = OverAt(version, waiter, now);
  const bool is_left = IsLeft(count, version);
  over_ = waiter.finished && over_at <= now && !is_left;
  if (waiter.finished && over_at <= now && is_left) swept_version_ = version;
  if (over_ || over_at >= answer.at) return answer;
  const bool expired = answer.at == kNever;
  return {.at = over_at,
          .expired = expired,
          .final = expired && waiter.finished && memory_->models().on()};
}

// Since when so many have come as it wants.
Time Arrivals::MetAt(uint64_t version, Time now) {
  if (std::exchange(met_version_, version) != version) met_at_ = now;
  return met_at_;
}

AdmissionRule Arrivals::RuleOf(uint64_t version) const {
  const ModelRule& models = memory_->models();
  // partial-W4a: a version of the warm-up waits for all that are waited for.
  if (version <= rule_.warmup) return {};
  // partial-W4a: a version that may end the rounds waits for all, so the next method starts with
  // all.
  if (MayEndWith(version)) return {};
  // partial-W12: versions of all wait for all, those at the end too.
  return models.on() && models.IsSync(version) ? AdmissionRule{} : rule_;
}

// Whether there is something that is to be in a version yet before a member gives up in finish().
// Contributions of members that have not finished are taken once: a member that keeps publishing
// would else hold up finish() for ever.
bool Arrivals::IsLeft(const Count& count, uint64_t version) const {
  if (count.published_finished) return true;
  // partial-W8b: models end with a final version, or each rank would end with its own mean.
  if (memory_->models().on()) return !count.final;
  // partial-W8b: contributions of unfinished ranks are taken once before finish() gives up.
  return count.published && (swept_version_ == 0 || swept_version_ == version);
}

bool Arrivals::HasEnded(const std::vector<bool>& lost, bool* any) const {
  const StateWord state = StateWord::Of(words_->Load(memory_->StateAt()));
  if (!state.settled()) return false;
  bool goes_on = false;
  *any = false;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const MemberStatus status{words_->Load(memory_->MemberAt(i))};
    const int32_t since = state.Since(status.times());
    if (lost[static_cast<size_t>(i)] || since < 0) continue;
    goes_on |= since > 0 || !status.finished();
    *any |= words_->Load(memory_->LeftAt(i, i)) == 0;
  }
  return !goes_on;
}

// A member that has finished waits on for the missing, one that trains for those that may train on.
Arrivals::Answer Arrivals::Rest(uint64_t version, const WaitingRank& waiter, bool any, Time now) {
  const bool waits = waiter.finished || any;
  const Time over_at = waits ? OverAt(version, waiter, now) : now;
  over_ = over_at <= now;
  return {.at = over_ ? kNever : over_at};
}

// partial-W10b: whether two members can go on without a snapshot, if there are two: else all depend
// on one that may stop. Without a limit on staleness no rank is waited for.
bool Arrivals::IsCovered(const Count& count) const {
  return rule_.staleness == 0 || count.active < 2 || count.covered >= 2;
}

void Arrivals::CountMembers(uint64_t version, const std::vector<bool>& lost, Count* of) const {
  Count& count = *of;
  count = {.counted = std::move(count.counted), .lags = std::move(count.lags)};
  const StateWord state = StateWord::Of(words_->Load(memory_->StateAt()));
  count.final = state.final;
  count.counted.clear();
  count.lags.assign(rule_.staleness > 0 ? lost.size() : 0, Lag::kNone);
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const MemberStatus status{words_->Load(memory_->MemberAt(i))};
    const SlotWord slot = SlotWord::Of(words_->Load(memory_->SlotAt(i)));
    const bool published = slot.state == SlotState::kPublished;
    count.published |= published;
    count.published_finished |= published && status.finished();
    // partial-W14: a dead member is neither counted nor wanted.
    if (lost[static_cast<size_t>(i)]) continue;
    count.least_times = std::min(count.least_times, status.times());
    // Before its step it had applied all up to the one before, and perhaps more.
    const uint64_t next = std::max(words_->Load(memory_->AppliedAt(i)) + 1, slot.step);
    const bool keeps = next + memory_->log() > version;
    if (status.finished()) {
      count.covered += keeps && words_->Load(memory_->LeftAt(i, i)) == 0 ? 1 : 0;
      continue;
    }
    const bool offered = published || (memory_->models().on() && slot.state == SlotState::kTaken);
    // partial-W4: older content travels, but its owner has not arrived at this version.
    const bool arrived = offered && slot.step >= version;
    // partial-W8a: an overdue member is not waited for: else it costs max_wait in every version.
    if (Suspicion::Of(words_->Load(memory_->SuspicionAt(i))).overdue()) {
      count.others = true;
      count.others_arrived |= arrived;
      count.coming |= !arrived && next >= version;
      continue;
    }
    count.counted.push_back({.member = i, .arrived = arrived});
    ++count.active;
    count.arrived += arrived ? 1 : 0;
    count.covered += keeps ? 1 : 0;
    if (rule_.staleness == 0) continue;
    const bool is_stale = slot.step + rule_.staleness < version;
    if (is_stale) count.lags[static_cast<size_t>(i)] = Lag::kStale;
    if (slot.step + rule_.staleness > version) count.lags[static_cast<size_t>(i)] = Lag::kEarly;
    // partial-W9: a member that is more than `staleness` behind holds up the version.
    count.stale |= is_stale;
  }
  const AdmissionRule rule = RuleOf(version);
  const bool may_do = count.active > count.arrived && !count.stale && IsCovered(count);
  // partial-W4a: the rule is met by drawn members only, if it draws.
  count.is_met = may_do && rule.IsMet(count.counted, version);
}

// The members that are too far behind, and those that were at the look before.
void Arrivals::NoteLags(const Count& count) {
  if (!count.stale && laggards_.empty()) return;
  laggards_.resize(static_cast<size_t>(memory_->size()));
  bool any = false;
  for (size_t i = 0; i < laggards_.size(); ++i) {
    Laggard& laggard = laggards_[i];
    laggard = {.was_stale = laggard.is_stale, .waited = laggard.waited};
    if (!count.lags.empty() && count.lags[i] == Lag::kStale) laggard.is_stale = true;
    if (!count.lags.empty() && count.lags[i] == Lag::kEarly) laggard.waited = 0;
    any |= laggard != Laggard{};
  }
  if (!any) laggards_.clear();
}

// Models: the members that hold up a version of all in which half have come, the first that have
// among them.
void Arrivals::FindLaggards(uint64_t version, const Count& count, Time now) {
  const bool is_half = 2 * count.arrived >= count.active;
  if (!memory_->models().on() || !memory_->models().IsSync(version) || !is_half) return;
  const bool is_first = std::exchange(half_version_, version) != version;
  laggards_.resize(static_cast<size_t>(memory_->size()));
  const Time forgiven = is_first ? (now - std::exchange(forgiven_at_, now)) / kForgiven : 0;
  for (const Counted& one : count.counted) {
    Laggard& laggard = laggards_[static_cast<size_t>(one.member)];
    // partial-W9a: of models, a member that comes after half is slow: its waiting time adds up.
    laggard.is_stale = !one.arrived;
    laggard.waited = std::max<Time>(0, laggard.waited - forgiven);
    if (is_first && one.arrived) laggard.waited = 0;
  }
}

// When max_wait is over for this rank: for the version, or while it trains for one that has held up
// many.
Time Arrivals::OverAt(uint64_t version, const WaitingRank& waiter, Time now) {
  if (waiter.max_wait == kNever) return kNever;
  const Time since = Wait(version, waiter, now);
  Time longest = waited_;
  for (Laggard& laggard : laggards_) {
    if (laggard.was_stale) laggard.waited += since;
    // partial-W9a: time spent waiting for a slow member adds up over versions, up to max_wait.
    if (laggard.is_stale && !waiter.finished) longest = std::max(longest, laggard.waited);
  }
  return now + std::max<Time>(0, waiter.max_wait - longest);
}

Time Arrivals::WaitedAt(uint64_t version, const WaitingRank& waiter, Time now) {
  if (waiter.max_wait == kNever || waiter.finished || waiter.step < version) return kNever;
  Wait(version, waiter, now);
  return now + std::max<Time>(0, waiter.max_wait - waited_);
}

// Goes on with the clock of a version, by the time that it returns.
Time Arrivals::Wait(uint64_t version, const WaitingRank& waiter, Time now) {
  if (timed_version_ != version) {
    const bool goes_on = waiter.finished && expired_version_ > 0 && version == expired_version_ + 1;
    if (!goes_on || timed_version_ != expired_version_) waited_ = 0;
    timed_version_ = version;
    seen_at_ = now;
  }
  const Time since = SinceLook(waiter.max_wait, now);
  waited_ += since;
  return since;
}

void Arrivals::OnFired(uint64_t version, Time max_wait, Time now) {
  if (timed_version_ != version || max_wait == kNever) return;
  const Time since = SinceLook(max_wait, now);
  for (Laggard& laggard : laggards_)
    if (std::exchange(laggard.is_stale, false)) laggard.waited += since;
}

// The counted part of the time since the last look.
Time Arrivals::SinceLook(Time max_wait, Time now) {
  // partial-W8: time in which this rank was stopped itself counts as a quarter of max_wait at most.
  return std::min(now - std::exchange(seen_at_, now), max_wait / kLooks);
}

}  // namespace covey
