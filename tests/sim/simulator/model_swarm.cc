#include "tests/sim/simulator/model_swarm.h"

namespace covey {

ModelSwarm ModelSwarm::Draw(Rng* rng, int32_t ranks) {
  ModelSwarm s{};
  const uint64_t kind = rng->Below(100);
  const uint64_t most = kind < 85 ? 6 : kind < 97 ? 16 : 64;
  const auto drawn_size = static_cast<int32_t>(1 + rng->Below(most));
  s.size = ranks > 0 ? ranks : drawn_size;
  s.log = static_cast<int32_t>(1 + rng->Below(3));
  const auto members = static_cast<uint64_t>(s.size);
  const auto drawn = static_cast<int32_t>(1 + rng->Below(members));
  s.models.group_size = rng->Percent(30) ? (s.size + 1) / 2 : drawn;
  s.models.sync_every = rng->Percent(20) ? 1000 : 1 + rng->Below(6);
  const auto count = static_cast<int32_t>(1 + rng->Below(members));
  const AdmissionRule rules[] = {{.count = 1}, {.count = 1}, {.count = 1}, {}, {.count = count}};
  s.admission = rules[rng->Below(5)];
  if (rng->Percent(20)) s.admission.grace = static_cast<Time>(rng->Below(200)) * kMicrosecond;
  s.overdue = static_cast<Time>(rng->Below(100)) * kMicrosecond;
  for (uint64_t i = 0; i <= rng->Below(3); ++i)
    s.spans.push_back({rng->Percent(50) ? DType::kF32 : DType::kF64, 1 + rng->Below(40)});
  const uint64_t steps = 2 + rng->Below(s.size > 16 ? 4 : 12);
  const bool uneven = rng->Percent(30);
  for (int32_t r = 0; r < s.size; ++r) s.steps.push_back(uneven ? 1 + rng->Below(steps) : steps);
  constexpr uint64_t kSwitch[] = {5, 50, 300, 700};
  s.switch_permille = kSwitch[rng->Below(s.size > 16 ? 2 : 4)];
  s.slow_ranks = rng->Percent(50) ? rng->Next() : 0;
  s.stops_permille = rng->Percent(50) ? 1 + rng->Below(20) : 0;
  s.max_wait = rng->Percent(40) ? kNever : static_cast<Time>(1 + rng->Below(3000)) * kMicrosecond;
  if (rng->Percent(40) && s.max_wait != kNever) s.most_stopped = rng->Below(members);
  if (rng->Percent(30)) s.most_killed = rng->Below(members);
  s.strikes_permille = 1 + rng->Below(60);
  // Those that have given up would have to be brought together again.
  const bool all_finish = s.max_wait == kNever && s.most_killed == 0;
  s.epochs = all_finish && rng->Percent(60) ? 2 : 1;
  Rng apart = *rng;  // a copy, so that seeds of before mean what they did
  if (apart.Percent(25)) s.models.ending = 1 + apart.Below(steps);
  if (apart.Percent(25)) s.looks_percent = 50;
  if (apart.Percent(25)) s.models.cross_every = static_cast<int64_t>(2 + apart.Below(3));
  const uint64_t hosts = 1 + apart.Below(members);
  for (int32_t r = 0; r < s.size; ++r)
    s.models.hosts.push_back(static_cast<int32_t>(apart.Below(hosts)));
  return s;
}

std::string ModelSwarm::ToString() const {
  return std::to_string(size) + " ranks in groups of " + std::to_string(models.group_size) +
         ", all every " + std::to_string(models.sync_every) + " and from " +
         std::to_string(models.ending) + " on, between hosts every " +
         std::to_string(models.cross_every) + ", log " + std::to_string(log) + ", wanted " +
         std::to_string(admission.Wanted(size)) + ", grace " + std::to_string(admission.grace) +
         " ns, max_wait " + (max_wait == kNever ? "none" : std::to_string(max_wait) + " ns") +
         ", steps " + std::to_string(steps[0]) + ", stopped " + std::to_string(most_stopped) +
         ", killed " + std::to_string(most_killed) + ", switches " +
         std::to_string(switch_permille) + " permille";
}

}  // namespace covey
