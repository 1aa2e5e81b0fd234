// The interface an algorithm implements, and the catalogue of those linked in.
//
// An algorithm is a pure function from a Problem to this rank's Schedule. It lives in one file of
// ops/algorithms, registers itself, and is found by name by the selector.
#ifndef COVEY_CORE_PLAN_ALGORITHM_H_
#define COVEY_CORE_PLAN_ALGORITHM_H_

#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/plan/schedule.h"

namespace covey {

// How a reduction combines the ranks' contributions: on every rank alike.
enum class Association : uint8_t {
  kInTurn,  // in rank order, one after the other (kernels-K1): the same bits as every other such
            // algorithm
  kTree,    // in rank order, in another grouping: floating-point sums differ in their last bits
  kByHost,  // those of each host in turn, then the hosts' sums in turn: the bits depend on how the
            // ranks lie on hosts, and on nothing else
};

struct SelectorSettings {
  uint64_t flat_bytes = 32 * 1024;  // up to this an allreduce is one flag round
  // Above this, ordinary tensors are read from their owners. Never by default: on a Sapphire Rapids
  // virtual machine (2026-11-21) 64 MiB at np=2 took 20-35 ms read and 13-41 ms staged, at np=4 88
  // and 46 ms.
  uint64_t read_bytes = uint64_t{1} << 40;
  std::string algorithm = "auto";  // or the name of one, used wherever it fits
};

// When the selector takes an algorithm by itself: of those whose conditions hold, the one of the
// highest priority. Sizes are of the whole message.
struct Preference {
  static constexpr int kByNameOnly = -1;
  int priority = kByNameOnly;  // distinct among the algorithms of a kind that it may take
  int32_t min_size = 1;        // members
  bool arena = false;          // only when all members' tensors lie in the arena
  bool hosts = false;          // only where some members share a host and others do not
  bool readable = false;       // only when members may read each other's private memory
  bool segmented = false;      // only when a member's input takes more than one landing slot
  uint64_t SelectorSettings::*above = nullptr;  // only above this many bytes; null = any
};

struct Algorithm {
  const char* name;  // "flat"
  Kind kind;
  // Whether it can do this problem (placement, size). Equal answer on every rank. Ask CanDo.
  bool (*fits)(const Problem&);
  // REQUIRES: CanDo(algorithm, problem). Takes all first segments for staged: call BuildSchedule.
  Schedule (*build)(const Problem&);
  Association association = Association::kInTurn;
  bool codes = false;  // for problems with a codec, and for no others
  Preference prefer{};
};

// Whether `algorithm` can do `problem`.
inline bool CanDo(const Algorithm& algorithm, const Problem& problem) {
  return algorithm.codes == problem.form.Codes() && algorithm.fits(problem);
}

// This rank's schedule. Where a member's first segment is late and needed, all wait for it first:
// one more tick. REQUIRES: CanDo(algorithm, problem).
Schedule BuildSchedule(const Algorithm& algorithm, const Problem& problem);

// All algorithms, sorted by (kind, name).
std::span<const Algorithm* const> Algorithms();
const Algorithm* FindAlgorithm(Kind kind, std::string_view name);  // null: none of that name

// Ok when `name` is "auto" or that of an algorithm linked in; else it lists the names.
Status CheckAlgorithmName(std::string_view name);

struct AlgorithmRegistration {
  explicit AlgorithmRegistration(const Algorithm& algorithm);
};

}  // namespace covey
#endif  // COVEY_CORE_PLAN_ALGORITHM_H_
