// A plan's sum has each contribution once, comes to each member once, and loads members and hosts
// evenly, whatever the make-up.
//
// Method: the messages of a plan are walked through as core/replicated/formation.h sends them, and
// counted; make-ups are all of up to four hosts with up to three members, each role and
// contribution drawn, and some large ones.
#include "core/replicated/shard_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/base/rng.h"

namespace covey {
namespace {

struct Job {
  std::vector<uint64_t> roles;
  std::vector<bool> contributes;
};

struct Traffic {
  std::vector<size_t> sent, taken;         // bytes, by member
  std::map<uint64_t, size_t> left_host;    // bytes that leave it, by its role
  std::vector<std::vector<int>> received;  // of sums: by member and shard
};

Traffic Walk(const Job& job, const ShardPlan& plan) {
  const size_t size = job.roles.size();
  Traffic traffic{.sent = std::vector<size_t>(size),
                  .taken = std::vector<size_t>(size),
                  .left_host = {},
                  .received = std::vector<std::vector<int>>(size, std::vector<int>(plan.size()))};
  const auto send = [&](int32_t from, int32_t to, size_t length_bytes) {
    if (from == to) return;
    const auto i = static_cast<size_t>(from), j = static_cast<size_t>(to);
    traffic.sent[i] += length_bytes;
    traffic.taken[j] += length_bytes;
    if (job.roles[i] == job.roles[j]) return;
    traffic.left_host[job.roles[i]] += length_bytes;
  };
  for (size_t shard = 0; shard < plan.size(); ++shard) {
    const size_t length = plan.shard(shard).length_bytes;
    const int32_t owner = plan.OwnerOf(shard);
    std::vector<int> counted(size);
    for (size_t h = 0; h < plan.hosts().size(); ++h) {
      const int32_t delegate = plan.DelegateOf(shard, static_cast<int32_t>(h));
      for (const int32_t member : plan.hosts()[h].contributors) {
        send(member, delegate, length);
        ++counted[static_cast<size_t>(member)];
      }
      if (!plan.hosts()[h].contributors.empty()) send(delegate, owner, length);
      send(owner, delegate, length);
      for (const int32_t member : plan.hosts()[h].members) {
        send(delegate, member, length);
        ++traffic.received[static_cast<size_t>(member)][shard];
      }
    }
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(counted[i], job.contributes[i] ? 1 : 0);
  }
  return traffic;
}

// Hosts with so many members each, which all take part and contribute.
Job Full(const std::vector<int>& members) {
  Job job;
  for (size_t host = 0; host < members.size(); ++host)
    for (int i = 0; i < members[host]; ++i) job.roles.push_back(1 + host);
  job.contributes.assign(job.roles.size(), true);
  return job;
}

void ExpectCover(const ShardPlan& plan, size_t length_bytes) {
  size_t next = 0;
  for (size_t shard = 0; shard < plan.size(); ++shard) {
    EXPECT_EQ(plan.shard(shard).offset_bytes, next);
    EXPECT_EQ(next % 64, 0u);
    next += plan.shard(shard).length_bytes;
  }
  EXPECT_EQ(next, length_bytes);
}

TEST(ShardPlanTest, SendsEachShardToEachMemberOnce) {
  Rng rng(1);
  for (int run = 0; run < 2000; ++run) {
    Job job;
    const uint64_t hosts = 1 + rng.Below(4);
    for (uint64_t i = 0; i <= rng.Below(12); ++i) {
      job.roles.push_back(rng.Percent(80) ? 1 + rng.Below(hosts) : 0);
      job.contributes.push_back(job.roles.back() > 0 && rng.Percent(70));
    }
    const size_t length = 1 + rng.Below(5000);
    const ShardPlan plan(job.roles, job.contributes, length,
                         {.least_bytes = 64, .most_bytes = 256});
    const bool any = std::count(job.contributes.begin(), job.contributes.end(), true) > 0;
    EXPECT_EQ(plan.size() > 0, any);
    if (!any) continue;
    ExpectCover(plan, length);
    const Traffic traffic = Walk(job, plan);
    for (size_t i = 0; i < job.roles.size(); ++i) {
      EXPECT_EQ(plan.HostOf(static_cast<int32_t>(i)) < 0, job.roles[i] == 0);
      for (const int times : traffic.received[i]) EXPECT_EQ(times, job.roles[i] > 0 ? 1 : 0);
      if (traffic.sent[i] > 0) {
        EXPECT_TRUE(plan.HasPart(static_cast<int32_t>(i)));
      }
    }
  }
}

// As a two-level allreduce: from each of H hosts 2 (H - 1) / H of the sum.
TEST(ShardPlanTest, LoadsMembersAndHostsEvenly) {
  constexpr size_t kLength = 102'228'128;  // 25.5 M parameters
  for (const std::vector<int>& members : std::vector<std::vector<int>>{{1, 1},
                                                                       {2, 2},
                                                                       {1, 1, 1, 1},
                                                                       {4, 4},
                                                                       {3, 1},
                                                                       {8, 8, 8},
                                                                       {4, 2, 1},
                                                                       {5},
                                                                       std::vector<int>(64, 1),
                                                                       std::vector<int>(16, 8)}) {
    const Job job = Full(members);
    const ShardPlan plan(job.roles, job.contributes, kLength, {});
    const Traffic traffic = Walk(job, plan);
    const auto hosts = static_cast<double>(members.size());
    const bool are_equal =
        std::all_of(members.begin(), members.end(), [&](int one) { return one == members[0]; });
    size_t sum = 0;
    for (const size_t sent : traffic.sent) sum += sent;
    const double mean = static_cast<double>(sum) / static_cast<double>(job.roles.size());
    for (size_t i = 0; i < job.roles.size(); ++i) {
      for (const size_t bytes : {traffic.sent[i], traffic.taken[i]}) {
        EXPECT_LE(static_cast<double>(bytes), 2.2 * kLength);
        if (are_equal) {
          EXPECT_LE(static_cast<double>(bytes), 1.2 * mean);
        }
      }
    }
    for (const auto& [host, bytes] : traffic.left_host)
      EXPECT_NEAR(static_cast<double>(bytes), 2 * (hosts - 1) / hosts * kLength, 0.05 * kLength);
    for (size_t shard = 0; shard < plan.size(); ++shard)
      EXPECT_LE(plan.shard(shard).length_bytes, (size_t{1} << 20) + 64);
  }
}

// One rank alone has something to give: it sends it once, and others spread it.
TEST(ShardPlanTest, OneContributorDoesNotSendToAll) {
  constexpr size_t kLength = size_t{64} << 20;
  Job job = Full(std::vector<int>(16, 1));
  job.contributes.assign(16, false);
  job.contributes[3] = true;
  const Traffic traffic = Walk(job, ShardPlan(job.roles, job.contributes, kLength, {}));
  for (const size_t sent : traffic.sent) EXPECT_LE(static_cast<double>(sent), 2.0 * kLength);
}

TEST(ShardPlanTest, ShortSumsGoInOneShard) {
  const Job job = Full({1, 1, 1, 1});
  EXPECT_EQ(ShardPlan(job.roles, job.contributes, 1000, {}).size(), 1u);
}

}  // namespace
}  // namespace covey
