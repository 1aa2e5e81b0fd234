#include "tests/sim/simulator/host_costs.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "core/base/rng.h"
#include "core/replicated/replica.h"

namespace covey {
namespace {

using Kind = ReplicaMessage::Kind;

constexpr size_t kShardBytes = 64;
constexpr uint64_t kMostTicks = 1000;  // for a version
constexpr Time kTick = 10 * kMicrosecond;
// No version of this simulation takes as long, nor a beat that only says that its leader lives.
constexpr Time kElectionTimeout = 100 * kSecond;

class CostSimulation {
 public:
  explicit CostSimulation(const HostCostOptions& options)
      : options_(options),
        rng_(options.seed),
        layout_(std::vector<RoundSpan>{{DType::kI32, options.shards * kShardBytes / 4}},
                kShardBytes),
        publishes_at_(static_cast<size_t>(options.hosts)) {
    const auto size = static_cast<size_t>(options.hosts);
    costs_.sent.resize(size);
    costs_.taken.resize(size);
    std::vector<int32_t> hosts(size);
    std::iota(hosts.begin(), hosts.end(), 0);
    for (int32_t r = 0; r < options.hosts; ++r)
      replicas_.push_back(std::make_unique<Replica>(
          Replica::Options{.self = r,
                           .election_timeout = kElectionTimeout,
                           .kernels = &ScalarKernels(),
                           .hosts = hosts,
                           .limits = {.least_bytes = kShardBytes, .most_bytes = kShardBytes},
                           .has_witness = options.has_witness},
          RoundMemory::Shape{.size = options.hosts, .log = 2}, layout_));
  }

  HostCosts Run() {
    Train(1);  // with the first heartbeats, and the first answers to them
    is_counting_ = true;
    for (uint64_t version = 2; version <= options_.versions + 1 && costs_.failure.empty();
         ++version)
      Train(version);
    const auto versions = static_cast<double>(options_.versions);
    for (auto* by_kind : {&costs_.messages, &costs_.bytes})
      for (auto& [kind, count] : *by_kind) count /= versions;
    for (auto* by_rank : {&costs_.sent, &costs_.taken})
      for (double& bytes : *by_rank) bytes /= versions;
    return std::move(costs_);
  }

 private:
  struct Mail {
    int32_t from = -1;
    EncodedMessage message;
  };

  // One version, until nothing is under way.
  void Train(uint64_t version) {
    for (uint64_t& at : publishes_at_) at = ticks_ + rng_.Below(options_.spread);
    const uint64_t last = *std::max_element(publishes_at_.begin(), publishes_at_.end());
    const uint64_t begin = ticks_;
    uint64_t known_at = 0;
    for (bool is_idle = false; !is_idle || known_at == 0; ++ticks_) {
      if (ticks_ > begin + kMostTicks) return Fail("a version is not made");
      is_idle = Tick();
      const bool all = std::all_of(replicas_.begin(), replicas_.end(), [&](const auto& replica) {
        return replica->executed() >= version;
      });
      if (all && known_at == 0) known_at = ticks_;
    }
    if (is_counting_) costs_.depth = std::max(costs_.depth, known_at - last);
    for (const auto& replica : replicas_) CheckSum(version, replica.get());
  }

  // True: no message is under way, and no rank has yet to publish.
  bool Tick() {
    const std::vector<Mail> mail = std::exchange(mail_, {});
    std::vector<std::vector<const Mail*>> for_rank(replicas_.size());
    for (const Mail& one : mail) for_rank[static_cast<size_t>(one.message.to)].push_back(&one);
    const Time now = kSecond + static_cast<Time>(ticks_) * kTick;
    bool is_idle = true;
    for (int32_t r = 0; r < options_.hosts; ++r) {
      Replica& replica = *replicas_[static_cast<size_t>(r)];
      for (const Mail* one : for_rank[static_cast<size_t>(r)])
        replica.OnMessage(one->from, one->message.Whole(), now);
      if (publishes_at_[static_cast<size_t>(r)] == ticks_) Publish(r);
      is_idle &= publishes_at_[static_cast<size_t>(r)] <= ticks_;
      // A pass of the engine ends when a look at the replica moves no version.
      while (replica.Advance(now) <= now) {
      }
      if (replica.TakeWitnessRequest().has_value()) Fail("the witness is asked");
      for (EncodedMessage& message : replica.TakeMessages()) {
        Count(r, message);
        mail_.push_back({r, std::move(message)});
      }
    }
    return is_idle && mail_.empty();
  }

  void Publish(int32_t rank) {
    Replica& replica = *replicas_[static_cast<size_t>(rank)];
    auto* numbers = reinterpret_cast<int32_t*>(replica.open());
    std::fill_n(numbers, layout_.length_bytes() / sizeof(int32_t), rank + 1);
    replica.Publish({});
  }

  void Count(int32_t from, const EncodedMessage& message) {
    if (!is_counting_) return;
    const auto kind = static_cast<Kind>(message.bytes[0]);
    const bool is_piece = kind == Kind::kPiece;
    const auto head = static_cast<double>(message.bytes.size());
    auto body = static_cast<double>(message.body.size());
    ++costs_.messages[kind];
    costs_.bytes[kind] += is_piece ? head : head + body;
    if (is_piece)
      body *= static_cast<double>(kGradientBytes) / static_cast<double>(layout_.length_bytes());
    costs_.sent[static_cast<size_t>(from)] += head + body;
    costs_.taken[static_cast<size_t>(message.to)] += head + body;
  }

  void CheckSum(uint64_t version, Replica* replica) {
    std::vector<int32_t> sum(layout_.length_bytes() / sizeof(int32_t));
    void* const to[] = {sum.data()};
    RoundRecord record;
    if (replica->Read(version, to, &record) != Found::kYes) return Fail("a version is not there");
    const int32_t right = options_.hosts * (options_.hosts + 1) / 2;
    if (!std::all_of(sum.begin(), sum.end(), [right](int32_t one) { return one == right; }))
      return Fail("a sum is wrong");
    for (const Contribution& one : record.contributions)
      if (one.count != 1 || one.last != version) return Fail("a rank is not in a version, once");
  }

  void Fail(const std::string& what) {
    if (costs_.failure.empty()) costs_.failure = what + ", tick " + std::to_string(ticks_);
  }

  const HostCostOptions options_;
  Rng rng_;
  const RoundLayout layout_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<Mail> mail_;              // in the order of writing
  std::vector<uint64_t> publishes_at_;  // by rank: a tick
  uint64_t ticks_ = 0;
  bool is_counting_ = false;
  HostCosts costs_;
};

double SumOf(const std::map<Kind, double>& by_kind) {
  return std::accumulate(by_kind.begin(), by_kind.end(), 0.0,
                         [](double sum, const auto& one) { return sum + one.second; });
}

}  // namespace

double HostCosts::Of(ReplicaMessage::Kind kind) const {
  const auto found = messages.find(kind);
  return found == messages.end() ? 0 : found->second;
}

double HostCosts::SmallMessages() const { return SumOf(messages) - Of(Kind::kPiece); }

double HostCosts::SmallBytes() const {
  const auto pieces = bytes.find(Kind::kPiece);
  return SumOf(bytes) - (pieces == bytes.end() ? 0 : pieces->second);
}

uint64_t ShardsOf(int32_t hosts) {
  std::vector<uint64_t> roles;
  for (int32_t h = 0; h < hosts; ++h) roles.push_back(1 + static_cast<uint64_t>(h));
  return ShardPlan(roles, std::vector<bool>(roles.size(), true), kGradientBytes, {}).size();
}

HostCosts CountHostCosts(const HostCostOptions& options) {
  HostCostOptions chosen = options;
  if (chosen.shards == 0) chosen.shards = ShardsOf(options.hosts);
  return CostSimulation(chosen).Run();
}

}  // namespace covey
