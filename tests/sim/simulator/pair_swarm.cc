#include "tests/sim/simulator/pair_swarm.h"

#include <iterator>

namespace covey {
namespace {

PairRule DrawRule(Rng* rng, int32_t size) {
  PairRule rule;
  rule.topology.size = size;
  rule.topology.seed = rng->Next();
  do rule.topology.kind = kPairKinds[rng->Below(kNumPairKinds)];
  while (!CheckPairs(rule.topology).ok());
  rule.all_begin = rng->Percent(30);
  rule.local_steps = static_cast<int64_t>(1 + rng->Below(4));
  rule.is_random = rng->Percent(50);
  rule.non_blocking = rng->Percent(50);
  return rule;
}

}  // namespace

PairSwarm PairSwarm::Draw(Rng* rng, int32_t ranks) {
  PairSwarm s{};
  s.size = ranks > 0 ? ranks : static_cast<int32_t>(1 + rng->Below(6));
  const auto members = static_cast<uint64_t>(s.size);
  for (uint64_t i = 0; i <= rng->Below(3); ++i)
    s.spans.push_back({rng->Percent(50) ? DType::kF32 : DType::kF64, 1 + rng->Below(24)});
  const uint64_t steps = 2 + rng->Below(s.size > 16 ? 3 : 12);
  const bool uneven = rng->Percent(40);
  for (int32_t r = 0; r < s.size; ++r) s.steps.push_back(uneven ? 1 + rng->Below(steps) : steps);
  s.exchange_percent = rng->Percent(50) ? 100 : 20 + rng->Below(80);
  s.half_ask = rng->Percent(40);
  s.tries = rng->Percent(50) ? 1 : 4;
  constexpr uint64_t kSwitch[] = {5, 50, 300, 700};
  s.switch_permille = kSwitch[rng->Below(s.size > 16 ? 2 : 4)];
  s.slow_ranks = rng->Percent(50) ? rng->Next() : 0;
  s.stops_permille = rng->Percent(50) ? 1 + rng->Below(20) : 0;
  if (rng->Percent(40)) s.most_stopped = rng->Below(members);
  if (rng->Percent(30)) s.most_killed = rng->Below(members);
  s.strikes_permille = 1 + rng->Below(60);
  s.epochs = s.most_stopped + s.most_killed == 0 && rng->Percent(60) ? 2 : 1;
  s.stops_at_words = rng->Percent(25);
  s.by_rule = rng->Percent(25);
  s.rule = DrawRule(rng, s.size);
  s.keeps_own = s.strikes_permille % 5 == 0;  // Not drawn: what seeds are known for stays.
  s.gives_up = s.strikes_permille % 2 == 0;
  constexpr const char* kCodecs[] = {"lattice@4",   "bf16",           "lattice@8", "lattice@8",
                                     "bf16@random", "lattice@11",     "int8@16",   "lattice@16",
                                     "fp16",        "qsgd@8+block=16"};
  const uint64_t codec = s.strikes_permille / 3;
  s.codec = s.strikes_permille % 3 == 2 ? kCodecs[codec % std::size(kCodecs)] : "";
  return s;
}

PairCodec ParsePairCodec(const std::string& text) {
  PairCodec chosen;
  CodecText read;
  if (text.empty() || !ReadCodecText(text, CodecUse::kPairs, &read).ok()) return chosen;
  chosen.codec = FindReferenceCodec(read.name);
  chosen.values = read.values;
  if (chosen.codec == nullptr && !ParseCodec(read.text, &chosen.alone).ok()) return {};
  return chosen;
}

std::string PairSwarm::ToString() const {
  return std::to_string(size) + " ranks, steps " + std::to_string(steps[0]) + ", exchanges " +
         std::to_string(exchange_percent) + " %" + (half_ask ? " by even ranks" : "") +
         (by_rule ? std::string(", by the rule of ") + NameOf(rule.topology.kind) +
                        (rule.all_begin ? "" : ", one of two begins") +
                        (rule.is_random ? ", about " : ", ") + std::to_string(rule.local_steps) +
                        " local steps" + (rule.non_blocking ? ", copies" : "")
                  : "") +
         ", stopped " + std::to_string(most_stopped) + ", killed " + std::to_string(most_killed) +
         ", switches " + std::to_string(switch_permille) + " permille, epochs " +
         std::to_string(epochs) + (keeps_own ? ", models stay own" : "") +
         (gives_up ? ", some give up finishing" : "") + (codec.empty() ? "" : ", " + codec);
}

}  // namespace covey
