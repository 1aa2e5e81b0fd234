// Problems to verify algorithms on: every size, memory and dtype that changes a schedule.
#ifndef COVEY_TESTS_UNIT_PLAN_PROBLEMS_H_
#define COVEY_TESTS_UNIT_PLAN_PROBLEMS_H_

#include <algorithm>
#include <vector>

#include "core/base/tensor.h"
#include "core/plan/verify.h"

namespace covey {

// What members hand in: n different lengths around `length_bytes`, some of them nothing.
inline std::vector<uint64_t> UnevenShares(int32_t n, uint64_t length_bytes) {
  std::vector<uint64_t> shares;
  for (int32_t j = 0; j < n; ++j)
    shares.push_back(j % 3 == 1 ? 0 : length_bytes / static_cast<uint64_t>(j + 1) / 8 * 8);
  return shares;
}

// What members have for each other: every row adds up to at most `length_bytes`, unevenly, with
// members that get nothing from some or send nothing at all.
inline std::vector<uint64_t> UnevenBlocks(int32_t n, uint64_t length_bytes) {
  std::vector<uint64_t> blocks;
  for (int32_t i = 0; i < n; ++i) {
    uint64_t left = i % 5 == 3 ? 0 : length_bytes / static_cast<uint64_t>(i + 1);
    for (int32_t j = 0; j < n; ++j) {
      const uint64_t block = (i + j) % 4 == 1 ? 0 : left / static_cast<uint64_t>(n - j) / 8 * 8;
      blocks.push_back(block);
      left -= block;
    }
  }
  return blocks;
}

// Who takes from whom: from the rank before, and some from themselves and from others.
inline std::vector<uint64_t> UnevenPeers(int32_t n) {
  std::vector<uint64_t> takes;
  for (int32_t i = 0; i < n; ++i)
    for (int32_t j = 0; j < n; ++j) {
      const bool own = i == j && (n == 1 || i % 4 != 1);
      const bool other = i != j && (j == (i + n - 1) % n || ((i + j) % 3 == 0 && i % 5 != 2));
      takes.push_back(own || other ? 1 : 0);
    }
  return takes;
}

inline Problem MakeProblem(Kind kind, int32_t size, uint64_t length_bytes, uint64_t slot_bytes,
                           DType dtype = DType::kF32) {
  Problem p{.kind = kind,
            .size = size,
            .root = size / 2,
            .dtype = dtype,
            .length_bytes = kind == Kind::kBarrier ? 0 : length_bytes,
            .slot_bytes = slot_bytes};
  if (Gathers(kind)) p.length_bytes = 0;
  const OutputRule output = TraitsOf(kind).output;
  if (output == OutputRule::kInputs) p.shares = UnevenShares(size, length_bytes);
  if (output == OutputRule::kBlocks) p.shares = UnevenBlocks(size, length_bytes);
  if (output == OutputRule::kMix) p.shares = UnevenPeers(size);
  if (Scatters(kind)) {
    const auto elems = static_cast<int64_t>(length_bytes / SizeOf(dtype));
    for (int32_t j = 0; j < size; ++j)
      p.shares.push_back(
          static_cast<uint64_t>(PartBegin(elems, size, j + 1) - PartBegin(elems, size, j)) *
          SizeOf(dtype));
  }
  return p;
}

// The same in every memory an algorithm may ask for, with none, some and all beginning late, with a
// batch of segments staged at the begin, and with a codec for one that codes.
inline std::vector<Problem> InEveryMemory(const Algorithm& algorithm, Problem problem) {
  std::vector<Problem> problems;
  if (algorithm.codes) problem.form = {.block_elems = 256, .header_bytes = 4, .elem_bits = 8};
  for (const auto& [arena, readable] :
       {std::pair{false, false}, std::pair{true, false}, std::pair{false, true}}) {
    problem.all_arena = arena;
    problem.all_readable = readable;
    problem.unstaged.clear();
    if (!CanDo(algorithm, problem)) continue;
    problems.push_back(problem);
    if (problem.kind == Kind::kAllreduce && !algorithm.codes) {
      problem.staged_segments = std::min(SegmentsOfBatch(problem.depth),
                                         NumSegments(problem.length_bytes, problem.slot_bytes));
      if (problem.staged_segments > 1) problems.push_back(problem);
      problem.staged_segments = 1;
    }
    if (!Reduces(problem.kind) || algorithm.codes || problem.size > 6) continue;
    for (const bool all : {true, false}) {
      if (arena && !all) continue;
      for (int32_t j = 0; j < problem.size; ++j) problem.unstaged.push_back(all || j % 2 == 1);
      problems.push_back(problem);
      problem.unstaged.clear();
    }
  }
  return problems;
}

// The same where ranks share no memory.
inline Problem Mirrored(const Algorithm& algorithm, Problem problem) {
  if (algorithm.codes) problem.form = {.block_elems = 256, .header_bytes = 4, .elem_bits = 8};
  problem.encodes_sums = algorithm.codes;
  problem.mirrored = true;
  return problem;
}

// How members lie on hosts: in pairs; all but one on one; by threes; dealt out to two, and to
// three; hosts of ever more. Only such that some share a host, and not all.
inline std::vector<std::vector<int32_t>> Placements(int32_t size) {
  std::vector<std::vector<int32_t>> all(6);
  for (int32_t r = 0; r < size; ++r) {
    all[0].push_back(r / 2);
    all[1].push_back(r == size - 1 ? 1 : 0);
    all[2].push_back(r / 3);
    all[3].push_back(r % 2);
    all[4].push_back(r % 3);
    const std::vector<int32_t>& grown = all[5];  // 1, 2, 3, ... members
    const auto last = grown.empty() ? 0 : std::count(grown.begin(), grown.end(), grown.back());
    const bool full = grown.empty() || last > grown.back();
    all[5].push_back(grown.empty() ? 0 : grown.back() + (full ? 1 : 0));
  }
  std::erase_if(all, [size](const std::vector<int32_t>& hosts) {
    const int32_t most = *std::max_element(hosts.begin(), hosts.end());
    return size < 3 || most == 0 || most == size - 1;
  });
  return all;
}

// The same on hosts, each of which may have several members. Longer inputs may begin late where
// their readers depend on all begins.
inline std::vector<Problem> OnHosts(const Algorithm& algorithm, const Problem& problem) {
  std::vector<Problem> problems;
  for (std::vector<int32_t>& hosts : Placements(problem.size)) {
    problems.push_back(Mirrored(algorithm, problem));
    problems.back().hosts = std::move(hosts);
  }
  if (!Gathers(problem.kind) || HasRoot(problem.kind) || problem.size > 13) return problems;
  const size_t count = problems.size();
  for (const uint64_t longest : {uint64_t{0}, uint64_t{2000}}) {
    for (size_t i = 0; i < count; ++i) {
      Problem late = problems[i];
      for (int32_t j = 0; j < late.size; ++j)
        late.unstaged.push_back(InputBytes(late, j) > longest);
      problems.push_back(std::move(late));
    }
  }
  return problems;
}

// Few and small, with several segments.
inline std::vector<Problem> SmallProblems(const Algorithm& algorithm) {
  std::vector<Problem> problems;
  for (const int32_t size : {2, 3, 4}) {
    for (const uint64_t length_bytes : {640u, 5 * 16384u + 640u}) {
      std::vector<Problem> fitting =
          InEveryMemory(algorithm, MakeProblem(algorithm.kind, size, length_bytes, 16384));
      // A first segment that comes late comes whole, also the part that nobody needs.
      std::erase_if(fitting, [](const Problem& p) { return !p.unstaged.empty(); });
      if (!fitting.empty()) problems.push_back(fitting.back());
      const Problem mirrored =
          Mirrored(algorithm, MakeProblem(algorithm.kind, size, length_bytes, 16384));
      if (CanDo(algorithm, mirrored)) problems.push_back(mirrored);
      std::vector<Problem> hosted =
          OnHosts(algorithm, MakeProblem(algorithm.kind, size, length_bytes, 16384));
      if (!hosted.empty() && CanDo(algorithm, hosted[0])) problems.push_back(hosted[0]);
    }
  }
  return problems;
}

}  // namespace covey
#endif  // COVEY_TESTS_UNIT_PLAN_PROBLEMS_H_
