#include "core/api/admission_rule.h"

namespace covey {

AdmissionRule RuleOf(const MethodRounds& rounds) {
  const bool is_auto = rounds.grace.kind == Duration::Kind::kAuto;
  AdmissionRule rule{.grace = is_auto ? -rounds.grace_parts : rounds.grace.time,
                     .staleness = static_cast<uint64_t>(rounds.max_staleness)};
  rule.seed = rounds.seed;
  rule.warmup = static_cast<uint64_t>(rounds.warmup);
  rule.ending = static_cast<uint64_t>(rounds.ending);
  if (rounds.admit.kind == AdmitRule::Kind::kCount) rule.count = rounds.admit.count;
  if (rounds.admit.kind == AdmitRule::Kind::kDrawn) rule.drawn = rounds.admit.count;
  if (rounds.admit.kind == AdmitRule::Kind::kFraction) rule.permille = rounds.admit.permille;
  return rule;
}

}  // namespace covey
