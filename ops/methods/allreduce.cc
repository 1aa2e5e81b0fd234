// allreduce: gradients averaged over all ranks every step (synchronous data-parallel SGD).
//
// Every rank applies the same update to the same parameters, so replicas stay bitwise equal and
// the run is that of one process with the P-fold batch. One late rank delays all.
// Source: J. Chen, X. Pan, R. Monga, S. Bengio, R. Jozefowicz, "Revisiting Distributed Synchronous
// SGD", 2016, arXiv:1604.00981. Bytes per rank and step: the reduce-scatter and all-gather of g
// bytes, 2 g (P-1)/P.
//
// Worked example, any view: versions 0 1 2 3 -> gradients gradients gradients gradients.
#include "core/plan/method.h"

namespace covey {
namespace {

MethodPlan Plan(std::span<const int64_t>, const MethodView&, int64_t) {
  return {.payload = Payload::kGradients};
}

constexpr Method kMethod{
    .name = "allreduce",
    .help = "gradients are averaged over all ranks before every update; replicas are always equal",
    .bytes = "2 g (P-1)/P every step",
    .citation =
        "Chen, Pan, Monga, Bengio, Jozefowicz: Revisiting Distributed Synchronous SGD, "
        "2016, arXiv:1604.00981",
    .exchanged = "gradients, before every update",
    .partners = "all ranks",
    .saved = "its model: all are always equal",
    .late = "nobody: every step waits for all ranks",
    .learning_rate =
        "that for one rank times P, with a warm-up: a step stands for the batches of all",
    .memory = "none",
    .parameters = {},
    .plan = Plan};
const MethodRegistration kRegistration(kMethod);

}  // namespace
}  // namespace covey
