// Replicas with links between them that hold what a test holds back.
#ifndef COVEY_TESTS_UNIT_REPLICATED_REPLICA_JOB_H_
#define COVEY_TESTS_UNIT_REPLICATED_REPLICA_JOB_H_

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/replicated/replica.h"

namespace covey {

inline constexpr Time kGrace = kSecond;
inline constexpr Time kTick = kGrace / 10;
inline constexpr Time kLatest = 3600 * kSecond;
inline constexpr uint64_t kSteps = 5;

class ReplicaTest : public testing::Test {
 protected:
  using Links = std::set<std::pair<int32_t, int32_t>>;

  // By default all are waited for, so versions are steps; a silent rank is, for 2 ticks, once.
  void Open(int32_t size, int32_t log = 100, const AdmissionRule& admission = {},
            const ModelRule& models = {}) {
    const RoundSpan spans[] = {{DType::kI64, numbers_}};
    layout_ = std::make_unique<RoundLayout>(spans, 64);
    std::vector<int32_t> hosts;  // each on its own
    for (int32_t r = 0; r < size; ++r) hosts.push_back(r);
    for (int32_t r = 0; r < size; ++r)
      replicas_.push_back(std::make_unique<Replica>(
          Replica::Options{.self = r,
                           .admission = admission,
                           .max_wait = 2 * kTick,
                           .election_timeout = kGrace,
                           .kernels = &ScalarKernels(),
                           .hosts = hosts,
                           .limits = {.least_bytes = 64},
                           .has_witness = has_witness_},
          RoundMemory::Shape{.size = size, .log = log, .models = models}, *layout_));
    runs_.assign(replicas_.size(), true);
  }

  void Close() {
    replicas_.clear();
    links_.clear();
    cut_.clear();
    reaches_no_witness_.clear();
    witness_state_ = witness_requests_ = 0;
    witness_record_.clear();
    under_way_.clear();
  }

  Replica& replica(int32_t rank) { return *replicas_[static_cast<size_t>(rank)]; }
  void Stop(int32_t rank) { runs_[static_cast<size_t>(rank)] = false; }
  void GoOn(int32_t rank) { runs_[static_cast<size_t>(rank)] = true; }
  // Messages over these links, each from one rank to another, wait until the next call.
  void Cut(Links links) { cut_ = std::move(links); }

  void Publish(int32_t rank) {
    const int64_t one = 1;
    std::memcpy(replica(rank).open(), &one, sizeof(one));
    replica(rank).Publish({});
  }

  // Everybody who runs reads up to `most` messages of each other one, and has a look; what was
  // written before a rank was stopped goes its way.
  void Tick(size_t most = 100) {
    now_ += kTick;
    const auto size = static_cast<int32_t>(replicas_.size());
    for (int32_t to = 0; to < size; ++to) {
      if (!runs_[static_cast<size_t>(to)]) continue;
      for (int32_t from = 0; from < size; ++from) {
        std::deque<Bytes>& link = links_[{from, to}];
        if (cut_.contains({from, to})) continue;
        for (size_t n = 0; n < most && !link.empty(); ++n) {
          const Bytes bytes = std::move(link.front());
          link.pop_front();
          replica(to).OnMessage(from, bytes, now_);
        }
      }
      replica(to).Advance(now_);
      CallWitness(to);
      for (EncodedMessage& message : replica(to).TakeMessages())
        links_[{to, message.to}].push_back(message.Whole());
    }
  }
  // The keeper of the witness answers at once, and those that do not reach it once they do.
  void CallWitness(int32_t rank) {
    std::optional<WitnessRequest>& request = under_way_[rank];
    for (;;) {
      if (!request.has_value()) request = replica(rank).TakeWitnessRequest();
      if (!request.has_value() || reaches_no_witness_.contains(rank)) return;
      ++witness_requests_;
      const bool is_taken = !request->record.empty() && request->state == witness_state_;
      if (is_taken) witness_record_ = request->record;
      witness_state_ += is_taken ? 1 : 0;
      const WitnessAnswer answer{.number = request->number,
                                 .state = witness_state_,
                                 .is_taken = is_taken,
                                 .record = witness_record_};
      request.reset();
      replica(rank).OnWitness(answer, now_);
    }
  }
  void Ticks(int count) {
    for (int i = 0; i < count; ++i) Tick();
  }

  // Versions that all of `ranks` know as committed.
  void TrainTo(uint64_t version, const std::vector<int32_t>& ranks) {
    for (int turns = 0; turns < 1000; ++turns) {
      bool all = true;
      for (const int32_t rank : ranks) {
        const uint64_t executed = replica(rank).executed();
        all &= executed >= version;
        if (executed >= replica(rank).step() && executed < version) Publish(rank);
      }
      if (all) return;
      Tick();
    }
    FAIL() << "version " << version << " is not committed";
  }

  // All have published and sent their pieces, and the leader has the sum and has written it to the
  // others, who have not read it.
  void Propose() {
    for (const int32_t rank : {0, 1, 2}) Publish(rank);
    Ticks(2);
    Stop(1);
    Stop(2);
    Tick();
    ASSERT_TRUE(replica(0).log().uncommitted().has_value());
    ASSERT_FALSE(replica(1).log().uncommitted().has_value());
  }

  void Leave(int32_t rank, Time latest = kLatest) {
    replica(rank).Leave();
    replica(rank).LeaveGracefully(now_ + latest);
  }

  // The others leave while it is stopped; when it goes on, it finds the last message of each.
  void LeaveBehind(int32_t rank) {
    const auto size = static_cast<int32_t>(replicas_.size());
    for (int32_t other = 0; other < size; ++other)
      if (other != rank) Leave(other);
    Ticks(80);
    for (auto& [pair, link] : links_)
      if (pair.second == rank) link.erase(link.begin(), link.end() - (link.empty() ? 0 : 1));
    GoOn(rank);
    Ticks(100);
  }

  Time now_ = kSecond;
  size_t numbers_ = 1;  // in a contribution; a shard has 8
  std::unique_ptr<RoundLayout> layout_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<bool> runs_;
  std::map<std::pair<int32_t, int32_t>, std::deque<Bytes>> links_;
  Links cut_;
  bool has_witness_ = false;
  std::set<int32_t> reaches_no_witness_;
  uint64_t witness_state_ = 0, witness_requests_ = 0;
  Bytes witness_record_;
  std::map<int32_t, std::optional<WitnessRequest>> under_way_;  // by rank
};

}  // namespace covey
#endif  // COVEY_TESTS_UNIT_REPLICATED_REPLICA_JOB_H_
