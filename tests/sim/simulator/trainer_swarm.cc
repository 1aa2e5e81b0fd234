#include "tests/sim/simulator/trainer_swarm.h"

namespace covey {
namespace {

std::string MethodOf(Rng* rng, Payload payload, int32_t size) {
  constexpr const char* kAdmit[] = {"solo", "0.5", "all", "majority"};
  const std::string wait = "max_wait=" + std::to_string(100 + rng->Below(2000)) + "us";
  const bool is_local = payload == Payload::kModel && rng->Percent(50);
  if (is_local) return "local:H=" + std::to_string(1 + rng->Below(4)) + "," + wait;
  std::string text = payload == Payload::kModel ? "wagma:" : "eager:";
  text += wait + ",grace=" + std::to_string(rng->Below(100)) + "us";
  text += ",log=" + std::to_string(1 + rng->Below(4));
  if (payload == Payload::kModel) {
    text += ",S=" + std::to_string(1 + rng->Below(static_cast<uint64_t>(size)));
    return text + ",tau=" + std::to_string(1 + rng->Below(4));
  }
  text += std::string(",admit=") + kAdmit[rng->Below(4)];
  if (rng->Percent(30)) text += ",progress=skip";
  if (rng->Percent(30)) text += ",max_staleness=" + std::to_string(1 + rng->Below(4));
  const bool warms_up = payload == Payload::kGradients && rng->Percent(30);
  if (warms_up) text += ",warmup_steps=" + std::to_string(1 + rng->Below(3));
  return text;
}

// A warm-up before rounds of models, or rounds of models after those of gradients.
void HandOver(Rng* rng, TrainerSwarm* s) {
  if (s->payload == Payload::kModel) {
    s->method += ",warmup_steps=" + std::to_string(1 + rng->Below(s->steps));
    return;
  }
  std::string next = MethodOf(rng, Payload::kModel, s->size);
  next.insert(next.find(':'), "@" + std::to_string(4 + rng->Below(s->steps)));
  s->method += ",then=" + next;
}

}  // namespace

TrainerSwarm TrainerSwarm::Draw(Rng* rng, int32_t ranks) {
  TrainerSwarm s{};
  s.size = ranks > 0 ? ranks : static_cast<int32_t>(2 + rng->Below(4));
  s.steps = 2 + rng->Below(10);
  s.finishes = 1 + rng->Below(2);
  s.has_next = rng->Percent(30);
  constexpr Payload kPayloads[] = {Payload::kGradients, Payload::kDelta, Payload::kModel};
  s.payload = kPayloads[rng->Below(3)];
  if (s.payload == Payload::kDelta) s.local_steps = static_cast<int64_t>(1 + rng->Below(3));
  s.method = MethodOf(rng, s.payload, s.size);
  if (s.has_next) s.method += ",then=allreduce@" + std::to_string(4 + rng->Below(s.steps));
  s.goes_on = !s.has_next && rng->Percent(30);
  constexpr uint64_t kSwitch[] = {5, 50, 300};
  s.switch_permille = kSwitch[rng->Below(3)];
  if (rng->Percent(25)) s.unfit_permille = 100 + rng->Below(300);
  if (rng->Percent(40)) s.refusals_permille = 1 + rng->Below(100);
  if (rng->Percent(50)) s.slow_ranks = rng->Next() & rng->Next();
  if (rng->Percent(60)) s.stops_permille = 1 + rng->Below(20);
  // The part after `then` waits for all ranks: a death would stop it.
  if (!s.has_next && rng->Percent(30)) s.most_killed = rng->Below(static_cast<uint64_t>(s.size));
  if (s.has_next) s.unfit_permille = 0;
  // Without a draw, or by others: all else is as the seed has it.
  Rng apart = *rng;
  s.hands_over = !s.has_next && s.payload != Payload::kDelta && apart.Percent(50);
  if (s.hands_over) HandOver(&apart, &s);
  const bool has_gradients = s.payload == Payload::kGradients || s.hands_over;
  s.begins_passes = has_gradients && (s.steps % 2 == 0 || s.hands_over);
  return s;
}

std::string TrainerSwarm::ToString() const {
  const std::string deltas =
      local_steps > 0 ? " of deltas of " + std::to_string(local_steps) + " steps" : "";
  return std::to_string(size) + " ranks, " + method + deltas + ", steps " + std::to_string(steps) +
         " x " + std::to_string(finishes) + (goes_on ? " not strict" : "") + ", switches " +
         std::to_string(switch_permille) + " permille, unfit " + std::to_string(unfit_permille) +
         " permille, refused actions " + std::to_string(refusals_permille) + " permille, stops " +
         std::to_string(stops_permille) + " permille, killed " + std::to_string(most_killed) +
         (begins_passes ? ", passes" : "");
}

}  // namespace covey
