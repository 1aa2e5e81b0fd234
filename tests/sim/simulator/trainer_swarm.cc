#include "tests/sim/simulator/trainer_swarm.h"

namespace covey {
namespace {

std::string MethodOf(Rng* rng, Payload payload, int32_t size, bool is_far) {
  constexpr const char* kAdmit[] = {"solo", "0.5", "all", "majority"};
  const std::string wait = "max_wait=" + std::to_string(100 + rng->Below(2000)) + "us";
  // Between hosts local averages deltas.
  const bool is_local = payload == Payload::kModel && rng->Percent(50) && !is_far;
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

// A warm-up before rounds of models, or rounds of models after those of gradients. Returns the step
// at which these begin.
uint64_t HandOver(Rng* rng, TrainerSwarm* s, bool is_far) {
  if (s->payload == Payload::kModel) {
    const uint64_t at = 1 + rng->Below(s->steps);
    s->method += ",warmup_steps=" + std::to_string(at);
    return at;
  }
  std::string next = MethodOf(rng, Payload::kModel, s->size, is_far);
  const uint64_t at = 4 + rng->Below(s->steps);
  next.insert(next.find(':'), "@" + std::to_string(at));
  s->method += ",then=" + next;
  return at;
}

// A part after the rounds of models that follow a hand-over. Returns the step at which it begins.
uint64_t GoOnAfter(Rng* rng, uint64_t at, TrainerSwarm* s) {
  s->has_next = true;
  const uint64_t next = at + 1 + rng->Below(s->steps);
  s->finishes = 2 + rng->Below(2);
  const bool is_in_rounds = rng->Percent(50);
  s->method += is_in_rounds ? ",then=eager@" : ",then=allreduce@";
  s->method += std::to_string(next) + (is_in_rounds ? ":max_wait=1ms" : "");
  return next;
}

}  // namespace

TrainerSwarm TrainerSwarm::Draw(Rng* rng, int32_t ranks, bool is_far) {
  TrainerSwarm s{};
  s.size = ranks > 0 ? ranks : static_cast<int32_t>(2 + rng->Below(4));
  s.steps = 2 + rng->Below(10);
  s.finishes = 1 + rng->Below(2);
  s.has_next = rng->Percent(30);
  s.end = kForever;
  constexpr Payload kPayloads[] = {Payload::kGradients, Payload::kDelta, Payload::kModel};
  s.payload = kPayloads[rng->Below(3)];
  if (s.payload == Payload::kDelta) s.local_steps = static_cast<int64_t>(1 + rng->Below(3));
  s.method = MethodOf(rng, s.payload, s.size, is_far);
  uint64_t at = 0;  // another part begins there
  if (s.has_next) at = 4 + rng->Below(s.steps);
  if (s.has_next) s.method += ",then=allreduce@" + std::to_string(at);
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
  if (s.hands_over) at = HandOver(&apart, &s, is_far);
  if (s.hands_over && apart.Percent(40)) at = GoOnAfter(&apart, at, &s);
  if (at > 0 && apart.Percent(30)) {
    s.end = static_cast<int64_t>(at);
    s.ends_at_once = apart.Percent(50);
    if (s.hands_over && !s.has_next) s.payload = Payload::kGradients;
    s.hands_over &= s.has_next;
    s.has_next = false;
  } else if (s.has_next) {
    s.goes_on |= apart.Percent(30);
    s.unfit_permille = s.most_killed = 0;
  }
  const bool has_gradients = s.payload == Payload::kGradients || s.hands_over;
  s.begins_passes = has_gradients && (s.steps % 2 == 0 || s.hands_over);
  s.gathers = s.goes_on && apart.Percent(50);
  s.longest_delay = static_cast<Time>(1 + apart.Below(100)) * kMicrosecond;
  if (apart.Percent(30)) s.longest_clog = static_cast<Time>(1 + apart.Below(3)) * kMillisecond;
  s.refusal_percent = apart.Percent(30) ? 1 + apart.Below(30) : 0;
  s.settles = !s.goes_on && apart.Percent(30);
  return s;
}

std::string TrainerSwarm::ToString() const {
  const std::string deltas =
      local_steps > 0 ? " of deltas of " + std::to_string(local_steps) + " steps" : "";
  return std::to_string(size) + " ranks, " + method + deltas + ", steps " + std::to_string(steps) +
         " x " + std::to_string(finishes) + (goes_on ? " not strict" : "") +
         (gathers ? " and strict" : "") + (settles ? " settles" : "") + ", switches " +
         std::to_string(switch_permille) + " permille, unfit " + std::to_string(unfit_permille) +
         " permille, refused actions " + std::to_string(refusals_permille) + " permille, stops " +
         std::to_string(stops_permille) + " permille, killed " + std::to_string(most_killed) +
         (begins_passes ? ", passes" : "") +
         (end < kForever ? ", end " + std::to_string(end) + (ends_at_once ? " at once" : "") : "");
}

}  // namespace covey
