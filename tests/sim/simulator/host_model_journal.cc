#include "tests/sim/simulator/host_model_journal.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace covey {
namespace {

std::string Name(int32_t rank) { return "rank " + std::to_string(rank); }
std::string Number(uint64_t version) { return "version " + std::to_string(version); }

using Terms = std::vector<std::pair<double, const Bytes*>>;

// (times[0] * from[0] + times[1] * from[1] + ...) / divisor, one after the other.
template <typename T>
void CombineAs(const RoundLayout::Tile& tile, const Terms& terms, double divisor, Bytes* to) {
  for (size_t i = 0; i < tile.count; ++i) {
    const size_t at = tile.offset_bytes + i * sizeof(T);
    T sum = 0;
    for (size_t j = 0; j < terms.size(); ++j) {
      T value;
      std::memcpy(&value, terms[j].second->data() + at, sizeof(T));
      value *= static_cast<T>(terms[j].first);
      sum = j == 0 ? value : sum + value;
    }
    sum /= static_cast<T>(divisor);
    std::memcpy(to->data() + at, &sum, sizeof(T));
  }
}

Bytes Combine(const RoundLayout& layout, const Terms& terms, double divisor) {
  Bytes to(layout.length_bytes());
  if (terms.empty()) return to;
  for (const RoundLayout::Tile& tile : layout.tiles()) {
    if (tile.dtype == DType::kF32) CombineAs<float>(tile, terms, divisor, &to);
    if (tile.dtype == DType::kF64) CombineAs<double>(tile, terms, divisor, &to);
  }
  return to;
}

}  // namespace

HostModelJournal::HostModelJournal(const RoundMemory* geometry, const AdmissionRule& rule)
    : geometry_(geometry), rule_(rule) {
  const auto size = static_cast<size_t>(geometry->size());
  exemptable_.resize(size);
  missing_.resize(size);
  contributed_.resize(size);
  begun_.resize(size);
  offered_again_.resize(size);
  published_.resize(size);
}

void HostModelJournal::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

void HostModelJournal::OnFewer(int32_t rank) {
  fewer_ = true;
  exemptable_[static_cast<size_t>(rank)] = true;
}

void HostModelJournal::OnFlushed(int32_t rank, uint64_t executed) {
  if (flushed_at_ == 0) flushed_at_ = executed;
  if (executed != flushed_at_)
    Fail("4: finish() of " + Name(rank) + " ends well after " + Number(executed) +
         ", another one after " + Number(flushed_at_));
  if (executed == 0 || executed > results_.size() || !results_[executed - 1].read.header.final)
    Fail("4: finish() of " + Name(rank) + " ends well without a final version");
}

uint64_t HostModelJournal::LastOfAll(uint64_t version) const {
  const uint64_t ending = geometry_->models().ending;
  if (ending > 0 && ending <= version) return version;
  return version / geometry_->models().sync_every * geometry_->models().sync_every;
}

// Padding between spans belongs to no rank.
bool HostModelJournal::AreEqual(const Bytes& one, const Bytes& other) const {
  const std::vector<RoundLayout::Tile>& tiles = geometry_->layout().tiles();
  return std::all_of(tiles.begin(), tiles.end(), [&](const auto& tile) {
    return std::memcmp(one.data() + tile.offset_bytes, other.data() + tile.offset_bytes,
                       tile.count * SizeOf(tile.dtype)) == 0;
  });
}

void HostModelJournal::OnCommitted(int32_t rank, const ReplicatedEntry& entry) {
  if (entry.version > results_.size() + 1)
    return Fail("1: " + Number(results_.size()) + " is followed by " + Number(entry.version));
  if (entry.version == results_.size() + 1) CheckVersion(entry);
  const Result& known = results_[entry.version - 1];
  if (entry.body.size() < known.record.size() ||
      !std::equal(known.record.begin(), known.record.end(), entry.body.begin()) ||
      known.consumed != entry.consumed || known.missing != entry.missing ||
      known.roles != entry.roles)
    return Fail("1: " + Name(rank) + " has another " + Number(entry.version));
  if (failure_.empty()) CheckMean(rank, entry);
}

void HostModelJournal::CheckVersion(const ReplicatedEntry& entry) {
  Result& result = results_.emplace_back();
  const auto length = static_cast<std::ptrdiff_t>(geometry_->record_bytes());
  result.record.assign(entry.body.begin(), entry.body.begin() + length);
  ReadRecord(*geometry_, entry.body.data(), &result.read);
  result.consumed = entry.consumed;
  result.missing = entry.missing;
  result.roles = entry.roles;
  const RecordHeader& header = result.read.header;
  if (header.version != entry.version)
    return Fail("1: the record of " + Number(entry.version) + " is another");
  const bool of_all = header.final || LastOfAll(entry.version) == entry.version;
  result.sum_of = of_all ? std::vector<int32_t>(missing_.size())
                         : GroupsOf(geometry_->models(), geometry_->size(), entry.version);
  syncs += of_all && !header.final ? 1 : 0;
  finals += header.final ? 1 : 0;
  grouped += of_all ? 0 : 1;
  CheckMembers(result);
  for (const std::byte byte : result.record)
    hash_ = (hash_ ^ static_cast<uint64_t>(byte)) * 1099511628211u;
}

void HostModelJournal::CheckMembers(const Result& result) {
  const RecordHeader& header = result.read.header;
  const uint64_t version = header.version;
  const auto awaited = static_cast<int32_t>(std::count(missing_.begin(), missing_.end(), 0));
  std::vector<Counted> counted;
  for (int32_t i = 0; i < geometry_->size(); ++i) {
    const auto index = static_cast<size_t>(i);
    const bool is_fresh = result.read.contributions[index].last >= version;
    if (awaited == 0 || missing_[index] == 0) counted.push_back({.member = i, .arrived = is_fresh});
    CheckSuspicion(i, result.read);
    CheckMember(i, result);
  }
  const auto fresh =
      std::count_if(counted.begin(), counted.end(), [](const Counted& one) { return one.arrived; });
  const bool needs_all = version <= rule_.warmup || LastOfAll(version) == version;
  const bool enough = needs_all ? fresh == static_cast<std::ptrdiff_t>(counted.size())
                                : rule_.IsMet(counted, version);
  if (!fewer_ && !header.expired && !(awaited == 0 ? fresh > 0 : fresh > 0 && enough))
    Fail("4: " + Number(version) + " has " + std::to_string(fresh) + " fresh members");
}

void HostModelJournal::CheckMember(int32_t rank, const Result& result) {
  const auto index = static_cast<size_t>(rank);
  const uint64_t version = result.read.header.version;
  const Contribution& c = result.read.contributions[index];
  const std::string who = Name(rank) + " in " + Number(version);
  if (c.count == 0) return;
  if (c.count != 1 || c.first != c.last || published_[index].count(c.last) == 0)
    return Fail("2: " + who + " has no step " + std::to_string(c.last));
  if (c.last < contributed_[index])
    Fail("2: " + who + " has step " + std::to_string(c.last) + " after a newer one");
  if (result.consumed[index] != c.last)
    Fail("2: " + Number(version) + " says that another step is the last of " + Name(rank));
  const uint64_t oldest = std::max(version + 1 - std::min(version, geometry_->models().sync_every),
                                   LastOfAll(version - 1));
  const bool is_of_all = result.read.header.final && exemptable_[index];
  if (c.last < oldest && !is_of_all)
    Fail("6: " + who + " has step " + std::to_string(c.last) + ", which is too old");
  passive += c.last < version ? 1 : 0;
  again += c.last == contributed_[index] ? 1 : 0;
  contributed_[index] = c.last;
}

// partial-W8 for models, said another way than in core/partial/suspicion.h.
void HostModelJournal::CheckSuspicion(int32_t rank, const RoundRecord& record) {
  const auto index = static_cast<size_t>(rank);
  const uint64_t version = record.header.version;
  const Contribution& c = record.contributions[index];
  uint64_t* known = &missing_[index];
  uint64_t expected = *known;
  if (*known == 0 && record.header.expired && c.last < version) expected = 3;
  const uint64_t ending = geometry_->models().ending;
  const uint64_t slack = ending > 0 && ending <= version ? 0 : geometry_->models().sync_every / 2;
  if (*known > 0 && LastOfAll(version) == version)
    expected = c.count > 0 && c.last + slack >= version ? *known - 1 : 3;
  if (record.missing[index] == 0 && exemptable_[index]) expected = 0;
  overdue += *known == 0 && expected > 0 ? 1 : 0;
  returned += *known > 0 && expected == 0 && !exemptable_[index] ? 1 : 0;
  if (record.missing[index] != expected)
    Fail("4: after " + Number(version) + " " + Name(rank) + " is to keep up in " +
         std::to_string(expected) + " versions of all, and the record says " +
         std::to_string(record.missing[index]));
  *known = expected;
}

// Its group's, or, where that is empty, that of the first group that is not.
void HostModelJournal::CheckMean(int32_t rank, const ReplicatedEntry& entry) {
  const Result& result = results_[entry.version - 1];
  const int32_t own = result.sum_of[static_cast<size_t>(rank)];
  const bool has_mean = entry.body.size() > result.record.size();
  absent += !has_mean && CountIn(result, own) > 0 ? 1 : 0;
  if (!has_mean) return;
  const Bytes mean(entry.body.begin() + static_cast<std::ptrdiff_t>(result.record.size()),
                   entry.body.end());
  if (!AreEqual(mean, MeanOf(result, GroupFor(rank, result, true))))
    Fail("1: " + Name(rank) + " has not the mean of its group in " + Number(entry.version));
}

int32_t HostModelJournal::CountIn(const Result& result, int32_t sum) const {
  int32_t count = 0;
  for (size_t i = 0; i < result.sum_of.size(); ++i)
    count += result.sum_of[i] == sum && result.read.contributions[i].count > 0 ? 1 : 0;
  return count;
}

int32_t HostModelJournal::GroupFor(int32_t rank, const Result& result, bool needs_one) const {
  const int32_t own = result.sum_of[static_cast<size_t>(rank)];
  if (!needs_one || CountIn(result, own) > 0) return own;
  const int32_t last = *std::max_element(result.sum_of.begin(), result.sum_of.end());
  for (int32_t sum = 0; sum <= last; ++sum)
    if (CountIn(result, sum) > 0) return sum;
  return own;
}

// By host, in rank order there, then in the order of hosts, as their first members have it.
Bytes HostModelJournal::MeanOf(const Result& result, int32_t sum) const {
  std::vector<uint64_t> hosts;
  std::vector<Terms> of_host;
  for (size_t i = 0; i < result.sum_of.size(); ++i) {
    if (result.sum_of[i] != sum || result.roles[i] == 0) continue;
    const uint64_t number = result.roles[i] & ~kByHub;
    const auto at = std::find(hosts.begin(), hosts.end(), number);
    const auto host = static_cast<size_t>(at - hosts.begin());
    if (at == hosts.end()) {
      hosts.push_back(number);
      of_host.emplace_back();
    }
    const Contribution& c = result.read.contributions[i];
    if (c.count > 0) of_host[host].emplace_back(1.0, &ModelOf(static_cast<int32_t>(i), c.last));
  }
  std::erase_if(of_host, [](const Terms& terms) { return terms.empty(); });
  std::vector<Bytes> sums;
  for (const Terms& terms : of_host) sums.push_back(Combine(geometry_->layout(), terms, 1.0));
  Terms all;
  for (const Bytes& one : sums) all.emplace_back(1.0, &one);
  return Combine(geometry_->layout(), all, CountIn(result, sum));
}

void HostModelJournal::OnMerge(int32_t rank, uint64_t step, uint64_t wanted, const Known& known,
                               const Merged& merged, const Bytes& model) {
  const std::string who = Name(rank) + " after step " + std::to_string(step);
  const auto index = static_cast<size_t>(rank);
  const bool must_be_new = LastOfAll(known.executed) > step;
  if (merged.version > results_.size() || (!must_be_new && merged.version < wanted))
    return Fail("3: " + who + " merges with " + Number(merged.version));
  newer += merged.version > wanted ? 1 : 0;
  const Result& result = results_[merged.version - 1];
  const bool is_late = result.read.contributions[index].last != step;
  const bool is_any = result.read.header.leader >= 0;
  const bool is_passed = is_any && LastOfAll(merged.version) > step;
  if (must_be_new && LastOfAll(merged.version) < LastOfAll(known.executed))
    Fail("6: " + who + " goes on from before a version of all");
  const bool takes = known.is_flushed && is_any && merged.version == known.executed;
  const int32_t sum = GroupFor(rank, result, is_late && is_passed);
  const int32_t count = known.has_mean ? CountIn(result, sum) : 0;
  if (merged.late != is_late || merged.count != count)
    return Fail("3: " + who + " is taken for " + (merged.late ? "late" : "in time") + " of " +
                std::to_string(merged.count) + " models, not " + std::to_string(count));
  const uint64_t offered = std::exchange(offered_again_[index], 0);
  if (offered > 0 && offered < step && known.consumed >= offered)
    begun_[index] = ModelOf(rank, offered);
  const bool is_kept = known.has_mean && is_late && is_passed && !takes && known.consumed < step &&
                       !begun_[index].empty();
  Bytes expected = ModelOf(rank, step);
  bool is_mean = false;
  const Bytes mean = MeanOf(result, sum);
  if (count > 0 && is_late && !is_passed && !takes) {
    expected =
        Combine(geometry_->layout(),
                {{static_cast<double>(count), &mean}, {1.0, &ModelOf(rank, step)}}, count + 1.0);
  } else if (count > 0) {
    is_mean = true;
    expected = mean;
    if (is_kept)
      expected = Combine(geometry_->layout(),
                         {{-1.0, &begun_[index]}, {1.0, &ModelOf(rank, step)}, {1.0, &mean}}, 1.0);
  }
  begun_[index] = is_mean ? mean : expected;
  if (merged.kept != is_kept) Fail("3: " + who + " has kept its progress, or lost it");
  if (!AreEqual(model, expected))
    Fail("3: " + who + " has something else than the merge with " + Number(merged.version));
  late += is_late ? 1 : 0;
  anew += is_late && is_passed ? 1 : 0;
  kept += is_kept ? 1 : 0;
  taken += is_late && takes ? 1 : 0;
}

}  // namespace covey
