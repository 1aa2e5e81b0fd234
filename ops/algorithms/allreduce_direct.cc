// allreduce/direct: tensors that live in the arena are reduced where they are.
//
// Rank i reduces the i-th of n pieces from all inputs and writes it to all outputs:
// no copy, no landing slot. Per rank, n ranks, m bytes: 2 ticks; m bytes read, m bytes written.
//
// Worked example, 3 ranks in place: after all have begun, rank 1 alone touches the second third of
// all three buffers, so it may read three inputs and overwrite them; then all ranks signal and
// wait, because a peer still writing my buffer must be done before I call it mine (plan-S4).
#include <algorithm>

#include "core/plan/algorithm.h"

namespace covey {
namespace {

constexpr uint64_t kAlign = 64;
// A step is the unit in which the executor changes between exchanges.
constexpr uint64_t kStepBytes = 512 * 1024;

bool Fits(const Problem& p) { return p.all_arena && p.length_bytes > 0; }

uint64_t PieceBegin(const Problem& p, int32_t index) {
  const uint64_t lines = (p.length_bytes + kAlign - 1) / kAlign;
  return std::min(p.length_bytes,
                  lines * static_cast<uint64_t>(index) / static_cast<uint64_t>(p.size) * kAlign);
}

Schedule Build(const Problem& p) {
  Schedule s{.algorithm = "direct",
             .steps = {},
             .ticks = 2,
             .slots = 1,
             .touches_peers = true,
             .reads_begin = false};
  const uint64_t end = PieceBegin(p, p.me + 1);
  for (uint64_t at = PieceBegin(p, p.me); at < end; at += kStepBytes) {
    s.steps.push_back({.kind = StepKind::kReduce,
                       // A result that does not stay in the cache anyway need not be read into it
                       // first.
                       .streaming = p.length_bytes * static_cast<uint64_t>(p.size) > p.cache_bytes,
                       .dst = {Place::kOutput, kEveryRank, 0, at},
                       .src = {Place::kInput, kEveryRank, 0, at},
                       .length_bytes = std::min(kStepBytes, end - at)});
  }
  s.steps.push_back({.kind = StepKind::kSignal, .tick = 2});
  s.steps.push_back({.kind = StepKind::kWait, .tick = 2});
  return s;
}

constexpr Algorithm kAlgorithm{
    .name = "direct",
    .kind = Kind::kAllreduce,
    .fits = Fits,
    .build = Build,
    .prefer = {
        .priority = 3, .min_size = 2, .arena = true, .above = &SelectorSettings::flat_bytes}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
