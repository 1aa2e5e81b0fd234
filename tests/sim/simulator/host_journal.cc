#include "tests/sim/simulator/host_journal.h"

#include <algorithm>

#include "core/base/kernels.h"

namespace covey {
namespace {

std::string Name(int32_t rank) { return "rank " + std::to_string(rank); }
std::string Number(uint64_t version) { return "version " + std::to_string(version); }

}  // namespace

HostJournal::HostJournal(const RoundMemory* geometry, const AdmissionRule& rule)
    : geometry_(geometry),
      rule_(rule),
      settlers_(static_cast<size_t>(geometry->size())),
      killed_(static_cast<size_t>(geometry->size())),
      exemptable_(static_cast<size_t>(geometry->size())),
      missing_(static_cast<size_t>(geometry->size())),
      published_(static_cast<size_t>(geometry->size())),
      collected_(static_cast<size_t>(geometry->size())) {}

void HostJournal::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

bool HostJournal::HasAll(const ReplicatedLog& log) const {
  if (log.executed() >= versions()) return true;
  const std::optional<ReplicatedEntry>& accepted = log.uncommitted();
  return accepted.has_value() && accepted->version == versions() &&
         accepted->made == results_.back().made;
}

void HostJournal::OnFewer(int32_t rank) {
  fewer_ = true;
  exemptable_[static_cast<size_t>(rank)] = true;
}

void HostJournal::OnNotPublished(int32_t rank, uint64_t step) {
  std::vector<uint64_t>& steps = published_[static_cast<size_t>(rank)];
  if (steps.empty() || steps.back() != step)
    Fail("13: " + Name(rank) + " drops step " + std::to_string(step));
  steps.pop_back();
}

void HostJournal::OnDropped(int32_t rank, uint64_t count) {
  const auto index = static_cast<size_t>(rank);
  if (collected_[index] + count != published_[index].size())
    Fail("13: " + Name(rank) + " drops " + std::to_string(count) +
         " steps, of which some are not " + "without a version");
  published_[index].resize(std::min(published_[index].size(), collected_[index]));
}

// By one that lives.
bool HostJournal::HasSettled() const {
  for (size_t r = 0; r < settlers_.size(); ++r)
    if (settlers_[r] && !killed_[r]) return true;
  return false;
}

void HostJournal::OnSettled(int32_t rank, uint64_t version, uint64_t versions) {
  if (version != versions || (HasSettled() && settled_ != version))
    Fail("13: " + Name(rank) + " goes on from " + Number(version) + " of " +
         std::to_string(versions) + ", others from " + Number(settled_));
  settled_ = version;
  settlers_[static_cast<size_t>(rank)] = true;
}

void HostJournal::CheckSettled(uint64_t version) {
  if (HasSettled() && version > settled_)
    Fail("13: " + Number(version) + " is made after " + Number(settled_) +
         ", which ranks have gone on from");
}

void HostJournal::OnFlushed(int32_t rank, uint64_t executed) {
  if (flushed_at_ == 0) flushed_at_ = executed;
  if (executed != flushed_at_)
    Fail("4: finish() of " + Name(rank) + " ends well after " + Number(executed) +
         ", another one after " + Number(flushed_at_));
}

void HostJournal::OnCommitted(int32_t rank, const ReplicatedEntry& entry) {
  if (entry.version > results_.size() + 1)
    return Fail("1: " + Number(results_.size()) + " is followed by " + Number(entry.version));
  CheckSettled(entry.version);
  if (entry.version == results_.size() + 1) return CheckVersion(entry);
  const ReplicatedEntry& known = results_[entry.version - 1];
  if (known.body != entry.body || known.consumed != entry.consumed ||
      known.missing != entry.missing)
    Fail("1: " + Name(rank) + " has another " + Number(entry.version));
}

void HostJournal::CheckVersion(const ReplicatedEntry& entry) {
  RoundRecord record;
  ReadRecord(*geometry_, entry.body.data(), &record);
  results_.push_back(entry);
  // As it is now, whatever happens to the memory that messages hold.
  results_.back().body = Bytes(entry.body.begin(), entry.body.end());
  const uint64_t version = entry.version;
  if (record.header.version != version) Fail("1: the record of " + Number(version) + " is another");
  expired_ += record.header.expired ? 1 : 0;
  const std::vector<std::byte> data(
      entry.body.begin() + static_cast<std::ptrdiff_t>(geometry_->record_bytes()),
      entry.body.end());
  std::vector<std::byte> expected(data.size());
  const auto awaited = static_cast<int32_t>(std::count(missing_.begin(), missing_.end(), 0));
  std::vector<Counted> counted;
  int32_t empty_steps = 0;
  for (int32_t i = 0; i < geometry_->size(); ++i) {
    const auto index = static_cast<size_t>(i);
    const Contribution& contribution = record.contributions[index];
    const bool is_overdue = missing_[index] > 0;
    const bool is_fresh = contribution.arrived >= version;
    empty_steps += contribution.count == 0 && contribution.arrived > 0 ? 1 : 0;
    if (awaited == 0 || !is_overdue) counted.push_back({.member = i, .arrived = is_fresh});
    CheckSuspicion(i, record);
    if (contribution.count == 0) continue;
    CheckContribution(i, version, contribution);
    AddSteps(i, contribution, &expected);
    const bool is_limited = rule_.staleness > 0 && !record.header.expired && !fewer_;
    if (is_limited && !is_overdue && contribution.first + rule_.staleness < version)
      Fail("8: " + Number(version) + " has an old step of " + Name(i));
    const std::vector<uint64_t>& steps = published_[index];
    if (entry.consumed[index] != steps[collected_[index] - 1])
      Fail("2: " + Number(version) + " says that another step is the last of " + Name(i));
  }
  if (expected != data) Fail("2: " + Number(version) + " is not the sum of its record");
  if (!fewer_ && record.header.divisor != std::max(1, geometry_->size() - empty_steps))
    Fail("3: " + Number(version) + " is divided by " + std::to_string(record.header.divisor));
  const bool any =
      std::any_of(counted.begin(), counted.end(), [](const Counted& one) { return one.arrived; });
  const bool all =
      std::all_of(counted.begin(), counted.end(), [](const Counted& one) { return one.arrived; });
  const bool enough = version <= rule_.warmup ? all : rule_.IsMet(counted, version);
  const bool met = awaited == 0 ? any : any && enough;
  if (!fewer_ && !record.header.expired && !met)
    Fail("3: " + Number(version) + " has not the fresh members that it needs");
  models_.push_back(models_.back());
  models_.back().Apply(data);
  for (const std::byte byte : data) hash_ = (hash_ ^ static_cast<uint64_t>(byte)) * 1099511628211u;
}

// replicated-W8, said another way than in core/partial/suspicion.h.
void HostJournal::CheckSuspicion(int32_t rank, const RoundRecord& record) {
  const auto index = static_cast<size_t>(rank);
  const Contribution& c = record.contributions[index];
  uint64_t expected = missing_[index];
  if (c.arrived >= record.header.version) {
    expected = expected > 0 ? expected - 1 : 0;
    returned_ += missing_[index] == 1 ? 1 : 0;
  } else if (expected > 0 || record.header.expired) {
    expected = record.missing[index] == 0 && exemptable_[index] ? 0 : 3;
    overdue_ += missing_[index] == 0 && expected > 0 ? 1 : 0;
  }
  if (record.missing[index] != expected)
    Fail("6: after " + Number(record.header.version) + " " + Name(rank) + " is to be fresh in " +
         std::to_string(expected) + " versions, and the record says " +
         std::to_string(record.missing[index]));
  missing_[index] = expected;
}

// The first `count` of those that have not been in a version.
bool HostJournal::AreNext(int32_t rank, const Contribution& c) const {
  const std::vector<uint64_t>& steps = published_[static_cast<size_t>(rank)];
  const size_t begin = collected_[static_cast<size_t>(rank)];
  return c.count >= 1 && begin + c.count <= steps.size() && steps[begin] == c.first &&
         steps[begin + c.count - 1] == c.last;
}

void HostJournal::CheckContribution(int32_t rank, uint64_t version, const Contribution& c) {
  const auto index = static_cast<size_t>(rank);
  if (!AreNext(rank, c)) {
    Fail("2: " + Number(version) + " has steps " + std::to_string(c.first) + " to " +
         std::to_string(c.last) + " of " + Name(rank) + " after " +
         std::to_string(collected_[index]) + " of them");
    return;
  }
  collected_[index] += c.count;
  late_ += c.last < version ? 1 : 0;
  merged_ += c.count > 1 ? 1 : 0;
}

void HostJournal::AddSteps(int32_t rank, const Contribution& c, std::vector<std::byte>* to) {
  const RoundLayout& layout = geometry_->layout();
  std::vector<std::byte> one(layout.length_bytes());
  for (const uint64_t step : published_[static_cast<size_t>(rank)]) {
    if (step < c.first || step > c.last) continue;
    RoundJournal::Fill(layout, rank, step, one.data());
    for (const RoundLayout::Tile& tile : layout.tiles()) {
      std::byte* sum = to->data() + tile.offset_bytes;
      const std::byte* inputs[] = {sum, one.data() + tile.offset_bytes};
      ScalarKernels().reduce({.dtype = tile.dtype, .op = Op::kSum},
                             std::span<const std::byte* const>(inputs),
                             std::span<std::byte* const>(&sum, 1), tile.count, Stores::kCached);
    }
  }
}

void HostJournal::OnApplied(int32_t rank, uint64_t version, const RoundModel& model) {
  if (version >= models_.size() || !(model == models_[version]))
    Fail("7: the model of " + Name(rank) + " after " + Number(version) + " is another");
}

// Its replica holds all contributions that are in no version, in order. The replica may not know of
// the last versions yet.
void HostJournal::CheckRank(int32_t rank, const std::vector<Contribution>& held, bool flushed) {
  const auto index = static_cast<size_t>(rank);
  const std::vector<uint64_t>& steps = published_[index];
  const uint64_t last = collected_[index] == 0 ? 0 : steps[collected_[index] - 1];
  for (const Contribution& content : held) {
    if (content.last <= last) continue;
    if (!AreNext(rank, content)) return Fail("2: " + Name(rank) + " holds other steps");
    collected_[index] += content.count;
    if (flushed) Fail("4: finish() has left something with " + Name(rank));
  }
  if (collected_[index] != steps.size())
    Fail("2: " + Name(rank) + " has published " + std::to_string(steps.size()) + " steps, and " +
         std::to_string(collected_[index]) + " are in versions or its replica");
}

}  // namespace covey
