#include "tests/sim/simulator/trainer_pairs_swarm.h"

#include <algorithm>

namespace covey {
namespace {

// A part beside the pairs. `warm_ups`: it may begin with that many lengths of a warm-up.
std::string Others(Rng* rng, uint64_t warm_ups) {
  const std::string wait = "max_wait=" + std::to_string(300 + rng->Below(3000)) + "us";
  const std::string local = "H=" + std::to_string(1 + rng->Below(4)) + "," + wait;
  constexpr const char* kAdmit[] = {"solo", "0.5", "all", "majority"};
  const std::string warm_up = ",warmup_steps=" + std::to_string(rng->Below(warm_ups));
  switch (rng->Below(8)) {
    case 0:
      return "allreduce";
    case 1:
      return "eager:" + wait + ",admit=" + kAdmit[rng->Below(4)];
    case 2:
      return "wagma:" + wait + ",S=2,tau=" + std::to_string(1 + rng->Below(4)) + warm_up;
    case 3:
      return "local:" + local;
    case 4:
      return "local:H=" + std::to_string(1 + rng->Below(4));
    case 5:
      return rng->Percent(50) ? "dpsgd:topology=ring" : "dpsgd:topology=exponential,order=atc";
    case 6:
      return "swarm:max_wait=" + std::to_string(1 + rng->Below(3)) + "ms";
    default:
      return "diloco:" + local;
  }
}

}  // namespace

TrainerPairsSwarm::TrainerPairsSwarm(Rng* rng, int32_t ranks, bool mixes, bool is_far) {
  size = ranks > 0 ? ranks : static_cast<int32_t>(2 + rng->Below(5));
  const bool is_swarm = rng->Percent(50);
  method = is_swarm ? "swarm:H=" + std::to_string(1 + rng->Below(4)) : "adpsgd:";
  if (is_swarm && rng->Percent(40)) method += ",steps=geometric";
  if (is_swarm && rng->Percent(40)) method += ",exchange=nonblocking";
  if (!is_swarm) method += rng->Percent(50) ? "topology=ring" : "topology=full";
  method += ",seed=" + std::to_string(1 + rng->Below(9));
  method += ",max_wait=" + std::to_string(1 + rng->Below(4)) + "ms";
  steps = rng->Below(12);
  epochs = 1 + rng->Below(3);
  settles = rng->Next();
  finishes_twice = settles >> 62 == 0;
  is_strict = !rng->Percent(25);
  trains_on = rng->Percent(50) ? 30 : 0;
  constexpr uint64_t kSwitch[] = {5, 50, 300};
  switch_permille = kSwitch[rng->Below(3)];
  if (rng->Percent(40)) refusals_permille = 1 + rng->Below(100);
  if (rng->Percent(60)) stops_permille = 1 + rng->Below(20);
  if (rng->Percent(50)) looks_percent = 30;
  if (rng->Percent(50)) slow_ranks = rng->Next() & rng->Next();
  if (rng->Percent(30)) most_killed = rng->Below(static_cast<uint64_t>(size));
  Rng apart = *rng;
  per_host = static_cast<int32_t>(1 + apart.Below(static_cast<uint64_t>(size - 1)));
  longest_delay = static_cast<Time>(1 + apart.Below(200)) * kMicrosecond;
  if (apart.Percent(30)) longest_clog = static_cast<Time>(1 + apart.Below(3)) * kMillisecond;
  if (apart.Percent(30)) refusal_percent = 20;
  if (mixes) Mix(&apart, is_far);
}

// The pairs are one part of several.
void TrainerPairsSwarm::Mix(Rng* rng, bool is_far) {
  is_mixed = true;
  steps = 2 + rng->Below(8);
  const uint64_t at = 1 + rng->Below(steps), next = at + 1 + rng->Below(steps);
  const std::string cross = ",cross_every=" + std::to_string(is_far ? 1 + rng->Below(3) : 1);
  const std::string pairs = method + cross;
  const bool begins_with_pairs = rng->Percent(30), ends_with_others = rng->Percent(40);
  std::string others = Others(rng, begins_with_pairs ? 1 : at);
  if (others.starts_with("wagma")) others += cross;
  method = begins_with_pairs ? pairs : others;
  AddPart(begins_with_pairs ? others : pairs, at);
  // Elsewhere the others wait for all, or train on in rounds that have an end.
  if (!begins_with_pairs || others.find("us") == std::string::npos) most_killed = 0;
  if (!begins_with_pairs && ends_with_others) AddPart(Others(rng, 1), next);
  // In rounds without an end those that have gone on need not meet the others again.
  is_strict |= begins_with_pairs || ends_with_others;
}

void TrainerPairsSwarm::AddPart(std::string part, uint64_t step) {
  part.insert(std::min(part.find(':'), part.size()), "@" + std::to_string(step));
  const bool has_settings = method.find(':', method.rfind('@') + 1) != std::string::npos;
  method += (has_settings ? ",then=" : ":then=") + part;
}

std::string TrainerPairsSwarm::ToString() const {
  return std::to_string(size) + " ranks, " + method + ", steps " + std::to_string(steps) + " x " +
         std::to_string(epochs) + (is_strict ? "" : " not strict") +
         (finishes_twice ? " twice" : "") + ", settles " +
         std::to_string(settles & ((1u << epochs) - 1)) + ", trains on " +
         std::to_string(trains_on) + "%, switches " + std::to_string(switch_permille) +
         " permille, refused actions " + std::to_string(refusals_permille) + " permille, stops " +
         std::to_string(stops_permille) + " permille, killed " + std::to_string(most_killed);
}

}  // namespace covey
