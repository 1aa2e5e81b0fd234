// adpsgd: each rank trains on its own model, and after a step averages it with one other rank's,
// another one each time; no rank waits for another (asynchronous decentralised parallel SGD).
//
// After its step a rank hands in its progress. The progress is added to the rank's model, which
// other ranks may have averaged meanwhile. A rank that begins then averages with its next partner:
// both models become the mean of the two, at once, and the partner is not interrupted. On a
// bipartite graph even ranks begin, and their partners are odd, at the hops 1, -1, 3, -3, 5, -5,
// 9, ... in turn; for an odd number of ranks all begin, with partners of random matchings that a
// seed draws.
//
// Only the progress of ranks moves the sum of all models: averaging two moves no mean, and loses no
// update that comes meanwhile. A rank that is slow or stopped takes part with the model it has.
// Momenta and buffers stay with each rank.
// With codec=NAME the models that two ranks exchange are quantised as described in swarm.cc.
// Source: X. Lian, W. Zhang, C. Zhang, J. Liu, "Asynchronous Decentralized Parallel Stochastic
// Gradient Descent", ICML 2018, arXiv:1710.06952. Released codes overwrite a model that an exchange
// and an update change at once; here both count (gossip-P1).
// Bytes per rank and step, on one host: 2 m read and 2 m written by a rank that begins, 2 m by
// another one, and 2 m more when its model has been averaged meanwhile. Between hosts m each way,
// by messages that no rank waits for (core/gossip/far_pairs.h).
//
// Worked example, 4 ranks, bipartite (hops 1, -1): the exchanges that ranks 0 and 2 begin are 0-1
// 2-3, 0-3 2-1, 0-1 2-3, ..., each in its own time.
#include "ops/methods/pairing.h"

namespace covey {
namespace {

enum Setting : uint8_t { kTopology, kSeed, kMaxWait, kCross };

constexpr MethodParameter kParameters[] = {
    {.name = "topology",
     .letter = "",
     .unit = "",
     .standard = kAuto,
     .minimum = kAuto,
     .maximum = kNumPairKinds,
     .help = "topology of the pairs: bipartite, ring (both for even numbers of ranks), full (every "
             "pair in turn), matching (random pairs); auto: bipartite, or matching for an odd "
             "number of ranks",
     .syntax = ValueSyntax::kPairing},
    kPairSeed,
    kPairMaxWait,
    kCrossEvery,
};

TopologyKind KindFor(int64_t told, int32_t size) {
  if (told != kAuto) return kPairKinds[told - 1];
  return size % 2 == 0 || size == 1 ? TopologyKind::kBipartite : TopologyKind::kMatching;
}

MethodPlan Plan(std::span<const int64_t> settings, const MethodView& view, int64_t) {
  const TopologyKind kind = KindFor(settings[kTopology], view.size);
  const bool has_sides = kind == TopologyKind::kBipartite || kind == TopologyKind::kRing;
  return {.payload = Payload::kModel,
          .admission = Admission::kPairs,
          .pairs = {.topology = kind,
                    .seed = static_cast<uint64_t>(settings[kSeed]),
                    .all_begin = !has_sides,
                    .max_wait = Duration::Of(settings[kMaxWait]),
                    .cross_every = settings[kCross]}};
}

constexpr Method kMethod{
    .name = "adpsgd",
    .help =
        "each rank updates its model with its own gradients, and after each update averages "
        "the model with that of one other rank, another one each time; no rank waits for its "
        "partner",
    .bytes =
        "2 m to 4 m every step; between hosts m each way, by codec=lattice@8 or int8 m/4, by "
        "bf16 m/2; memory: 6 m, of which 3 to 4 m are used",
    .citation =
        "Lian, Zhang, Zhang, Liu: Asynchronous Decentralized Parallel Stochastic Gradient Descent, "
        "ICML 2018, arXiv:1710.06952",
    .exchanged = "models, after every update",
    .partners = "one rank, another one each time",
    .saved = "after finish(): the mean of all",
    .late =
        "any rank, for ever: no step waits; finish() and each of warmup_steps wait, for "
        "max_wait at most; a slow rank takes part with the model that it has, and none of its "
        "progress is lost",
    .learning_rate = "that for one rank times P, with a warm-up; momentum stays with each rank",
    .memory = "6 models in each rank, of which 3 to 4 are used while ranks are equally fast",
    .codecs = CodecUse::kPairs,
    .parameters = kParameters,
    .plan = Plan};
const MethodRegistration kRegistration(kMethod);

}  // namespace
}  // namespace covey
