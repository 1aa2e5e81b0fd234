// eager: gradients summed over the ranks that have come (eager-SGD: partial collectives); a late
// rank is not waited for, and its gradient counts later, once.
//
// At step t a rank hands its gradient to its slot and waits until version t has been executed. A
// version fires once `admit` ranks have come and `grace` is over, or all have come, and takes the
// contributions of all slots. A rank that comes later finds it executed and goes on at once; its
// gradient is summed with its next one and travels with the next version. Every rank applies every
// version in order, so replicas are equal at equal version. With admit=all the method is allreduce,
// bit for bit.
// Source: S. Li, T. Ben-Nun, S. Di Girolamo, D. Alistarh, T. Hoefler, "Taming Unbalanced Training
// Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020,
// DOI 10.1145/3332466.3374528. The released code loses late gradients; this does not.
// No rank waits longer than max_wait for a version: the version fires with the ranks that have
// come. The missing ranks are overdue: not waited for until they were in time for three versions
// running. Their gradients count later, once, like all late ones.
// A gradient that counts is at most L = max_staleness versions old (the limiter, without its
// periodic allreduce): a version waits for a rank that is further behind, for max_wait at most.
// progress=skip (skip-ahead): after a rank has applied all versions there are, its next step is the
// one after the last of them, also if it has done fewer steps itself. It looks for versions after
// its step and again before its next forward pass, so that it computes with the newest parameters;
// for a version that is due in a moment it waits there. (A script's own collectives in the loop
// come at other versions on each rank then; a rank that waits in one counts as late, and the others
// wait for it for max_wait at most.)
// Bytes per rank and step: g read from its slot and g of the result, on one host. Over a network a
// leader decides which gradients count, and all ranks make the sum (core/replicated): each of H
// hosts sends 2 (H - 1) / H g, and a rank at most about 2 g. There a version needs a majority of
// the ranks (of halves: the witness decides), because a silent rank may have been cut off, and go
// on by itself. Without a majority all wait, also beyond max_wait.
//
// Worked example, 3 ranks, solo; rank 2 is late at step 1: version 1 = (g0,1 + g1,1) / 3, if 1 was
// there when 0 came; version 2 = (g0,2 + g1,2 + g2,1) / 3, or + g2,2 when rank 2 has caught up.
#include <algorithm>

#include "core/method/method.h"
#include "core/method/shared_parameters.h"

namespace covey {
namespace {

enum Setting : uint8_t { kAdmit, kGrace, kMaxWait, kLog, kMaxStaleness, kProgress, kSeed };

constexpr MethodParameter kParameters[] = {
    AdmitParameter(
        -500, kAdmitDrawn - kMostDrawn,
        "ranks that must have come before a step is done: solo (one), all, a number of ranks, "
        "a part of them such as 0.5, majority (one rank that is drawn for each step), first2 "
        "(one of two drawn ranks)"),
    GraceParameter(
        "time that a step waits for further ranks after `admit` have come; with solo it is a "
        "deadline after the first rank; auto: a twentieth of the median of a rank's own "
        "steps, with progress=skip 0s"),
    MaxWaitParameter(
        kAutoTime, ValueSyntax::kTimeOrAuto,
        "longest wait of a rank for the others at one step, and in finish(): then it goes on "
        "with the ranks that have come, and a missing rank is not waited for until it has "
        "kept up for 3 steps; auto, or 0s: 10 times the median of its own steps, at least 1s, "
        "in finish() at least 10s, and 60s in its first steps"),
    LogParameter("steps that a rank may lag behind before it goes on from another rank's snapshot; "
                 "each costs g bytes of memory per host; auto: as many as 64 MiB hold, 4 to 16"),
    MaxStalenessParameter(
        "steps",
        "steps that a rank may lag behind before the others wait for its next one, for "
        "max_wait at most; a gradient that counts is no older than that"),
    ProgressParameter(
        "lockstep: every rank does the same number of steps; skip: a late rank leaves out the "
        "numbers of the steps that it has missed, so that a rank that is always slow delays "
        "no other; an overdue rank does so in any case"),
    SeedParameter("seed of the ranks that are drawn"),
};

// A rank that skips ahead computes for the version that is being made. To wait for such a rank is
// to wait for a whole step of it, in vain for a part of that.
Duration GraceFor(std::span<const int64_t> settings) {
  const Duration told = TimeOf(settings[kGrace]);
  const bool skips = settings[kProgress] == 1;
  return skips && told == Duration::Auto() ? Duration::Of(0) : told;
}

MethodPlan Plan(std::span<const int64_t> settings, const MethodView&, int64_t) {
  return {.payload = Payload::kGradients,
          .admission = Admission::kRounds,
          .rounds = {.admit = AdmitOf(settings[kAdmit]),
                     .seed = static_cast<uint64_t>(settings[kSeed]),
                     .grace = GraceFor(settings),
                     .log = settings[kLog],
                     .max_wait = TimeOf(settings[kMaxWait]),
                     .skips_ahead = settings[kProgress] == 1,
                     .max_staleness = settings[kMaxStaleness]}};
}

constexpr Method kMethod{
    .name = "eager",
    .help =
        "gradients of the ranks that have come are averaged before every update; a late rank "
        "is not waited for, and its gradient counts later, once; replicas are equal at equal "
        "step",
    .bytes = "2 g every step; memory: 3 g, and log g per host",
    .citation =
        "Li, Ben-Nun, Di Girolamo, Alistarh, Hoefler: Taming Unbalanced Training Workloads in Deep "
        "Learning with Partial Collective Operations, PPoPP 2020, doi:10.1145/3332466.3374528",
    .exchanged = "gradients of the ranks that have come, before every update",
    .partners = "all ranks",
    .saved = "the model of its version; after finish(): the last, of all",
    .late =
        "ranks after the first `admit`, for `log` steps at most; no rank waits longer than "
        "max_wait for another, but between hosts each step waits for a majority of the ranks to "
        "answer; no gradient is lost: a late one counts once, in a later step",
    .learning_rate =
        "that for one rank times P, with a warm-up; less where gradients come many steps late",
    .memory =
        "3 g in each rank, and log g for all together, up to log + 2 P while ranks are late; over "
        "a network (log + 8) g in each rank",
    .no_codec =
        "on one host contributions are summed where they lie, and nothing travels; between hosts "
        "they go as they are",
    .parameters = kParameters,
    .plan = Plan};
const MethodRegistration kRegistration(kMethod);

}  // namespace
}  // namespace covey
