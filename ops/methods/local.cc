// local: H steps of each rank by itself, then the models are averaged (local SGD); with the
// warmup_steps that every method has, gradients are averaged every step until then: post-local SGD.
//
// Sends H times less than allreduce, and delays that come at random even out over H steps; a rank
// that is slow for good still holds up all. Replicas differ between two averagings; momentum stays
// local. With H = 1 and plain SGD it is allreduce up to rounding, by linearity.
// Source: S. U. Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019,
// arXiv:1805.09767; post-local: T. Lin, S. U. Stich, K. K. Patel, M. Jaggi, "Don't Use Large
// Mini-Batches, Use Local SGD", ICLR 2020, arXiv:1808.07217. Bytes per rank: 2 m (P-1)/P each H
// steps of m bytes of parameters; 2 g (P-1)/P each step of the warm-up.
//
// Worked example, H = 3: versions 0 1 2 | 3 4 5 -> none none model | none none model.
#include "core/plan/method.h"

namespace covey {
namespace {

enum Setting : uint8_t { kLocalSteps };

constexpr int64_t kMany = 1000000000;
constexpr MethodParameter kParameters[] = {
    {.name = "local_steps",
     .letter = "H",
     .unit = "steps",
     .standard = 8,
     .minimum = 1,
     .maximum = kMany,
     .help = "steps each rank does by itself before the models are averaged"},
};

MethodPlan Plan(std::span<const int64_t> settings, const MethodView&, int64_t version) {
  const bool last = version % settings[kLocalSteps] == settings[kLocalSteps] - 1;
  return {.payload = last ? Payload::kModel : Payload::kNone};
}

constexpr Method kMethod{
    .name = "local",
    .help =
        "each rank does local_steps steps with its own gradients, then all average their "
        "models; with warmup_steps it is post-local SGD",
    .bytes = "2 m (P-1)/P every local_steps steps; 2 g (P-1)/P each step of the warm-up",
    .citation =
        "Stich: Local SGD Converges Fast and Communicates Little, ICLR 2019, "
        "arXiv:1805.09767; Lin, Stich, Patel, Jaggi: Don't Use Large Mini-Batches, Use "
        "Local SGD, ICLR 2020, arXiv:1808.07217",
    .exchanged = "models, after every local_steps-th update",
    .partners = "all ranks",
    .saved = "after finish(): the mean of all",
    .late =
        "within local_steps steps anybody; each averaging waits for all ranks, and a rank that is "
        "slow for good holds up all",
    .learning_rate = "that for one rank times P, with a warm-up; momentum stays with each rank",
    .memory = "none; the parameters move into shared memory",
    .parameters = kParameters,
    .plan = Plan};
const MethodRegistration kRegistration(kMethod);

}  // namespace
}  // namespace covey
