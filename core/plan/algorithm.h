// The interface an algorithm implements, and the catalogue of those linked in.
//
// An algorithm is a pure function from a Problem to this rank's Schedule. It lives in one file of
// ops/algorithms, registers itself, and is found by name by the selector.
#ifndef COVEY_CORE_PLAN_ALGORITHM_H_
#define COVEY_CORE_PLAN_ALGORITHM_H_

#include <span>
#include <string_view>

#include "core/plan/schedule.h"

namespace covey {

// How a reduction combines the ranks' contributions: always in rank order and on every rank alike.
enum class Association : uint8_t {
  kInTurn,  // one after the other (rule K1): the same bits as every other such algorithm
  kTree,    // in another grouping: floating-point sums differ from those in turn in their last bits
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
};

// Whether `algorithm` can do `problem`.
inline bool CanDo(const Algorithm& algorithm, const Problem& problem) {
  return algorithm.codes == problem.form.Codes() && algorithm.fits(problem);
}

// This rank's schedule. Where somebody's first segment is late and needed, everybody waits for it
// first: one more tick. REQUIRES: CanDo(algorithm, problem).
Schedule BuildSchedule(const Algorithm& algorithm, const Problem& problem);

// All algorithms, sorted by (kind, name).
std::span<const Algorithm* const> Algorithms();
const Algorithm* FindAlgorithm(Kind kind, std::string_view name);  // null: none of that name

struct AlgorithmRegistration {
  explicit AlgorithmRegistration(const Algorithm& algorithm);
};

}  // namespace covey
#endif  // COVEY_CORE_PLAN_ALGORITHM_H_
