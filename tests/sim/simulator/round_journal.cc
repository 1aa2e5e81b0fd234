#include "tests/sim/simulator/round_journal.h"

#include <algorithm>
#include <cstring>

namespace covey {
namespace {

int64_t ValueOf(int32_t rank, uint64_t step, size_t element) {
  return static_cast<int64_t>((step * 131 + static_cast<uint64_t>(rank) * 31 + element * 7) % 997);
}

template <typename T>
void AddAs(std::byte* at, int64_t value) {
  T sum;
  std::memcpy(&sum, at, sizeof(sum));
  sum = static_cast<T>(sum + static_cast<T>(value));
  std::memcpy(at, &sum, sizeof(sum));
}

void AddTo(const RoundLayout& layout, int32_t rank, uint64_t step, std::byte* to) {
  for (const RoundLayout::Tile& tile : layout.tiles()) {
    for (size_t i = 0; i < tile.count; ++i) {
      std::byte* at = to + tile.offset_bytes + i * SizeOf(tile.dtype);
      const int64_t value = ValueOf(rank, step, tile.offset_bytes + i);
      if (tile.dtype == DType::kI64) AddAs<int64_t>(at, value);
      if (tile.dtype == DType::kI32) AddAs<int32_t>(at, static_cast<int32_t>(value));
      if (tile.dtype == DType::kF32) AddAs<float>(at, value);
    }
  }
}

std::string Name(int32_t rank) { return "rank " + std::to_string(rank); }
std::string Number(uint64_t version) { return "version " + std::to_string(version); }

}  // namespace

void RoundModel::Apply(const std::vector<std::byte>& data) {
  uint64_t hash = 1469598103934665603u;
  for (const std::byte byte : data) hash = (hash ^ static_cast<uint64_t>(byte)) * 1099511628211u;
  for (uint64_t& word : words) word = (word ^ hash++) * 1099511628211u + 1;
}

RoundJournal::RoundJournal(const RoundMemory* memory, const AdmissionRule& rule)
    : memory_(memory),
      rule_(rule),
      exemptable_(static_cast<size_t>(memory->size())),
      missing_(static_cast<size_t>(memory->size())),
      published_(static_cast<size_t>(memory->size())),
      collected_(static_cast<size_t>(memory->size())),
      known_(static_cast<size_t>(memory->size())),
      finished_with_(static_cast<size_t>(memory->size())),
      settlers_(static_cast<size_t>(memory->size())),
      killed_(static_cast<size_t>(memory->size())) {}

void RoundJournal::Fill(const RoundLayout& layout, int32_t rank, uint64_t step, std::byte* to) {
  std::memset(to, 0, layout.length_bytes());
  AddTo(layout, rank, step, to);
}

void RoundJournal::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

void RoundJournal::OnFewer(int32_t rank) {
  fewer_ = true;
  exemptable_[static_cast<size_t>(rank)] = true;
}

void RoundJournal::OnKill(int32_t rank) {
  OnFewer(rank);
  killed_[static_cast<size_t>(rank)] = true;
}

void RoundJournal::OnNotPublished(int32_t rank, uint64_t step) {
  std::vector<uint64_t>& steps = published_[static_cast<size_t>(rank)];
  // The one that has settled the version may be dead: this rank need not know of it.
  if (steps.empty() || steps.back() != step || noted_ == 0)
    Fail("13: " + Name(rank) + " has not published step " + std::to_string(step));
  if (!steps.empty()) steps.pop_back();
  ++dropped_;
}

// The other ranks have gone on without it. Contributions that it had published before they finished
// are in a version, unless it has published or skipped a step since: then it may have taken them
// back.
void RoundJournal::OnDropped(int32_t rank) {
  const auto index = static_cast<size_t>(rank);
  std::vector<uint64_t>& steps = published_[index];
  if (steps.size() == collected_[index]) return;
  if (steps.size() <= known_[index])
    Fail("14: " + Name(rank) + " drops step " + std::to_string(steps.back()) +
         ", which was there when the others finished");
  dropped_ += steps.size() - collected_[index];
  steps.resize(collected_[index]);
}

void RoundJournal::OnFinish(int32_t rank) {
  OnFewer(rank);
  for (size_t r = 0; r < published_.size(); ++r) {
    const SlotWord slot = SlotWord::Of(*memory_->SlotAt(static_cast<int32_t>(r)));
    const std::vector<uint64_t>& steps = published_[r];
    const auto end = slot.state == SlotState::kPublished
                         ? std::upper_bound(steps.begin(), steps.end(), slot.step)
                         : steps.begin();
    finished_with_[static_cast<size_t>(rank)].push_back(static_cast<size_t>(end - steps.begin()));
  }
}

// It offers again what it had published: a version under way may not find it.
void RoundJournal::OnSkip(int32_t rank) {
  const auto index = static_cast<size_t>(rank);
  for (std::vector<size_t>& known : finished_with_)
    if (!known.empty()) known[index] = std::min(known[index], collected_[index]);
}

// By one that lives.
bool RoundJournal::IsSettled() const {
  for (size_t r = 0; r < settlers_.size(); ++r)
    if (settlers_[r] && !killed_[r]) return true;
  return false;
}

void RoundJournal::OnSettled(int32_t rank) {
  const uint64_t last = StateWord::Of(*memory_->StateAt()).executed;
  if (IsSettled() && settled_ != last)
    Fail("13: " + Name(rank) + " goes on from " + Number(last) + ", others from " +
         Number(settled_));
  settled_ = last;
  settlers_[static_cast<size_t>(rank)] = true;
}

// As the first of them found it to be finished with; any of those that have finished may be that.
void RoundJournal::NoteSettled(const StateWord& state) {
  if (!state.settled() || noted_ > state.executed) return;
  noted_ = state.version();
  for (size_t r = 0; r < known_.size(); ++r) {
    size_t least = published_[r].size();
    for (const std::vector<size_t>& known : finished_with_)
      if (!known.empty()) least = std::min(least, known[r]);
    known_[r] = least;
  }
}

void RoundJournal::OnEnd(int32_t rank, uint64_t version) {
  if (!IsSettled()) return;
  rejoined_ += settlers_[static_cast<size_t>(rank)] ? 0 : 1;
  if (version != settled_)
    Fail("13: " + Name(rank) + " ends with " + Number(version) + ", others have gone on from " +
         Number(settled_));
}

bool RoundJournal::WaitsForAll(uint64_t version) const {
  return version <= rule_.warmup || (rule_.ending > 0 && version >= rule_.ending);
}

uint64_t RoundJournal::IsMet() const {
  const StateWord state = StateWord::Of(*memory_->StateAt());
  std::vector<Counted> counted;
  bool stale = false;
  int covered = 0;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const SlotWord slot = SlotWord::Of(*memory_->SlotAt(i));
    if (missing_[static_cast<size_t>(i)] > 0) continue;
    const uint64_t next = std::max(*memory_->AppliedAt(i) + 1, slot.step);
    const bool keeps = next + memory_->log() > state.version();
    if (MemberStatus{*memory_->MemberAt(i)}.finished()) {
      covered += keeps && *memory_->LeftAt(i, i) == 0 ? 1 : 0;
      continue;
    }
    const bool arrived = slot.state == SlotState::kPublished && slot.step >= state.version();
    stale |= WaitsForAll(state.version()) && !arrived;
    counted.push_back({.member = i, .arrived = arrived});
    stale |= rule_.staleness > 0 && slot.step + rule_.staleness < state.version();
    covered += keeps ? 1 : 0;
  }
  stale |= rule_.staleness > 0 && counted.size() > 1 && covered < 2;
  const bool met =
      !state.fired && !stale && !counted.empty() && rule_.IsMet(counted, state.version());
  return met ? state.version() : 0;
}

void RoundJournal::Look() {
  const StateWord state = StateWord::Of(*memory_->StateAt());
  NoteSettled(state);
  if (state.executed == results_.size()) return;
  if (state.executed != results_.size() + 1)
    return Fail("1: " + Number(results_.size()) + " is followed by " + Number(state.executed));
  CheckVersion(state.executed);
  CheckLog();
}

// A result that can be found is the one of the end of its version.
void RoundJournal::CheckLog() {
  for (uint64_t i = 0; i < memory_->log(); ++i) {
    const LogEntry entry = LogEntry::Of(*memory_->LogAt(i));
    if (entry.version == 0 || entry.version > results_.size()) continue;
    const std::vector<std::byte>& data = results_[entry.version - 1].data;
    const std::byte* at = memory_->Result(entry.buffer) + memory_->record_bytes();
    if (std::memcmp(at, data.data(), data.size()) != 0)
      Fail("2: " + Number(entry.version) + " was changed after its end");
  }
}

// Right after its end, before any other rank has done anything.
void RoundJournal::CheckVersion(uint64_t version) {
  const LogEntry entry = LogEntry::Of(*memory_->LogAt(version));
  results_.emplace_back();
  if (entry.version != version) return Fail("1: " + Number(version) + " is not in the log");
  const std::byte* at = memory_->Result(entry.buffer);
  RecordHeader header;
  std::memcpy(&header, at, sizeof(header));
  if (header.version != version) return Fail("5: the record of " + Number(version) + " is another");
  Result& result = results_.back();
  result.contributions.resize(static_cast<size_t>(memory_->size()));
  std::memcpy(result.contributions.data(), at + sizeof(header),
              sizeof(Contribution) * result.contributions.size());
  result.missing.resize(result.contributions.size());
  std::memcpy(result.missing.data(),
              at + sizeof(header) + sizeof(Contribution) * result.contributions.size(),
              sizeof(uint64_t) * result.missing.size());
  result.data.resize(memory_->layout().length_bytes());
  std::memcpy(result.data.data(), at + memory_->record_bytes(), result.data.size());
  std::vector<std::byte> expected(result.data.size());
  // Where only overdue ones are left, one of them is enough.
  const auto awaited = static_cast<int32_t>(std::count(missing_.begin(), missing_.end(), 0));
  std::vector<Counted> counted;
  int32_t empty_steps = 0;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const Contribution& contribution = result.contributions[static_cast<size_t>(i)];
    const bool is_overdue = missing_[static_cast<size_t>(i)] > 0;
    const bool is_counted = awaited == 0 || !is_overdue;
    const bool is_fresh = contribution.arrived >= version;
    empty_steps += contribution.count == 0 && contribution.arrived > 0 ? 1 : 0;
    if (is_counted) counted.push_back({.member = i, .arrived = is_fresh});
    CheckSuspicion(i, header, contribution, result.missing[static_cast<size_t>(i)]);
    if (!is_overdue && contribution.arrived > 0) CheckAge(i, header, contribution);
    if (contribution.count == 0) continue;
    CheckContribution(i, version, contribution);
    for (const uint64_t step : published_[static_cast<size_t>(i)])
      if (step >= contribution.first && step <= contribution.last)
        AddTo(memory_->layout(), i, step, expected.data());
  }
  if (expected != result.data) Fail("2: " + Number(version) + " is not the sum of its record");
  if (!fewer_ && header.divisor != std::max(1, memory_->size() - empty_steps))
    Fail("3: " + Number(version) + " is divided by " + std::to_string(header.divisor));
  const bool any =
      std::any_of(counted.begin(), counted.end(), [](const Counted& one) { return one.arrived; });
  const bool all =
      std::all_of(counted.begin(), counted.end(), [](const Counted& one) { return one.arrived; });
  const bool enough = WaitsForAll(version) ? all : rule_.IsMet(counted, version);
  const bool met = awaited == 0 ? any : any && enough;
  if (!fewer_ && !header.expired && !met)
    Fail("3: " + Number(version) + " has not the fresh members that it needs");
  models_.push_back(models_.back());
  models_.back().Apply(result.data);
  for (const std::byte byte : result.data)
    hash_ = (hash_ ^ static_cast<uint64_t>(byte)) * 1099511628211u;
}

// partial-W8, said another way than in core/partial/suspicion.h.
void RoundJournal::CheckSuspicion(int32_t rank, const RecordHeader& header, const Contribution& c,
                                  uint64_t missing) {
  uint64_t* known = &missing_[static_cast<size_t>(rank)];
  uint64_t expected = *known;
  if (c.arrived >= header.version) {
    expected = *known > 0 ? *known - 1 : 0;
    returned_ += *known == 1 ? 1 : 0;
  } else if (*known > 0 || header.expired) {
    expected = missing == 0 && exemptable_[static_cast<size_t>(rank)] ? 0 : 3;
    overdue_ += *known == 0 && expected > 0 ? 1 : 0;
  }
  if (missing != expected)
    Fail("6: after " + Number(header.version) + " " + Name(rank) + " is to be fresh in " +
         std::to_string(expected) + " versions, and the record says " + std::to_string(missing));
  *known = expected;
}

// partial-W9. Its first step may be older: what is taken back while collected goes with the next.
void RoundJournal::CheckAge(int32_t rank, const RecordHeader& header, const Contribution& c) {
  if (rule_.staleness == 0 || header.expired || fewer_) return;
  oldest_ = std::max(oldest_, header.version - std::min(header.version, c.arrived));
  if (c.arrived + rule_.staleness < header.version)
    Fail("8: " + Number(header.version) + " has steps " + std::to_string(c.first) + " to " +
         std::to_string(c.last) + " of " + Name(rank));
}

// The first `count` of those that have not been in a version.
bool RoundJournal::AreNext(int32_t rank, const Contribution& c) const {
  const std::vector<uint64_t>& steps = published_[static_cast<size_t>(rank)];
  const size_t begin = collected_[static_cast<size_t>(rank)];
  return c.count >= 1 && begin + c.count <= steps.size() && steps[begin] == c.first &&
         steps[begin + c.count - 1] == c.last;
}

void RoundJournal::CheckContribution(int32_t rank, uint64_t version, const Contribution& c) {
  const auto index = static_cast<size_t>(rank);
  if (!AreNext(rank, c))
    Fail("2: " + Number(version) + " has steps " + std::to_string(c.first) + " to " +
         std::to_string(c.last) + " of " + Name(rank) + " after " +
         std::to_string(collected_[index]) + " of them");
  collected_[index] += c.count;
  late_ += c.last < version ? 1 : 0;
  merged_ += c.count > 1 ? 1 : 0;
  skipped_ += c.last - c.first >= c.count ? 1 : 0;
}

void RoundJournal::OnRead(int32_t rank, uint64_t version, const std::vector<std::byte>& data,
                          const RoundRecord& record) {
  if (version == 0 || version > results_.size())
    return Fail("1: " + Name(rank) + " reads " + Number(version) + ", which has not ended");
  const Result& result = results_[version - 1];
  if (record.header.version != version || data != result.data || record.missing != result.missing ||
      std::memcmp(record.contributions.data(), result.contributions.data(),
                  sizeof(Contribution) * result.contributions.size()) != 0)
    Fail("2: " + Name(rank) + " reads something else in " + Number(version));
}

// Also of a version that leaves the log meanwhile.
void RoundJournal::OnHeld(int32_t rank, uint64_t version, const std::vector<std::byte>& data) {
  if (version > results_.size() || data != results_[version - 1].data)
    Fail("12: " + Name(rank) + " holds something else as " + Number(version));
}

void RoundJournal::OnApplied(int32_t rank, uint64_t version, const RoundModel& model) {
  if (version >= models_.size() || !(model == models_[version]))
    Fail("7: the model of " + Name(rank) + " after " + Number(version) + " is another");
}

void RoundJournal::CheckRank(int32_t rank, bool runs, bool flushed) {
  const auto index = static_cast<size_t>(rank);
  const SlotWord slot = SlotWord::Of(*memory_->SlotAt(rank));
  // A version that no rank waits for any more may be under way, and what the owner has published
  // since comes after what that has taken.
  if (IsUnderWay(rank, slot)) {
    Hold(rank, memory_->Header(rank, Inclusion::Of(*memory_->InclusionAt(rank)).buffer)->content);
    if (flushed) Fail("4: finish() has left a version under way with " + Name(rank));
  }
  if (slot.state == SlotState::kPublished) {
    Hold(rank, memory_->Header(rank, slot.buffer)->content);
    if (flushed) Fail("4: finish() has left something with " + Name(rank));
  }
  const size_t published = published_[index].size();
  if (runs && collected_[index] != published)
    Fail("2: " + Name(rank) + " has published " + std::to_string(published) + " steps, and " +
         std::to_string(collected_[index]) + " are in versions or its slot");
}

void RoundJournal::OnWithdrawn(int32_t rank, const Contribution& c, const std::byte* content) {
  std::vector<uint64_t>& steps = published_[static_cast<size_t>(rank)];
  const auto begin =
      steps.begin() + static_cast<std::ptrdiff_t>(collected_[static_cast<size_t>(rank)]);
  const auto first = std::find(begin, steps.end(), c.first);
  const auto count = static_cast<std::ptrdiff_t>(c.count);
  if (steps.end() - first < count || *(first + count - 1) != c.last)
    return Fail("2: " + Name(rank) + " has taken back what is in a version");
  std::vector<std::byte> expected(memory_->layout().length_bytes());
  for (const uint64_t step : published_[static_cast<size_t>(rank)])
    if (step >= c.first && step <= c.last) AddTo(memory_->layout(), rank, step, expected.data());
  for (const RoundLayout::Tile& tile : memory_->layout().tiles())
    if (std::memcmp(expected.data() + tile.offset_bytes, content + tile.offset_bytes,
                    tile.count * SizeOf(tile.dtype)) != 0)
      Fail("2: " + Name(rank) + " has taken back something else");
  // Those that had finished before do not know what it publishes in their place.
  const auto kept = static_cast<size_t>(first - steps.begin());
  const auto forget = [&](std::vector<size_t>& known) {
    if (!known.empty())
      known[static_cast<size_t>(rank)] = std::min(known[static_cast<size_t>(rank)], kept);
  };
  for (std::vector<size_t>& known : finished_with_) forget(known);
  forget(known_);
  steps.erase(first, first + count);  // those of a version under way may come before
}

// Whether a version that has not ended has taken from the slot of `rank`.
bool RoundJournal::IsUnderWay(int32_t rank, const SlotWord& slot) const {
  const StateWord state = StateWord::Of(*memory_->StateAt());
  const Inclusion inclusion = Inclusion::Of(*memory_->InclusionAt(rank));
  if (!state.fired || inclusion.version != state.version()) return false;
  const bool is_taken = slot.state == SlotState::kTaken && inclusion.Names(slot);
  return inclusion.decision == Decision::kIn ||
         (inclusion.decision == Decision::kAsked && is_taken);
}

// At the end: what a version takes, or would have taken next.
void RoundJournal::Hold(int32_t rank, const Contribution& content) {
  if (content.count > 0 && !AreNext(rank, content))
    Fail("2: " + Name(rank) + " still holds steps from " + std::to_string(content.first));
  collected_[static_cast<size_t>(rank)] += content.count;
}

}  // namespace covey
