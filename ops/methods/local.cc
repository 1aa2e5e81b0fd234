// local: H = local_steps steps of each rank by itself, then the models are averaged (local SGD).
// With the warmup_steps of every method, gradients are averaged in these steps: post-local SGD.
//
// Sends H times less than allreduce, and random delays even out over H steps; a rank that is slow
// for good still delays all. Replicas differ between two averagings; momentum stays
// local. With H = 1 and plain SGD it is allreduce up to rounding, by linearity.
//
// With max_wait an averaging is a version of core/partial, of models and of all ranks, with the
// same bits while no rank is late. It waits for all, for max_wait at most, and then is the mean of
// the ranks that have come. A missing rank is named, and not waited for until it has come in time
// to three averagings. It goes on from the newest mean X with its progress, X + W' - X0, X0 being
// the mean it began from and W' its own model, and offers that at once. When X is the mean it was
// missing in, it goes on from (n X + W') / (n + 1), X being the mean of n models. An overdue rank
// has to come into step with the others, which do not wait for it: it exchanges as soon as the
// averaging it works for is over, else one step before its H-th.
//
// Where ranks share no memory, an averaging with max_wait is one of diloco's (diloco.cc) with
// admit=all, outer_lr=1 and outer_momentum=0: X <- X - mean of the changes X - W. On time all have
// the mean of models up to rounding; a late rank goes on from X with its progress, which the next
// version has too.
//
// Without max_wait and with codec= the changes of models
// since the last averaging are averaged: anchor + mean of the decoded changes, the same bits on
// all. topk's remainder is added to the next changes. The first averaging,
// finish() and the last one before then= are of models as they are, so that nothing is left out. In
// the warm-up gradients travel by the codec. Source: S. U. Stich, "Local SGD Converges Fast and
// Communicates Little", ICLR 2019, arXiv:1805.09767; post-local: T. Lin, S. U. Stich, K. K. Patel,
// M. Jaggi, "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020, arXiv:1808.07217. Bytes per
// rank: 2 m (P-1)/P each H steps of m bytes of parameters; 2 g (P-1)/P each step of the warm-up.
//
// Worked example, H = 3: versions 0 1 2 | 3 4 5 -> none none model | none none model. With max_wait
// the plan is the same at all versions: a rank counts the steps itself that it does in a row.
#include <algorithm>

#include "core/method/method.h"
#include "core/method/shared_parameters.h"

namespace covey {
namespace {

enum Setting : uint8_t { kLocalSteps, kMaxWait };

constexpr int64_t kMany = 1000000000;
constexpr MethodParameter kParameters[] = {
    {.name = "local_steps",
     .letter = "H",
     .unit = "steps",
     .standard = 8,
     .minimum = 1,
     .maximum = kMany,
     .help = "steps of each rank by itself before the models are averaged"},
    MaxWaitParameter(
        kOff, ValueSyntax::kLimit,
        "longest wait of a rank for the others at one averaging, and in finish(): then it "
        "goes on with the ranks that have come, and a missing rank is not waited for until it "
        "has kept up for 3 averagings; auto: 10 times the median of its own local_steps, at "
        "least 1s, in finish() at least 10s, and 60s in its first ones; off: for ever"),
};

// The last result is kept for late ranks, beside the one that is made.
constexpr int64_t kLog = 2;

MethodPlan Plan(std::span<const int64_t> settings, const MethodView& view, int64_t version) {
  if (settings[kMaxWait] != kOff) {
    MethodPlan plan{.payload = view.shares_memory ? Payload::kModel : Payload::kDelta,
                    .admission = Admission::kRounds,
                    .rounds = {.admit = AdmitRule::All(),
                               .log = kLog,
                               .max_wait = LimitOf(settings[kMaxWait]),
                               .local_steps = settings[kLocalSteps]}};
    if (!view.shares_memory) return plan;
    plan.rounds.group_size = view.size;
    plan.rounds.sync_every = 1;
    return plan;
  }
  const bool last = version % settings[kLocalSteps] == settings[kLocalSteps] - 1;
  return {.payload = last ? Payload::kModel : Payload::kNone};
}

template <typename T>
void Subtract(const CombineArrays& arrays) {
  const T* sum = reinterpret_cast<const T*>(arrays.sum);
  T* model = reinterpret_cast<T*>(arrays.model);
  const auto deltas = static_cast<T>(arrays.deltas);
  for (size_t i = 0; i < arrays.count; ++i) model[i] -= sum[i] / deltas;
}

void Combine(std::span<const int64_t>, const CombineArrays& arrays) {
  if (arrays.dtype == DType::kF64)
    Subtract<double>(arrays);
  else
    Subtract<float>(arrays);
}

constexpr Method kMethod{
    .name = "local",
    .help =
        "each rank does local_steps updates with its own gradients, then all ranks average "
        "their models; with warmup_steps it is post-local SGD",
    .bytes =
        "2 m (P-1)/P every local_steps steps, with max_wait 2 m, with codec (P-1) times the "
        "encoded model; 2 g (P-1)/P each step of the warm-up",
    .citation =
        "Stich: Local SGD Converges Fast and Communicates Little, ICLR 2019, "
        "arXiv:1805.09767; Lin, Stich, Patel, Jaggi: Don't Use Large Mini-Batches, Use "
        "Local SGD, ICLR 2020, arXiv:1808.07217",
    .exchanged = "models, after every local_steps-th update",
    .partners = "all ranks",
    .saved = "after finish(): the mean of all",
    .late =
        "any rank, within local_steps steps; each averaging waits for all ranks, so a rank "
        "that is slow for good delays all; with max_wait an averaging waits so long at most: "
        "then the missing rank is named and left out until it keeps up again, and goes on "
        "from the mean, to which it adds its progress; a rank that comes when finish() has "
        "ended takes that mean, and its progress since its last average is dropped",
    .learning_rate = "that for one rank times P, with a warm-up; momentum stays with each rank",
    .memory =
        "none; the parameters move into shared memory; with codec two models, by topk three; with "
        "max_wait 3 models in each rank, "
        "and one for each of 3 results, up to 3 + 2 P while ranks are late, for all together; "
        "between hosts about 9 models in each rank",
    .codecs = CodecUse::kModels,
    .parameters = kParameters,
    .plan = Plan,
    .combine = Combine};
const MethodRegistration kRegistration(kMethod);

}  // namespace
}  // namespace covey
