#include "core/replicated/shard_plan.h"

#include <algorithm>

namespace covey {
namespace {

// Shards begin where elements of any type do.
constexpr size_t kLine = 64;

constexpr size_t Quotient(size_t a, size_t b) { return (a + b - 1) / b; }

}  // namespace

ShardPlan::ShardPlan(const std::vector<uint64_t>& roles, const std::vector<bool>& contributes,
                     size_t length_bytes, const ShardLimits& limits)
    : host_of_(roles.size(), -1) {
  std::vector<uint64_t> numbers;  // by host
  for (size_t i = 0; i < roles.size(); ++i) {
    if (roles[i] == 0) continue;
    const auto at = std::find(numbers.begin(), numbers.end(), roles[i]);
    const auto host = static_cast<size_t>(at - numbers.begin());
    if (at == numbers.end()) {
      numbers.push_back(roles[i]);
      hosts_.emplace_back();
    }
    host_of_[i] = static_cast<int32_t>(host);
    hosts_[host].members.push_back(static_cast<int32_t>(i));
    if (contributes[i]) hosts_[host].contributors.push_back(static_cast<int32_t>(i));
  }
  const bool any = std::any_of(hosts_.begin(), hosts_.end(),
                               [](const Host& host) { return !host.contributors.empty(); });
  if (!any) return;
  size_t most_members = 0;
  for (const Host& host : hosts_) most_members = std::max(most_members, host.members.size());
  // As many for each place of an owner, unless they are too short.
  const size_t places = hosts_.size() * most_members;
  const size_t rounds = std::max<size_t>(1, Quotient(length_bytes, limits.most_bytes * places));
  const size_t even = Quotient(length_bytes, rounds * places);
  const size_t each = Quotient(std::max(even, limits.least_bytes), kLine) * kLine;
  for (size_t offset = 0; offset < length_bytes; offset += each)
    shards_.push_back({offset, std::min(each, length_bytes - offset)});
}

int32_t ShardPlan::DelegateOf(size_t shard, int32_t host) const {
  const std::vector<int32_t>& members = hosts_[static_cast<size_t>(host)].members;
  return members[shard / hosts_.size() % members.size()];
}

bool ShardPlan::HasPart(int32_t member) const {
  const int32_t host = HostOf(member);
  if (host < 0 || shards_.empty()) return false;
  const Host& own = hosts_[static_cast<size_t>(host)];
  if (std::find(own.contributors.begin(), own.contributors.end(), member) != own.contributors.end())
    return true;
  const size_t turns = std::min(shards_.size(), hosts_.size() * own.members.size());
  for (size_t i = 0; i < turns; ++i)
    if (DelegateOf(i, host) == member) return true;
  return false;
}

}  // namespace covey
