// adpsgd: each rank trains on its own model, and after a step averages it with one other rank's,
// another one each time; nobody waits for anybody (asynchronous decentralised parallel SGD).
//
// After its step a rank hands in what it has learnt: that is added to what its model has become
// meanwhile by others, who may have averaged with it. Then, when it is one that begins, it averages
// with its next partner: both models become the mean of the two, at once, whatever the partner is
// doing. On a bipartite graph even ranks begin, and their partners are odd, at the hops 1, -1, 3,
// -3, 5, -5, 9, ... in turn; for an odd number of ranks all begin, with partners of random
// matchings that a seed draws.
//
// The sum of all models is moved by what ranks have learnt alone: averaging two moves no mean, and
// loses no update that comes meanwhile. A rank that is slow or stopped takes part with the model it
// has. Momenta and buffers stay with each rank.
// With codec=NAME what two ranks exchange is quantised as in swarm.cc, which says how.
// Source: X. Lian, W. Zhang, C. Zhang, J. Liu, "Asynchronous Decentralized Parallel Stochastic
// Gradient Descent", ICML 2018, arXiv:1710.06952. Released codes overwrite a model that an exchange
// and an update change at once; here both count (gossip-P1).
// Bytes per rank and step, on one host: 2 m read and 2 m written by who begins, 2 m by who does
// not, and 2 m more when somebody has averaged with it.
//
// Worked example, 4 ranks, bipartite (hops 1, -1): the exchanges that ranks 0 and 2 begin are 0-1
// 2-3, 0-3 2-1, 0-1 2-3, ..., each in its own time.
#include "ops/methods/pairing.h"

namespace covey {
namespace {

enum Setting : uint8_t { kTopology, kSeed, kMaxWait };

constexpr MethodParameter kParameters[] = {
    {.name = "topology",
     .letter = "",
     .unit = "",
     .standard = kAuto,
     .minimum = kAuto,
     .maximum = kNumPairKinds,
     .help =
         "who averages with whom: bipartite, ring (both for even numbers of ranks), full (all in "
         "turn), matching (random pairs); auto: bipartite, or for an odd number matching",
     .syntax = ValueSyntax::kPairing},
    kPairSeed,
    kPairMaxWait,
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
                    .max_wait = Duration::Of(settings[kMaxWait])}};
}

constexpr Method kMethod{
    .name = "adpsgd",
    .help =
        "each rank does steps with its own gradients, and after each averages its model with one "
        "other rank's, another one each time, whatever that is doing",
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
        "anybody, for ever: nobody waits but in finish() and warmup_steps, there for max_wait at "
        "most; who is slow takes part with the model it has, and nothing that it learns is lost",
    .learning_rate = "that for one rank times P, with a warm-up; momentum stays with each rank",
    .memory = "6 models in each rank, of which 3 to 4 are used while ranks are equally fast",
    .codecs = CodecUse::kPairs,
    .parameters = kParameters,
    .plan = Plan};
const MethodRegistration kRegistration(kMethod);

}  // namespace
}  // namespace covey
