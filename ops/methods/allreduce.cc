// allreduce: gradients averaged over all ranks every step (synchronous data-parallel SGD).
//
// Every rank applies the same update to the same parameters, so replicas stay bitwise equal and
// the run is that of one process with the P-fold batch. One late rank delays all: for ever, or with
// max_wait for so long at most. Then a step is a version of core/partial that waits for all, with
// the same bits while no rank is late. A rank that is missing when the time is over is left out,
// named, and not waited for until it has kept up for three versions. Its gradient counts once, in a
// later one. With codec= gradients travel as by Compression.of, with error feedback for topk.
// Source: J. Chen, X. Pan, R. Monga, S. Bengio, R. Jozefowicz, "Revisiting Distributed Synchronous
// SGD", 2016, arXiv:1604.00981. Bytes per rank and step: the reduce-scatter and all-gather of g
// bytes, 2 g (P-1)/P; with max_wait as eager.
//
// Worked example, any view: versions 0 1 2 3 -> gradients gradients gradients gradients.
#include <algorithm>

#include "core/method/method.h"
#include "core/method/shared_parameters.h"

namespace covey {
namespace {

enum Setting : uint8_t { kMaxWait };

// How far a rank may fall behind before the others wait for it, for max_wait at most.
constexpr int64_t kStaleness = 32;
constexpr MethodParameter kParameters[] = {
    MaxWaitParameter(
        kOff, ValueSyntax::kLimit,
        "longest wait of a rank for the others at one step, and in finish(): then it goes on "
        "with the ranks that have come, and a missing rank is not waited for until it has "
        "kept up for 3 steps; auto: 10 times the median of its own steps, at least 1s, in "
        "finish() at least 10s, and 60s in its first steps; off: for ever"),
};

MethodPlan Plan(std::span<const int64_t> settings, const MethodView&, int64_t) {
  if (settings[kMaxWait] == kOff) return {.payload = Payload::kGradients};
  return {.payload = Payload::kGradients,
          .admission = Admission::kRounds,
          .rounds = {.admit = AdmitRule::All(),
                     .log = kAuto,
                     .max_wait = LimitOf(settings[kMaxWait]),
                     .max_staleness = kStaleness}};
}

constexpr Method kMethod{
    .name = "allreduce",
    .help = "gradients are averaged over all ranks before every update; replicas are always equal",
    .bytes =
        "2 g (P-1)/P every step; with max_wait 2 g; with codec (P-1) times the encoded gradients",
    .citation =
        "Chen, Pan, Monga, Bengio, Jozefowicz: Revisiting Distributed Synchronous SGD, "
        "2016, arXiv:1604.00981",
    .exchanged = "gradients, before every update",
    .partners = "all ranks",
    .saved = "its model: all are always equal",
    .late =
        "no rank: every step waits for all ranks, with max_wait so long at most; then the "
        "missing rank is named and left out until it keeps up again, and its gradient counts "
        "later, once",
    .learning_rate =
        "that for one rank times P, with a warm-up: a step stands for the batches of all",
    .memory = "none; with max_wait 3 g in each rank, and 4 g to 16 g for all together",
    .codecs = CodecUse::kGradients,
    .parameters = kParameters,
    .plan = Plan};
const MethodRegistration kRegistration(kMethod);

}  // namespace
}  // namespace covey
