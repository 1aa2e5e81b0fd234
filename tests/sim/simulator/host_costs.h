// The cost of a version where no rank is late: its messages, their bytes, and the longest chain of
// them, as replicas of one rank on each host send them (core/replicated).
//
// All replicas take turns in ticks. A message that is written in one tick is read in the next one,
// so ticks count the messages of a chain. A training publishes, waits for its version, and reads
// it; its ranks publish in one tick, or each in a tick of its own that a seed draws. Each version
// is checked: all ranks are in it, once, and the sum is right.
//
// A simulated gradient stands for one of kGradientBytes. It has as many shards as that would have
// by the limits that are shipped (ShardLimits), of 64 bytes each. Heads of messages are as they
// are; bodies of pieces count as those of such a gradient.
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_COSTS_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_COSTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/replicated/replica_message.h"

namespace covey {

inline constexpr uint64_t kGradientBytes = uint64_t{96} << 20;

struct HostCosts {
  std::string failure;  // empty: each version had all ranks, and their sum
  // Per version, of all ranks together.
  std::map<ReplicaMessage::Kind, double> messages;
  std::map<ReplicaMessage::Kind, double> bytes;  // kPiece: heads alone
  // Ticks from the last contribution until all replicas know the version as committed, at most.
  uint64_t depth = 0;
  // By rank: bytes sent and taken per version, pieces as of a gradient of kGradientBytes.
  std::vector<double> sent, taken;

  double Of(ReplicaMessage::Kind kind) const;
  // Messages of all kinds but pieces.
  double SmallMessages() const;
  double SmallBytes() const;
};

struct HostCostOptions {
  int32_t hosts = 2;
  uint64_t shards = 0;    // of a gradient; 0: as shipped
  uint64_t versions = 2;  // that are counted, after one that is not
  uint64_t spread = 1;    // ranks publish within so many ticks
  uint64_t seed = 1;      // of the tick of each
  // With an even number of hosts there is a witness, and a request to it is a failure.
  bool has_witness = false;
};

// The shards of a gradient of kGradientBytes.
uint64_t ShardsOf(int32_t hosts);

HostCosts CountHostCosts(const HostCostOptions& options);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_COSTS_H_
