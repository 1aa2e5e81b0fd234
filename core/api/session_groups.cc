// The groups that a session knows, by their keys.
#include <algorithm>
#include <utility>

#include "core/api/session.h"

namespace covey {
namespace {

// The places of its members.
void Locate(Transport& transport, Group* group) {
  group->hosts = HostsOf(transport, group->members);
  group->shares_memory = transport.words() != nullptr;
}

}  // namespace

Status Session::GroupOf(std::span<const int32_t> ranks, uint64_t* key) {
  auto group = std::make_unique<Group>();
  if (ranks.empty()) return Status::InvalidArgument("a group needs at least one rank");
  for (int32_t r : ranks) {
    if (r < 0 || r >= size())
      return Status::InvalidArgument("rank " + std::to_string(r) + " is not in this job of size " +
                                     std::to_string(size()));
    group->members.push_back(Rank{r});
  }
  auto& members = group->members;
  std::sort(members.begin(), members.end());
  const auto twice = std::adjacent_find(members.begin(), members.end());
  if (twice != members.end())
    return Status::InvalidArgument("rank " + std::to_string(ToInt(*twice)) +
                                   " stands twice in the group");
  group->key = static_cast<int>(members.size()) == size() ? 0 : GroupKey(members);
  const auto me = std::lower_bound(members.begin(), members.end(), rank());
  if (me != members.end() && *me == rank())
    group->my_index = GroupIndex{static_cast<int32_t>(me - members.begin())};
  Locate(transport(), group.get());
  return KeepGroup(std::move(group), key);
}

void Session::MakeWorld() {
  auto world = std::make_unique<Group>();
  for (int32_t r = 0; r < size(); ++r) world->members.push_back(Rank{r});
  world->my_index = GroupIndex{ToInt(rank())};
  Locate(transport(), world.get());
  world_ = groups_.emplace(0, std::move(world)).first->second.get();
}

Status Session::GroupApart(uint64_t of, std::string_view order, uint64_t* key) {
  const Group* like = FindGroup(of);
  if (like == nullptr) return Status::InvalidArgument("no such group: " + std::to_string(of));
  if (order.empty()) return Status::InvalidArgument("order is empty");
  auto group = std::make_unique<Group>(*like);
  group->key = GroupKey(group->members, order);
  return KeepGroup(std::move(group), key);
}

Status Session::KeepGroup(std::unique_ptr<Group> group, uint64_t* key) {
  const std::lock_guard lock(mutex_);
  *key = group->key;
  const auto [it, fresh] = groups_.try_emplace(group->key);
  if (!fresh && it->second->members != group->members)
    return Status::Internal("two groups of this job share the key " + std::to_string(group->key));
  if (fresh) it->second = std::move(group);
  return Status::Ok();
}

const Group* Session::FindGroup(uint64_t key) {
  if (key == 0) return world_;
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(key);
  return found == groups_.end() ? nullptr : found->second.get();
}

}  // namespace covey
