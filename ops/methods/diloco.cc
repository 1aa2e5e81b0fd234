// diloco: H = local_steps steps of each rank by itself, then the mean of what the ranks have
// changed is the gradient of an outer optimizer, SGD with Nesterov momentum; a late rank is not
// waited for.
//
// All ranks hold the same model X, the anchor, and the same outer momentum M. Each does H steps of
// its own optimizer from X to W and publishes the delta X - W. A version fires as one of eager
// does. D is the mean of the deltas in it, each with the same weight, however many have come:
//   M <- outer_momentum M + D,  X <- X - outer_lr (D + outer_momentum M)
// and each rank goes on from X. Replicas of X and M depend on the versions alone, so they are
// bitwise equal at equal version on all ranks. Optimizers of ranks stay local, as do the steps in
// between.
//
// A rank that comes too late for its version applies it, and all others it has missed, and goes on
// from X - U, U being the sum of its deltas that no version has had: a later version has them,
// once. So no work is lost and none counts twice. A rank that has fallen out of the log takes X and
// M from another one. No rank waits longer than max_wait; admit, grace and max_staleness are those
// of eager. With admit=all, outer_lr=1 and outer_momentum=0 it is local SGD.
// Source: A. Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models",
// 2023, arXiv:2311.08105; minimum quorum and grace: A. Douillard et al., "Decoupled DiLoCo", 2026,
// arXiv:2604.21428 (a central synchronizer there). Bytes per rank, each H steps: m read from its
// slot and m of the result. With H below about 10 the outer momentum does harm.
//
// Worked example, one parameter, 2 ranks, outer_lr 0.5, outer_momentum 0.5, X = 10, M = 0: ranks
// come to 8 and 6, deltas 2 and 4, D = 3, M = 3, X = 10 - 0.5 (3 + 1.5) = 7.75.
#include <cstddef>

#include "core/method/method.h"
#include "core/method/shared_parameters.h"

namespace covey {
namespace {

enum Setting : uint8_t {
  kLocalSteps,
  kOuterLr,
  kOuterMomentum,
  kAdmit,
  kGrace,
  kMaxWait,
  kLog,
  kMaxStaleness,
  kProgress,
  kSeed
};

constexpr MethodParameter kParameters[] = {
    {.name = "local_steps",
     .letter = "H",
     .unit = "steps",
     .standard = 100,
     .minimum = 1,
     .maximum = 1000000000,
     .help = "steps of each rank by itself before its change of the model is exchanged"},
    {.name = "outer_lr",
     .letter = "",
     .unit = "",
     .standard = 700000,
     .minimum = 1,
     .maximum = 1000000000,
     .help = "learning rate of the outer optimizer, whose gradient is the mean of these changes",
     .syntax = ValueSyntax::kDecimal},
    {.name = "outer_momentum",
     .letter = "",
     .unit = "",
     .standard = 900000,
     .minimum = 0,
     .maximum = 999999,
     .help = "its Nesterov momentum; 0 with outer_lr=1 is local SGD",
     .syntax = ValueSyntax::kDecimal},
    AdmitParameter(
        -500, kAdmitDrawn - kMostDrawn,
        "ranks that must have come before an exchange is done: solo (one), all, a number of "
        "ranks, a part of them such as 0.5, majority (one rank that is drawn for each "
        "exchange), first2 (one of two drawn ranks)"),
    GraceParameter("time that an exchange waits for further ranks after `admit` have come; auto: a "
                   "fiftieth of the median of a rank's own local_steps"),
    MaxWaitParameter(
        kAutoTime, ValueSyntax::kTimeOrAuto,
        "longest wait of a rank for the others at one exchange, and in finish(): then it goes "
        "on with the ranks that have come, and a missing rank is not waited for until it has "
        "kept up for 3 exchanges; auto, or 0s: 10 times the median of its own local_steps, at "
        "least 1s, in finish() at least 10s, and 60s in its first ones"),
    LogParameter(
        "exchanges that a rank may lag behind before it goes on from another rank's state; "
        "each costs m bytes of memory per host; auto: as many as 64 MiB hold, 4 to 16"),
    MaxStalenessParameter(
        "exchanges",
        "exchanges that a rank may lag behind before the others wait for its next one, for "
        "max_wait at most"),
    ProgressParameter(
        "lockstep: every rank does the same number of exchanges; skip: a late rank leaves out "
        "the numbers of those that it has missed; an overdue rank does so in any case"),
    SeedParameter("seed of the ranks that are drawn"),
};

constexpr const char* kState[] = {"outer_momentum"};

MethodPlan Plan(std::span<const int64_t> settings, const MethodView&, int64_t) {
  return {.payload = Payload::kDelta,
          .admission = Admission::kRounds,
          .rounds = {.admit = AdmitOf(settings[kAdmit]),
                     .seed = static_cast<uint64_t>(settings[kSeed]),
                     .grace = TimeOf(settings[kGrace]),
                     .grace_parts = 50,
                     .log = settings[kLog],
                     .max_wait = TimeOf(settings[kMaxWait]),
                     .local_steps = settings[kLocalSteps],
                     .skips_ahead = settings[kProgress] == 1,
                     .max_staleness = settings[kMaxStaleness]}};
}

template <typename T>
void Step(double lr, double momentum, const CombineArrays& arrays) {
  const T* sum = reinterpret_cast<const T*>(arrays.sum);
  T* model = reinterpret_cast<T*>(arrays.model);
  T* kept = reinterpret_cast<T*>(arrays.state[0]);
  const auto rate = static_cast<T>(lr), keep = static_cast<T>(momentum);
  const auto deltas = static_cast<T>(arrays.deltas);
  for (size_t i = 0; i < arrays.count; ++i) {
    const T delta = sum[i] / deltas;
    kept[i] = keep * kept[i] + delta;
    model[i] -= rate * (delta + keep * kept[i]);
  }
}

void Combine(std::span<const int64_t> settings, const CombineArrays& arrays) {
  const double lr = DecimalOf(settings[kOuterLr]), momentum = DecimalOf(settings[kOuterMomentum]);
  if (arrays.dtype == DType::kF64)
    Step<double>(lr, momentum, arrays);
  else
    Step<float>(lr, momentum, arrays);
}

constexpr Method kMethod{
    .name = "diloco",
    .help =
        "each rank does local_steps updates by itself; the mean of the changes of the ranks that "
        "have come is then the gradient of an outer optimizer; a late rank is not waited for, and "
        "its changes count later, once",
    .bytes = "2 m every local_steps steps; 2 g each step of the warm-up",
    .citation =
        "Douillard et al.: DiLoCo: Distributed Low-Communication Training of Language Models, "
        "2023, arXiv:2311.08105; Douillard et al.: Decoupled DiLoCo, 2026, arXiv:2604.21428",
    .exchanged = "changes of models, after every local_steps-th update",
    .partners = "all ranks",
    .saved = "after finish(): the model of the last version, of all",
    .late =
        "any rank, within local_steps steps, and then ranks after the first `admit`, for `log` "
        "exchanges at most; no rank waits longer than max_wait for another; no change is lost: a "
        "late one counts once, in a later exchange",
    .learning_rate =
        "that for one rank; its optimizer stays with each rank. outer_lr and outer_momentum are "
        "the paper's; below 10 local_steps take less momentum",
    .memory =
        "5 models in each rank (a copy and gradients for the exchange, the replicated model, the "
        "outer momentum, the last change), 3 for its contributions, and log for all together, up "
        "to "
        "log + 2 P while ranks are late",
    .scaling = Scaling::kOne,
    .no_codec =
        "on one host changes are summed where they lie, and nothing travels; between hosts they go "
        "as they are",
    .parameters = kParameters,
    .plan = Plan,
    .state = kState,
    .combine = Combine};
const MethodRegistration kRegistration(kMethod);

}  // namespace
}  // namespace covey
