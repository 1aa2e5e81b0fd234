// Problems to verify algorithms on: every size, memory and dtype that changes a schedule.
#ifndef COVEY_TESTS_UNIT_PLAN_PROBLEMS_H_
#define COVEY_TESTS_UNIT_PLAN_PROBLEMS_H_

#include <vector>

#include "core/plan/verify.h"

namespace covey {

// What members hand in: n different lengths around `length_bytes`, some of them nothing.
inline std::vector<uint64_t> UnevenShares(int32_t n, uint64_t length_bytes) {
  std::vector<uint64_t> shares;
  for (int32_t j = 0; j < n; ++j)
    shares.push_back(j % 3 == 1 ? 0 : length_bytes / static_cast<uint64_t>(j + 1) / 8 * 8);
  return shares;
}

inline Problem MakeProblem(Kind kind, int32_t size, uint64_t length_bytes, uint64_t slot_bytes) {
  Problem p{.kind = kind,
            .size = size,
            .root = size / 2,
            .length_bytes = kind == Kind::kBarrier ? 0 : length_bytes,
            .slot_bytes = slot_bytes};
  if (kind == Kind::kAllgather) {
    p.length_bytes = 0;
    p.gathered = UnevenShares(size, length_bytes);
  }
  return p;
}

// The same in every memory an algorithm may ask for.
inline std::vector<Problem> InEveryMemory(const Algorithm& algorithm, Problem problem) {
  std::vector<Problem> problems;
  for (const auto& [arena, readable] :
       {std::pair{false, false}, std::pair{true, false}, std::pair{false, true}}) {
    problem.all_arena = arena;
    problem.all_readable = readable;
    if (algorithm.fits(problem)) problems.push_back(problem);
  }
  return problems;
}

// Few and small, with several segments.
inline std::vector<Problem> SmallProblems(const Algorithm& algorithm) {
  std::vector<Problem> problems;
  for (const int32_t size : {2, 3, 4}) {
    for (const uint64_t length_bytes : {640u, 5 * 16384u + 640u}) {
      const std::vector<Problem> fitting =
          InEveryMemory(algorithm, MakeProblem(algorithm.kind, size, length_bytes, 16384));
      if (!fitting.empty()) problems.push_back(fitting.back());
    }
  }
  return problems;
}

}  // namespace covey
#endif  // COVEY_TESTS_UNIT_PLAN_PROBLEMS_H_
