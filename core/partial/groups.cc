#include "core/partial/groups.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/base/check.h"
#include "core/plan/host_rounds.h"

namespace covey {
namespace {

int32_t LogOf(int32_t power_of_two) {
  return std::countr_zero(static_cast<uint32_t>(power_of_two));
}

bool IsPowerOfTwo(int32_t number) { return std::has_single_bit(static_cast<uint32_t>(number)); }

// The bits in which the members of a group differ.
uint32_t BitsOf(int32_t log_size, int32_t log_group, uint64_t version) {
  uint32_t bits = 0;
  const auto count = static_cast<uint64_t>(log_group);
  for (uint64_t r = 0; r < count && log_size > 0; ++r)
    bits |= uint32_t{1} << ((version * count + r) % static_cast<uint64_t>(log_size));
  return bits;
}

// d, the base-`base` digits that indices below `size` have; at least one.
uint64_t DigitsOf(int64_t size, int64_t base) {
  uint64_t digits = 1;
  for (int64_t reach = base; reach < size; reach *= base) ++digits;
  return digits;
}

// The common bits of the members of a group.
int64_t KeyOf(int32_t member, int32_t size, int32_t group_size, uint64_t version) {
  if (group_size == 1) return member;
  if (IsPowerOfTwo(size) && IsPowerOfTwo(group_size))
    return static_cast<uint32_t>(member) & ~BitsOf(LogOf(size), LogOf(group_size), version);
  const uint64_t digits = DigitsOf(size, group_size);
  const uint64_t state = version / digits % static_cast<uint64_t>(size);
  const auto rotated =
      static_cast<int64_t>((static_cast<uint64_t>(member) + state) % static_cast<uint64_t>(size));
  int64_t unit = 1;
  for (uint64_t i = 0; i < version % digits; ++i) unit *= group_size;
  return rotated - rotated / unit % group_size * unit;
}

HostRounds RoundsOf(const ModelRule& rule) { return {rule.hosts, rule.cross_every}; }

// The groups of one host, or of one set of members of different hosts, from number `first` on.
void DivideSubset(const RankSubset& subset, int32_t group_size, int32_t first,
                  std::vector<int32_t>* groups) {
  const auto size = static_cast<int32_t>(subset.ranks.size());
  const std::vector<int32_t> own = GroupsOf(size, std::min(group_size, size), subset.round);
  for (size_t i = 0; i < own.size(); ++i)
    (*groups)[static_cast<size_t>(subset.ranks[i])] = first + own[i];
}

// Numbers 0, 1, ... in the order of their first members.
std::vector<int32_t> InOrder(std::vector<int32_t> groups) {
  std::vector<int32_t> numbers(groups.size(), -1);
  int32_t count = 0;
  for (int32_t& group : groups) {
    int32_t& number = numbers[static_cast<size_t>(group)];
    if (number < 0) number = count++;
    group = number;
  }
  return groups;
}

}  // namespace

std::vector<int32_t> GroupsOf(int32_t size, int32_t group_size, uint64_t version) {
  CHECK(group_size >= 1 && group_size <= size, "a group has 1 to all members");
  std::vector<int32_t> groups;
  std::vector<std::pair<int64_t, int32_t>> known;  // sorted: key, group
  int32_t count = 0;
  for (int32_t member = 0; member < size; ++member) {
    const std::pair key{KeyOf(member, size, group_size, version), int32_t{-1}};
    auto at = std::lower_bound(known.begin(), known.end(), key);
    if (at == known.end() || at->first != key.first) at = known.insert(at, {key.first, count++});
    groups.push_back(at->second);
  }
  return groups;
}

std::vector<int32_t> GroupsOf(const ModelRule& rule, int32_t size, uint64_t version) {
  const HostRounds rounds = RoundsOf(rule);
  if (!rounds.Divide()) return GroupsOf(size, rule.group_size, version);
  CHECK(rule.hosts.size() == static_cast<size_t>(size), "each member lies on a host");
  std::vector<int32_t> groups(static_cast<size_t>(size), -1);
  int32_t first = 0;
  for (int32_t member = 0; member < size; ++member) {
    if (groups[static_cast<size_t>(member)] >= 0) continue;
    // partial-W12: a group is of members of one host, or of different ones.
    const RankSubset subset = SubsetOf(rounds, version, member);
    DivideSubset(subset, rule.group_size, first, &groups);
    first += static_cast<int32_t>(subset.ranks.size());
  }
  return InOrder(std::move(groups));
}

int32_t MostGroups(int32_t size, int32_t group_size) {
  const uint64_t digits = group_size == 1 ? 1 : DigitsOf(size, group_size);
  int32_t most = 0;
  // Rotating the indices does not change how many groups there are.
  for (uint64_t version = 0; version < digits; ++version) {
    const std::vector<int32_t> groups = GroupsOf(size, group_size, version);
    most = std::max(most, 1 + *std::max_element(groups.begin(), groups.end()));
  }
  return most;
}

int32_t MostGroups(const ModelRule& rule, int32_t size) {
  const HostRounds rounds = RoundsOf(rule);
  if (!rounds.Divide()) return MostGroups(size, rule.group_size);
  int32_t most = 0;
  // One version within hosts, and one between them: subsets of a kind are the same in all.
  for (const uint64_t version : {uint64_t{0}, static_cast<uint64_t>(rule.cross_every - 1)}) {
    int32_t count = 0;
    for (int32_t member = 0; member < size; ++member) {
      const RankSubset subset = SubsetOf(rounds, version, member);
      const auto own = static_cast<int32_t>(subset.ranks.size());
      if (subset.index == 0) count += MostGroups(own, std::min(rule.group_size, own));
    }
    most = std::max(most, count);
  }
  return most;
}

}  // namespace covey
