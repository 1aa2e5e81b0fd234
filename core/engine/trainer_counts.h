// What the versions of a training had in them, counted as this rank applies them: for people.
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
  // Contributions by how many steps before the version they were due: 0, 1, 2, 3 to 4, 5 to 8,
  // 9 to 16, more.
  static constexpr size_t kAges = 7;

  explicit TrainerCounts(size_t members) : fresh(members), overdue(members) {}

  // This rank has applied `version`, in which these contributions are, by member.
  void AddVersion(uint64_t version, const std::vector<Contribution>& contributions);
  TrainerCounts& operator+=(const TrainerCounts& more);
  // As covey_trainer_stats has it.
  std::string Json() const;

  uint64_t versions = 0;
  std::vector<uint64_t> fresh;    // by member: versions with its own contribution of that step
  std::vector<uint64_t> overdue;  // by member: how often it has become so
  std::array<uint64_t, kAges> staleness = {};
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_COUNTS_H_
