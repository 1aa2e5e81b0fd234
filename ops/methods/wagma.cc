// wagma: after each step a small group averages its models, another group each step. A late rank is
// not waited for, an older model of it is averaged (WAGMA-SGD). Every sync_every-th step all do.
//
// At step t a rank does the optimizer's step with its own gradients, hands its model W' to its
// slot, and waits until version t has been executed. A version fires once `admit` ranks have come
// and `grace` is over, or all have come, for all groups, and takes of every slot the newest model
// there is. If W' was in its group's mean X the rank goes on with X; if it was late, with
// (n X + W') / (n + 1), n models being in X. `grace` is for ranks that are equally fast: without it
// the first of them would average older models of the others, which then merge, each with a pass
// of its own. Versions sync_every, 2 sync_every, ... have one group and wait for all, so no model
// in a version is more than sync_every - 1 steps old. No rank waits longer than max_wait, also for
// a rank that is slow for good, in all of these versions together (partial-W9). A rank that is
// missing then is not waited for until it has kept up for three of them, and its models are left
// out as soon as they are too old. When it comes it goes on from the newest version's X with its
// progress, X + W' - X0, X0 being the mean it began from, and offers that at once: so its steps
// count, once, as in core/gossip. (The paper waits for all there.) With sync_every = 1 it is local
// SGD with one local step, as it is with group_size = P where no rank is late.
//
// Momenta and buffers (BatchNorm's) stay with each rank, always: those of ranks that count their
// steps apart must not be mixed, and the paper does not.
//
// The mean of all models stays while no rank is late. Else it may move, as in the paper, but the
// weights of a rank's average still sum to 1.
// Source: S. Li, T. Ben-Nun, G. Nadiradze, S. Di Girolamo, N. Dryden, D. Alistarh, T. Hoefler,
// "Breaking (Global) Barriers in Parallel Stochastic Optimization With Wait-Avoiding Group
// Averaging", IEEE TPDS 32(7), 2021, DOI 10.1109/TPDS.2020.3040606. The released code averages
// before the update, divides by S + 1 whether or not a rank was late, and does not wrap the bits of
// its groups (core/partial/groups.h), so that for many sizes models mix only when all average.
// Bytes per rank and step, on one host: m read from its slot, m / S written, m of the mean. Between
// hosts, sent and taken: about 2 m (S - 1) / S (core/replicated). With cross_every=k groups are
// within hosts, and between them in every k-th step: a host sends models in that one, and for the
// averages of all.
//
// Worked example, 4 ranks, no rank late, S = group_size = 2, tau = sync_every = 3: versions 1 2 3 4
// 5 6 -> groups {0 2} {1 3}, {0 1} {2 3}, all, {0 1} {2 3}, {0 2} {1 3}, all.
#include <algorithm>

#include "core/method/method.h"
#include "core/method/shared_parameters.h"

namespace covey {
namespace {

enum Setting : uint8_t { kGroupSize, kSyncEvery, kAdmit, kGrace, kMaxWait, kLog, kCross };

constexpr MethodParameter kParameters[] = {
    {.name = "group_size",
     .letter = "S",
     .unit = "ranks",
     .standard = kAuto,
     .minimum = kAuto,
     .maximum = 1 << 20,
     .help = "largest number of ranks that average their models after a step; auto: the power of "
             "two beside the root of all",
     .syntax = ValueSyntax::kOrAuto},
    {.name = "sync_every",
     .letter = "tau",
     .unit = "steps",
     .standard = 10,
     .minimum = 1,
     .maximum = 1000000000,
     .help = "interval of the steps at which all ranks are waited for, and average"},
    AdmitParameter(
        kAdmitSolo, kAdmitAll,
        "ranks that must have come before the other steps are done: solo (one), all, a number "
        "of ranks, or a part of them such as 0.5"),
    GraceParameter(
        "time that the other steps wait for further ranks after `admit` have come; auto: a "
        "twentieth of the median of a rank's own steps"),
    MaxWaitParameter(
        kAutoTime, ValueSyntax::kTimeOrAuto,
        "longest wait of a rank for the others at one step, and in finish(): then it goes on "
        "with the ranks that have come, and a missing rank is not waited for until it has "
        "kept up for 3 times sync_every steps; auto, or 0s: 10 times the median of its own "
        "steps, at least 1s, in finish() at least 10s, and 60s in its first steps"),
    {.name = "log",
     .letter = "",
     .unit = "results",
     .standard = 2,
     .minimum = 1,
     .maximum = 16384,
     .help = "steps whose means are kept for late ranks; a rank takes the newest when its own is "
             "gone; each costs the groups' m bytes of memory per host"},
    kCrossEvery,
};

// 2^k with k = round(log2(size) / 2): the largest for which 4^k <= 2 size.
int64_t AutoGroupSize(int64_t size) {
  int64_t group = 1;
  while (4 * group * group <= 2 * size && 2 * group <= size) group *= 2;
  return group;
}

MethodPlan Plan(std::span<const int64_t> settings, const MethodView& view, int64_t) {
  const int64_t told = settings[kGroupSize];
  return {.payload = Payload::kModel,
          .admission = Admission::kRounds,
          .rounds = {.admit = AdmitOf(settings[kAdmit]),
                     .grace = TimeOf(settings[kGrace]),
                     .log = settings[kLog],
                     .max_wait = TimeOf(settings[kMaxWait]),
                     .group_size = told == kAuto ? AutoGroupSize(view.size) : told,
                     .sync_every = settings[kSyncEvery],
                     .cross_every = settings[kCross]}};
}

constexpr Method kMethod{
    .name = "wagma",
    .help =
        "each rank does an update with its own gradients, then groups of group_size ranks, "
        "others each step, average their models, and every sync_every steps all ranks do; in "
        "between a late rank is not waited for: an older model of it is averaged, and it "
        "merges the mean with its own model",
    .bytes = "2 m + m/S every step; memory: 3 m, and m/S for each result of the log",
    .citation =
        "Li, Ben-Nun, Nadiradze, Di Girolamo, Dryden, Alistarh, Hoefler: Breaking (Global) "
        "Barriers "
        "in Parallel Stochastic Optimization With Wait-Avoiding Group Averaging, IEEE TPDS 32(7), "
        "2021, doi:10.1109/TPDS.2020.3040606",
    .exchanged = "models, after every update",
    .partners = "group_size ranks, others each step; each sync_every-th step all",
    .saved = "after finish(): the mean of all",
    .late =
        "any rank between two averages of all, by sync_every steps at most: its older model "
        "is averaged meanwhile, and it merges the mean with its own model; a rank that has "
        "missed an average of all adds its progress to the mean, unless that was made in "
        "finish(): then its progress since its last average is dropped; no rank waits longer "
        "than max_wait for another",
    .learning_rate = "that for one rank times P, with a warm-up; momentum stays with each rank",
    .memory =
        "3 models in each rank, and one over S for each of `log` results, up to log + 2 P + 1 "
        "while "
        "ranks are late; one more in a late rank, and one over S for the mean that it began from",
    .no_codec =
        "on one host contributions are summed where they lie, and nothing travels; between hosts "
        "they go as they are",
    .parameters = kParameters,
    .plan = Plan};
const MethodRegistration kRegistration(kMethod);

}  // namespace
}  // namespace covey
