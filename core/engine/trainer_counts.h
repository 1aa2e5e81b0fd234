// Counters of the versions of a training: covey_trainer_stats.
#ifndef COVEY_CORE_ENGINE_TRAINER_COUNTS_H_
#define COVEY_CORE_ENGINE_TRAINER_COUNTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/partial/rounds_port.h"

namespace covey {

struct TrainerCounts {
  // Classes of staleness, in steps: 0, 1, 2, 3 to 4, 5 to 8, 9 to 16, more.
  static constexpr size_t kAges = 7;

  explicit TrainerCounts(size_t members) : fresh(members), overdue(members), missing(members) {}

  // This rank has applied `version`. `contributions`: those in it, by member.
  void AddVersion(uint64_t version, const std::vector<Contribution>& contributions);
  TrainerCounts& operator+=(const TrainerCounts& more);
  // In the format of covey_trainer_stats; `steps`: members of TrainerSteps::Json.
  std::string Json(const std::string& steps) const;

  uint64_t versions = 0;
  // Bytes of this rank that the trainer holds: where gradients and model are exchanged from; the
  // contributions and results of rounds, and models of pairs; the method's own arrays; a codec's.
  struct Memory {
    size_t exchange = 0, rounds = 0, pairs = 0, arrays = 0, codec = 0;
  };

  Memory memory;
  uint64_t published = 0;         // contributions of this rank, those with nothing in them too
  uint64_t begun = 0;             // averages with a partner
  uint64_t met = 0;               // steps before which others had averaged with this rank
  std::vector<uint64_t> fresh;    // by member: versions with its contribution of the same step
  std::vector<uint64_t> overdue;  // by member: how often it has become overdue
  uint64_t snapshots = 0;         // states of others that this rank has gone on from
  // These are not sums, but of the rounds that the next step belongs to: the last version that any
  // rank has made; by member, for how many versions it had been overdue in the last one applied.
  uint64_t made = 0;
  std::vector<uint64_t> missing;
  bool is_copied = false;                      // a version is copied before it is applied
  std::array<uint64_t, kAges> staleness = {};  // contributions, by class
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_COUNTS_H_
