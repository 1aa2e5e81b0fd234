// reducescatter/direct: inputs that live in the arena are reduced where they are.
//
// Every rank reads its share of all inputs and writes its own output: no copy, no landing
// slot. Per rank, n ranks, m bytes: 2 ticks; m bytes read, m / n written.
//
// Worked example, 3 ranks: rank 1 reduces the middle third of the three inputs into its output;
// then all ranks signal and wait, because a peer still reading my input must be done before I
// call it mine (plan-S4).
#include <algorithm>

#include "core/plan/algorithm.h"

namespace covey {
namespace {

// A step is the unit in which the executor changes between exchanges.
constexpr uint64_t kStepBytes = 512 * 1024;

bool Fits(const Problem& p) { return p.all_arena && p.length_bytes > 0; }

Schedule Build(const Problem& p) {
  Schedule s{.algorithm = "direct",
             .steps = {},
             .ticks = 2,
             .slots = 1,
             .touches_peers = true,
             .reads_begin = false};
  const uint64_t share = p.shares[static_cast<size_t>(p.me)];
  for (uint64_t at = 0; at < share; at += kStepBytes) {
    s.steps.push_back({.kind = StepKind::kReduce,
                       .dst = {Place::kOutput, static_cast<int16_t>(p.me), 0, at},
                       .src = {Place::kInput, kEveryRank, 0, ShareBegin(p, p.me) + at},
                       .length_bytes = std::min(kStepBytes, share - at)});
  }
  s.steps.push_back({.kind = StepKind::kSignal, .tick = 2});
  s.steps.push_back({.kind = StepKind::kWait, .tick = 2});
  return s;
}

constexpr Algorithm kAlgorithm{
    .name = "direct",
    .kind = Kind::kReducescatter,
    .fits = Fits,
    .build = Build,
    .prefer = {
        .priority = 2, .min_size = 2, .arena = true, .above = &SelectorSettings::flat_bytes}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
