#include "tests/sim/simulator/model_journal.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace covey {
namespace {

std::string Name(int32_t rank) { return "rank " + std::to_string(rank); }
std::string Number(uint64_t version) { return "version " + std::to_string(version); }

// to = (times[0] * from[0] + times[1] * from[1] + ...) / divisor, one after the other.
template <typename T>
void CombineAs(const RoundLayout::Tile& tile, const std::vector<const Bytes*>& from,
               const std::vector<double>& times, double divisor, Bytes* to) {
  for (size_t i = 0; i < tile.count; ++i) {
    const size_t at = tile.offset_bytes + i * sizeof(T);
    T sum = 0;
    for (size_t j = 0; j < from.size(); ++j) {
      T value;
      std::memcpy(&value, from[j]->data() + at, sizeof(T));
      value *= static_cast<T>(times[j]);
      sum = j == 0 ? value : sum + value;
    }
    sum /= static_cast<T>(divisor);
    std::memcpy(to->data() + at, &sum, sizeof(T));
  }
}

Bytes Combine(const RoundLayout& layout, const std::vector<const Bytes*>& from,
              const std::vector<double>& times, double divisor) {
  Bytes to(layout.length_bytes());
  if (from.empty()) return to;
  for (const RoundLayout::Tile& tile : layout.tiles()) {
    if (tile.dtype == DType::kF32) CombineAs<float>(tile, from, times, divisor, &to);
    if (tile.dtype == DType::kF64) CombineAs<double>(tile, from, times, divisor, &to);
  }
  return to;
}

// Padding between spans belongs to no rank.
bool AreEqual(const RoundLayout& layout, const std::byte* one, const Bytes& other) {
  return std::all_of(layout.tiles().begin(), layout.tiles().end(), [&](const auto& tile) {
    return std::memcmp(one + tile.offset_bytes, other.data() + tile.offset_bytes,
                       tile.count * SizeOf(tile.dtype)) == 0;
  });
}

}  // namespace

ModelJournal::ModelJournal(const RoundMemory* memory, const AdmissionRule& rule)
    : memory_(memory), rule_(rule) {
  const auto size = static_cast<size_t>(memory->size());
  exemptable_.resize(size);
  killed_.resize(size);
  missing_.resize(size);
  contributed_.resize(size);
  begun_.resize(size);
  offered_again_.resize(size);
  taken_.resize(size);
  published_.resize(size);
  settlers_.resize(size);
  offered_.resize(size);
}

void ModelJournal::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

void ModelJournal::OnFewer(int32_t rank) {
  fewer_ = true;
  exemptable_[static_cast<size_t>(rank)] = true;
}

// Unless that was not of all: then others train on, and what they end with is another one.
void ModelJournal::OnGoOnWithout(int32_t rank, uint64_t version) {
  if (version == 0 || !results_[version - 1].header.final) return;
  settled_ = version;
  settlers_[static_cast<size_t>(rank)] = true;
}

void ModelJournal::OnEnd(int32_t rank, uint64_t version) {
  for (size_t r = 0; r < settlers_.size(); ++r)
    if (settlers_[r] && !killed_[r] && version != settled_)
      Fail("9: " + Name(rank) + " ends with " + Number(version) + ", " +
           Name(static_cast<int32_t>(r)) + " has gone on from " + Number(settled_));
}

void ModelJournal::OnAllGoOn() {
  fewer_ = false;
  exemptable_.assign(exemptable_.size(), false);
}

void ModelJournal::OnPublish(int32_t rank, uint64_t step, const Bytes& model) {
  published_[static_cast<size_t>(rank)][step] = model;
}

void ModelJournal::OnLook(int32_t owner, uint64_t step, const Bytes& model) {
  if (!AreEqual(memory_->layout(), model.data(), ModelOf(owner, step)))
    Fail("8: what " + Name(owner) + " is seen to offer as step " + std::to_string(step) +
         " is not that");
}

const Bytes& ModelJournal::ModelOf(int32_t rank, uint64_t step) const {
  return published_[static_cast<size_t>(rank)].at(step);
}

void ModelJournal::Look() {
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const SlotWord slot = SlotWord::Of(*memory_->SlotAt(i));
    if (slot.state == SlotState::kTaken) taken_[static_cast<size_t>(i)] = slot.step;
  }
  const StateWord state = StateWord::Of(*memory_->StateAt());
  if (state.fired && fired_ != state.version()) {
    fired_ = state.version();
    for (int32_t i = 0; i < memory_->size(); ++i)
      offered_[static_cast<size_t>(i)] = SlotWord::Of(*memory_->SlotAt(i)).step;
  }
  if (state.executed == results_.size()) return;
  if (state.executed != results_.size() + 1)
    return Fail("1: " + Number(results_.size()) + " is followed by " + Number(state.executed));
  CheckVersion(state.executed);
  CheckLog();
}

// A result that can be found is the one of the end of its version.
void ModelJournal::CheckLog() {
  for (uint32_t i = 0; i < memory_->log_words(); ++i) {
    const LogEntry entry = LogEntry::Of(*memory_->LogWordAt(i));
    if (entry.version == 0 || entry.version > results_.size()) continue;
    const Bytes& means = results_[entry.version - 1].means;
    const std::byte* at = memory_->Result(entry.buffer) + memory_->record_bytes();
    if (std::memcmp(at, means.data(), means.size()) != 0)
      Fail("1: " + Number(entry.version) + " was changed after its end");
  }
}

// Right after its end, before any other rank has done anything.
void ModelJournal::CheckVersion(uint64_t version) {
  const LogEntry entry = LogEntry::Of(*memory_->LogAt(version));
  results_.emplace_back();
  if (entry.version != version) return Fail("1: " + Number(version) + " is not in the log");
  Result& result = results_.back();
  const auto size = static_cast<size_t>(memory_->size());
  const std::byte* at = memory_->Result(entry.buffer);
  std::memcpy(&result.header, at, sizeof(result.header));
  if (result.header.version != version)
    return Fail("1: the record of " + Number(version) + " is another");
  at += sizeof(result.header);
  result.contributions.resize(size);
  std::memcpy(result.contributions.data(), at, sizeof(Contribution) * size);
  at += sizeof(Contribution) * size;
  result.missing.resize(size);
  std::memcpy(result.missing.data(), at, sizeof(uint64_t) * size);
  const bool of_all = result.header.final || LastOfAll(version) == version;
  result.sum_of =
      of_all ? std::vector<int32_t>(size) : GroupsOf(memory_->models(), memory_->size(), version);
  syncs += of_all && !result.header.final ? 1 : 0;
  finals += result.header.final ? 1 : 0;
  if (result.header.final && settled_ > 0 && settled_ + 1 == version)
    Fail("5: somebody has gone on with " + Number(settled_) + ", and another final one follows");
  CheckMembers(result, version);
  if (failure_.empty()) CheckMeans(result, version);
}

uint64_t ModelJournal::LastOfAll(uint64_t version) const {
  const uint64_t ending = memory_->models().ending;
  if (ending > 0 && ending <= version) return version;
  return version / memory_->models().sync_every * memory_->models().sync_every;
}

void ModelJournal::CheckMembers(const Result& result, uint64_t version) {
  const auto awaited = static_cast<int32_t>(std::count(missing_.begin(), missing_.end(), 0));
  const bool is_sync = LastOfAll(version) == version;
  int32_t fresh = 0;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const auto index = static_cast<size_t>(i);
    const bool is_counted = awaited == 0 || missing_[index] == 0;
    fresh += is_counted && result.contributions[index].last >= version ? 1 : 0;
    CheckSuspicion(i, result);
    CheckMember(i, result, version);
  }
  const int32_t wanted = std::max(1, is_sync ? awaited : rule_.Wanted(awaited));
  if (!fewer_ && !result.header.expired && fresh < wanted)
    Fail("4: " + Number(version) + " has " + std::to_string(fresh) + " fresh members of " +
         std::to_string(wanted));
}

void ModelJournal::CheckMember(int32_t rank, const Result& result, uint64_t version) {
  const auto index = static_cast<size_t>(rank);
  const Contribution& c = result.contributions[index];
  const std::string who = Name(rank) + " in " + Number(version);
  const uint64_t offered = offered_[index];
  const bool is_of_all = result.header.final && exemptable_[index];
  const uint64_t oldest = std::max(version + 1 - std::min(version, memory_->models().sync_every),
                                   LastOfAll(version - 1));
  if (c.count == 0) {
    old += offered > 0 ? 1 : 0;
    if (offered >= oldest && offered > 0 && !killed_[index])
      Fail("2: " + who + " has offered step " + std::to_string(offered) + " and is out");
    return;
  }
  if (c.count != 1 || c.first != c.last || published_[index].count(c.last) == 0)
    return Fail("2: " + who + " has no step " + std::to_string(c.last));
  if (c.last < contributed_[index] || c.last < offered)
    Fail("2: " + who + " has step " + std::to_string(c.last) + " though there is a newer one");
  if (c.last < oldest && !is_of_all)
    Fail("6: " + who + " has step " + std::to_string(c.last) + ", which is too old");
  passive += c.last < version ? 1 : 0;
  again += c.last == contributed_[index] ? 1 : 0;
  contributed_[index] = c.last;
}

// partial-W8 for models, said another way than in core/partial/suspicion.h.
void ModelJournal::CheckSuspicion(int32_t rank, const Result& result) {
  const auto index = static_cast<size_t>(rank);
  const uint64_t version = result.header.version;
  const uint64_t every = memory_->models().sync_every;
  const Contribution& c = result.contributions[index];
  uint64_t* known = &missing_[index];
  uint64_t expected = *known;
  if (*known == 0 && result.header.expired && c.last < version) expected = 3;
  const uint64_t ending = memory_->models().ending;
  const uint64_t slack = ending > 0 && ending <= version ? 0 : every / 2;
  if (*known > 0 && LastOfAll(version) == version)
    expected = c.count > 0 && c.last + slack >= version ? *known - 1 : 3;
  if (result.missing[index] == 0 && exemptable_[index]) expected = 0;
  overdue += *known == 0 && expected > 0 ? 1 : 0;
  returned += *known > 0 && expected == 0 && !exemptable_[index] ? 1 : 0;
  if (result.missing[index] != expected)
    Fail("4: after " + Number(version) + " " + Name(rank) + " is to keep up in " +
         std::to_string(expected) + " versions of all, and the record says " +
         std::to_string(result.missing[index]));
  *known = expected;
}

void ModelJournal::CheckMeans(const Result& known, uint64_t version) {
  Result& result = results_[version - 1];
  const RoundLayout& layout = memory_->layout();
  const LogEntry entry = LogEntry::Of(*memory_->LogAt(version));
  const std::byte* at = memory_->Result(entry.buffer) + memory_->record_bytes();
  const int32_t sums = 1 + *std::max_element(known.sum_of.begin(), known.sum_of.end());
  result.means.assign(at, at + static_cast<size_t>(sums) * layout.length_bytes());
  for (int32_t sum = 0; sum < sums; ++sum)
    if (!AreEqual(layout, at + static_cast<size_t>(sum) * layout.length_bytes(),
                  MeanOf(result, sum)))
      Fail("2: group " + std::to_string(sum) + " of " + Number(version) +
           " has not the mean of its record");
  for (const std::byte byte : result.means)
    hash_ = (hash_ ^ static_cast<uint64_t>(byte)) * 1099511628211u;
}

std::vector<const Bytes*> ModelJournal::ModelsIn(const Result& result, int32_t sum) const {
  std::vector<const Bytes*> models;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const auto index = static_cast<size_t>(i);
    if (result.sum_of[index] == sum && result.contributions[index].count > 0)
      models.push_back(&ModelOf(i, result.contributions[index].last));
  }
  return models;
}

// The group whose mean `rank` becomes. A rank that has missed a version of all needs a group with a
// model.
int32_t ModelJournal::GroupFor(int32_t rank, const Result& result, bool needs_one) const {
  const int32_t own = result.sum_of[static_cast<size_t>(rank)];
  if (!needs_one || !ModelsIn(result, own).empty()) return own;
  const int32_t last = *std::max_element(result.sum_of.begin(), result.sum_of.end());
  for (int32_t sum = 0; sum <= last; ++sum)
    if (!ModelsIn(result, sum).empty()) return sum;
  return own;
}

Bytes ModelJournal::MeanOf(const Result& result, int32_t sum) const {
  const std::vector<const Bytes*> models = ModelsIn(result, sum);
  return Combine(memory_->layout(), models, std::vector<double>(models.size(), 1.0),
                 static_cast<double>(models.size()));
}

void ModelJournal::OnMerge(int32_t rank, uint64_t step, uint64_t wanted, const Merged& merged,
                           const Bytes& model) {
  const std::string who = Name(rank) + " after step " + std::to_string(step);
  if (merged.version < wanted || merged.version > results_.size())
    return Fail("3: " + who + " merges with " + Number(merged.version));
  const auto index = static_cast<size_t>(rank);
  // Unless it is not waited for, has finished and given up waiting for the others, or max_wait was
  // over since then.
  const bool was_in = !exemptable_[index] &&
                      results_[wanted - 1].contributions[index].last == step &&
                      results_[wanted - 1].missing[index] == 0;
  const bool is_over = std::any_of(results_.begin() + static_cast<int64_t>(wanted), results_.end(),
                                   [](const Result& r) { return r.header.expired; });
  if (was_in && LastOfAll(wanted) == wanted && !is_over && merged.version != wanted)
    Fail("3: " + who + " was in a version of all and merges with " + Number(merged.version));
  const Result& result = results_[merged.version - 1];
  const bool is_late = result.contributions[index].last != step;
  const bool is_passed = LastOfAll(merged.version) > step;
  if (is_late && is_passed && merged.count == 0)
    Fail("3: " + who + " goes on from a mean of no models");
  const int32_t sum = GroupFor(rank, result, is_late && is_passed);
  const auto count = static_cast<int32_t>(ModelsIn(result, sum).size());
  if (merged.late != is_late || merged.count != count)
    Fail("3: " + who + " is taken for " + (merged.late ? "late" : "in time"));
  const bool takes =
      is_late && exemptable_[index] && result.header.final && merged.version == settled_;
  Bytes expected = MeanOf(result, sum);
  if (is_late && !is_passed && !takes)
    expected = Combine(memory_->layout(), {&expected, &ModelOf(rank, step)},
                       {static_cast<double>(count), 1.0}, count + 1.0);
  const bool is_kept = is_late && is_passed && !takes && taken_[index] < step;
  const uint64_t offered = std::exchange(offered_again_[index], 0);
  if (offered > 0 && taken_[index] >= offered) begun_[index] = ModelOf(rank, offered);
  const Bytes mean = expected;
  if (is_kept)
    expected = Combine(memory_->layout(), {&begun_[index], &ModelOf(rank, step), &mean},
                       {-1.0, 1.0, 1.0}, 1.0);
  begun_[index] = is_late && !is_passed && !takes ? expected : mean;
  if (!AreEqual(memory_->layout(), model.data(), expected))
    Fail("3: " + who + " has something else than the merge with " + Number(merged.version));
  late += is_late ? 1 : 0;
  anew += is_late && is_passed ? 1 : 0;
  kept += is_kept ? 1 : 0;
  taken += takes ? 1 : 0;
}

}  // namespace covey
