#include "tests/sim/simulator/round_swarm.h"

namespace covey {

RoundSwarm RoundSwarm::Draw(Rng* rng, int32_t ranks) {
  RoundSwarm s{};
  s.size = ranks > 0 ? ranks : static_cast<int32_t>(1 + rng->Below(6));
  s.log = static_cast<int32_t>(1 + rng->Below(4));
  const auto count = static_cast<int32_t>(1 + rng->Below(static_cast<uint64_t>(s.size)));
  const AdmissionRule rules[] = {{.count = 1}, {}, {.count = count}, {.permille = 500}};
  s.admission = rules[rng->Below(4)];
  if (rng->Percent(25)) {
    s.admission.drawn = static_cast<int32_t>(1 + rng->Below(3));
    s.admission.seed = rng->Next();
  }
  if (rng->Percent(40)) s.admission.grace = static_cast<Time>(rng->Below(200)) * kMicrosecond;
  s.overdue = static_cast<Time>(rng->Below(100)) * kMicrosecond;
  constexpr DType kTypes[] = {DType::kI64, DType::kI32, DType::kF32};
  for (uint64_t i = 0; i <= rng->Below(3); ++i)
    s.spans.push_back({kTypes[rng->Below(3)], 1 + rng->Below(40)});
  const uint64_t steps = 2 + rng->Below(10);
  const bool uneven = rng->Percent(30);
  for (int32_t r = 0; r < s.size; ++r) s.steps.push_back(uneven ? 1 + rng->Below(steps) : steps);
  constexpr uint64_t kSwitch[] = {5, 50, 300, 700};
  s.switch_permille = kSwitch[rng->Below(4)];
  s.slow_ranks = rng->Percent(50) ? rng->Next() : 0;
  s.stops_permille = rng->Percent(50) ? 1 + rng->Below(20) : 0;
  // For ever only as many as the admission can do without.
  // Any rank may be drawn.
  const int32_t wanted = s.admission.drawn > 0 ? s.size : s.admission.Wanted(s.size);
  const int32_t spare = s.size - wanted;
  // A rank that ends early is as good as stopped, when its finish() cannot be waited for; and a
  // rank that skips ahead goes on when others have ended.
  // With max_wait any rank.
  s.max_wait = rng->Percent(50) ? kNever : static_cast<Time>(1 + rng->Below(2000)) * kMicrosecond;
  const bool bounded = s.max_wait != kNever;
  const bool all_needed = wanted > 1 && !bounded;
  if (rng->Percent(40) && !all_needed)
    s.most_stopped = rng->Below(static_cast<uint64_t>(bounded ? s.size : spare + 1));
  const bool all_spared = s.most_stopped == 0 || wanted == 1 || bounded;
  if (rng->Percent(30) && all_spared) s.most_killed = rng->Below(static_cast<uint64_t>(s.size));
  if (rng->Percent(40)) {
    s.admission.staleness = 1 + rng->Below(4);
    if (!bounded) s.most_stopped = 0;  // all wait for a rank too far behind
  }
  s.skips_ahead = rng->Percent(30);
  s.strikes_permille = 1 + rng->Below(60);
  if (rng->Percent(30)) s.DrawLaggards(rng);
  s.snapshot_overdue = static_cast<Time>(rng->Below(1000)) * kMicrosecond;
  s.empty_permille = rng->Percent(25) ? 100 + rng->Below(600) : 0;
  // A warm-up needs all: as one that needs them for good.
  if (rng->Percent(25) && (bounded || s.most_stopped == 0)) s.admission.warmup = rng->Below(steps);
  s.retractions_permille = rng->Percent(20) ? 300 : 0;
  // As those of a warm-up. Of a copy, so that seeds of before mean what they did.
  Rng apart = *rng;
  if (apart.Percent(25) && (bounded || s.most_stopped == 0))
    s.admission.ending = 1 + apart.Below(steps);
  return s;
}

// Ranks that fall out of the log again and again.
void RoundSwarm::DrawLaggards(Rng* rng) {
  log = 1;
  stops_permille = 20;
  slow_ranks = rng->Next() & rng->Next();
  for (uint64_t& count : steps) count += 10;
}

std::string RoundSwarm::ToString() const {
  return std::to_string(size) + " ranks, log " + std::to_string(log) + ", wanted " +
         std::to_string(admission.Wanted(size)) + ", drawn " + std::to_string(admission.drawn) +
         ", warm-up " + std::to_string(admission.warmup) + ", may end from " +
         std::to_string(admission.ending) + " on, grace " + std::to_string(admission.grace) +
         " ns" + (skips_ahead ? ", skips" : "") + ", staleness " +
         std::to_string(admission.staleness) + ", max_wait " +
         (max_wait == kNever ? "none" : std::to_string(max_wait) + " ns") + ", steps " +
         std::to_string(steps[0]) + ", stopped " + std::to_string(most_stopped) + ", killed " +
         std::to_string(most_killed) + ", switches " + std::to_string(switch_permille) +
         " permille, empty steps " + std::to_string(empty_permille) + " permille, retractions " +
         std::to_string(retractions_permille) + " permille";
}

}  // namespace covey
