/* Rounds: exchanges that wait for enough ranks instead of all. Internal: tests reach RoundsPort
 * by these functions; a trainer (core/api/covey_trainer.h) has it without them. They are not
 * exported; the conventions are those of covey.h.
 *
 * The rounds of one bundle of spans between the members of a group. Versions 1, 2, 3, ... are made
 * once each, in order: version v once as many members have published their step v as the method's
 * `admit` says, or a member has waited for `max_wait`. It is the sum, in rank order, of what lies
 * in the members' slots then; later contributions go with a later version, each step exactly
 * once. Members that wait in these functions do the work: a member that is stopped or killed,
 * wherever, holds up the others for at most `max_wait`, and only when they are too few for `admit`;
 * then it is overdue, and not waited for until it keeps up again.
 * core/PROTOCOL.md has the rules.
 *
 * Members that share no memory exchange messages, which Covey's own thread carries
 * (core/replicated/README.md). All of this holds there too while a majority of the members runs,
 * dead ones not counted (of two halves: that of the witness, else that of the first member).
 * Without one no member goes on, for longer than max_wait; a waiting member then says so on stderr
 * every `stall_warning`, with the silent ranks. A member that leaves before covey_rounds_finish
 * waits for a second at most until its last contribution is in a version.
 *
 * With a method that exchanges models (COVEY_MODEL) a version is the mean of the members' newest
 * models, of each group by itself, and every so-many-th of all; then covey_rounds_merge takes the
 * place of covey_rounds_read.
 *
 * A training step: write the gradients to the memory covey_rounds_spans gives, covey_rounds_publish
 * them as step t, covey_rounds_wait for version t, and for each version not yet read up to
 * covey_rounds_executed, in order: covey_rounds_read, and the optimizer's step. Members that do so
 * hold equal parameters at equal versions. One thread at a time per rounds. */
#ifndef COVEY_CORE_API_COVEY_ROUNDS_H_
#define COVEY_CORE_API_COVEY_ROUNDS_H_

#include "core/api/covey.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t covey_rounds; /* 0 is never one */

typedef struct covey_rounds_config {
  uint32_t struct_size;
  covey_group group;
  const char* name;           /* not empty; members open the same names in the same order */
  const covey_method* method; /* one with COVEY_ADMIT_ROUNDS; NULL = the knob `method` */
  covey_op op;                /* COVEY_SUM, or COVEY_AVERAGE: by the record's divisor. Models are
                              * always averaged, over those that are in: COVEY_AVERAGE */
  int32_t num_spans;          /* at least 1 */
  const covey_dtype* dtypes;  /* [num_spans], not bool */
  const int64_t* counts;      /* [num_spans] elements, 0 is possible, but not of all */
  int32_t num_hypers;         /* hyper-parameters that travel with each step, 0 to 4096 */
  int64_t begin;              /* the version of the method that these begin at; mostly 0. Theirs is
                              * version 1 */
} covey_rounds_config;

/* The record of a version; the same on all members. Arrays may be NULL. */
typedef struct covey_round_record {
  uint32_t struct_size;
  int64_t version;
  int32_t divisor;  /* members that are not dead, and have not come with nothing alone */
  int32_t leader;   /* the lowest rank with a fresh contribution, else with any; -1 = none */
  int64_t* first;   /* [group size] steps first..last of each member are in it; 0..0: none. A */
  int64_t* last;    /* contribution is fresh when `last` >= `version`. */
  int64_t* count;   /* [group size] so many of these steps, less those skipped */
  int64_t* overdue; /* [group size] 0: the member is waited for; else it is not, until it has been
                     * fresh in so many versions running: it was missing when max_wait was over */
  double* hypers;   /* [num_hypers] the leader's; zeros when there is none */
} covey_round_record;

/* Every member calls it; waits for all. COVEY_MISMATCH on every member when name, method, op, spans
 * or hyper-parameters differ: the message names the first difference, the ranks and both values.
 * COVEY_EXHAUSTED on every member when one has no room. COVEY_UNSUPPORTED:
 * members share no memory, and MPI is not for Covey's own thread. */
covey_code covey_rounds_open(covey_runtime* runtime, const covey_rounds_config* config,
                             covey_rounds* rounds, covey_error* error);

/* Where the next contribution is to be written: spans[i] gets the address of span i. Until the next
 * covey_rounds_publish, all of it has to be written, its content is undefined. */
covey_code covey_rounds_spans(covey_runtime* runtime, covey_rounds rounds, void** spans,
                              covey_error* error);

/* Hands over what was written, as this rank's next step: 1, 2, 3, ...; one that has skipped ahead
 * (progress=skip, or it was overdue) goes on after the last version it has read. Never waits. If no
 * version has taken the step before, it goes together with it. hypers: [num_hypers], copied. */
covey_code covey_rounds_publish(covey_runtime* runtime, covey_rounds rounds, const double* hypers,
                                int64_t* step, covey_error* error);

/* Gradients: this rank has come to its next step and has nothing to give there (an overflow): it is
 * not waited for, as if it had published, but nothing is summed and the mean is over the others.
 * The content of the spans does not matter. */
covey_code covey_rounds_skip(covey_runtime* runtime, covey_rounds rounds, int64_t* step,
                             covey_error* error);

/* Waits until `version` has been made; COVEY_TIMEOUT after timeout_ns (negative: no limit).
 * COVEY_ABORTED, over a network: the ranks that had it have left or died, the message says which
 * versions are lacking, and no more come: none is made in their place. Finishing ends so, too.
 * COVEY_TIMEOUT with a peer_rank: see COVEY_ROUND_LEFT. */
covey_code covey_rounds_wait(covey_runtime* runtime, covey_rounds rounds, int64_t version,
                             int64_t timeout_ns, covey_error* error);

/* The last version made; -1: no such rounds. */
int64_t covey_rounds_executed(covey_runtime* runtime, covey_rounds rounds);

/* Says where versions of gradients will be read to: spans[i], or NULL for spans: nowhere any more.
 * covey_rounds_read to the same spans then costs less, because some of it is done while the version
 * is made. From covey_rounds_publish on, and while this rank waits or finishes, until
 * covey_rounds_read or a waiting that ends with an error or a timeout, nothing else may write
 * there. Models need no such thing: they are merged early with the spans of covey_rounds_spans. */
covey_code covey_rounds_expect(covey_runtime* runtime, covey_rounds rounds, void* const* spans,
                               covey_error* error);

/* Copies version `version` to spans[i] (spans or one of them may be NULL) and fills *record (may be
 * NULL). COVEY_EXHAUSTED when it is no longer in the log: see covey_rounds_seek. */
covey_code covey_rounds_read(covey_runtime* runtime, covey_rounds rounds, int64_t version,
                             void* const* spans, covey_round_record* record, covey_error* error);

/* Gradients: spans[i] gets the address at which span i of `version` lies, instead of a copy as by
 * covey_rounds_read (which gives the record, also with spans NULL). It stays as it is until the
 * next call of this, and can be read until covey_rounds_close. Others do not see what is written
 * there; that is slow, and *written_pages (may be NULL) says how many pages of the memory had been
 * written by this rank before: a trainer that writes often had better copy. version 0: none is held
 * any more; spans may be NULL. COVEY_EXHAUSTED as covey_rounds_read. COVEY_UNSUPPORTED, also for 0,
 * where members share no memory or the system does not allow it. */
covey_code covey_rounds_hold(covey_runtime* runtime, covey_rounds rounds, int64_t version,
                             void** spans, int64_t* written_pages, covey_error* error);

/* Gradients, of a member that goes on elsewhere: takes back what it has published and no version
 * has, nor will have, so that it can count there. spans[i] gets its address, NULL when there is
 * nothing. It lies there until covey_rounds_close, which is all that may follow.
 * COVEY_UNSUPPORTED where members share no memory. */
covey_code covey_rounds_withdraw(covey_runtime* runtime, covey_rounds rounds, const void** spans,
                                 covey_error* error);

/* The outcome of covey_rounds_merge. */
typedef struct covey_round_merge {
  uint32_t struct_size;
  int64_t version; /* with that version */
  int32_t count;   /* models in the mean of this rank's group */
  int32_t late;    /* 1: the one this rank published last was not among them */
  int64_t step;    /* this rank's: the next is the one after. More than was published when it has
                    * missed a version of all: it goes on from the newest */
  int32_t of_all;  /* 1: it is an average of all, not of this rank's group */
  int32_t kept;    /* 1: an average of all had passed it by, and it is with this rank's progress */
} covey_round_merge;

/* Models: writes to spans[i] (one may be NULL) what the model published last becomes by `version`
 * or, when that is no longer in the log, by the newest one: the mean of this rank's group if it was
 * in it; (count * mean + own) / (count + 1) if it was late, of which the version's record decides.
 * If an average of all has passed it by: that, and what this rank has done since the one it began
 * from (mean + own - begin), unless some version has had its model.
 * The spans may be those of covey_rounds_spans, the next contribution, which is the fastest;
 * between covey_rounds_publish and this call these are the core's. `merge` may be NULL.
 * COVEY_INVALID_ARGUMENT: the version has not been made, nothing was published, no models. */
covey_code covey_rounds_merge(covey_runtime* runtime, covey_rounds rounds, int64_t version,
                              void* const* spans, covey_round_merge* merge, covey_error* error);

/* The outcome of covey_rounds_look. */
typedef struct covey_round_look {
  uint32_t struct_size;
  int32_t whole;     /* 0: the member has published another model meanwhile; call it again */
  int64_t step;      /* of the model; 0: it has published none, and nothing was copied */
  int32_t passed_by; /* 1: an average of all has come after it; it counts no more */
} covey_round_look;

/* Models: after a merge into covey_rounds_spans that has `kept`: publishes what lies there as the
 * next step, *step, which no member waits for, so that the others have this rank's progress. It
 * goes on from the same model, which it copies to the spans there are then. */
covey_code covey_rounds_offer_again(covey_runtime* runtime, covey_rounds rounds, int64_t* step,
                                    covey_error* error);

/* Models: copies what a member (by its rank in the job) has published last to spans[i]. Any member,
 * at any time, alone. COVEY_INVALID_ARGUMENT: no member, no models. */
covey_code covey_rounds_look(covey_runtime* runtime, covey_rounds rounds, int32_t rank,
                             void* const* spans, covey_round_look* look, covey_error* error);

/* This rank has nothing more to contribute: it is waited for no longer. Waits until all members
 * that live have called it and everything published is in a version. Then executed is the same on
 * all, and their next steps are numbered from there (of one that has published further ahead, from
 * its last step). None may publish before all have returned.
 * COVEY_TIMEOUT after timeout_ns (negative: no limit of its own), or once the method's max_wait is
 * over: the message names the ranks that are missing, peer_rank is the first of them, what the
 * others have published is in versions, and it may be called again. Models: each publishes its own
 * before, but not again before it calls again, and merges with the last version afterwards: then
 * all have the mean of all, or after max_wait of those that are there. */
covey_code covey_rounds_finish(covey_runtime* runtime, covey_rounds rounds, int64_t timeout_ns,
                               covey_error* error);

/* After COVEY_TIMEOUT of that for max_wait: this rank goes on with what those have that are there.
 * A member that comes to covey_rounds_finish later ends with the same version: of models it takes
 * the mean that it was missing in, as it is. Until one of those that have gone on publishes again
 * steps of such a member are dropped: covey_rounds_publish publishes nothing, *step is the version
 * after the last, and waiting for that ends with COVEY_ROUND_LEFT. `round_dropped` of covey_stats
 * counts them, with those that no version had taken before. Gradients: one that has fallen out of
 * the log will need a snapshot: covey_rounds_asked tells the rank that is to give it, before it
 * leaves. */
covey_code covey_rounds_go_on(covey_runtime* runtime, covey_rounds rounds, covey_error* error);

/* Snapshots: how a rank goes on that has fallen out of the log. It asks for the state of a
 * trainer that has not, and reads on from there. The trainers see to it between their steps:
 *
 *   covey_rounds_serve instead of covey_rounds_wait, and covey_rounds_asked after each step;
 *   when they say so, covey_rounds_give. A rank that gives waits for no other.
 *   covey_rounds_seek when covey_rounds_read says COVEY_EXHAUSTED; then covey_rounds_take.
 *
 * `applied`: the versions up to it are in the state of this rank. */
typedef enum covey_round_event {
  COVEY_ROUND_DONE = 0,
  COVEY_ROUND_ASKED = 1,  /* give a snapshot, then call it again */
  COVEY_ROUND_BEHIND = 2, /* finishing: apply what was made meanwhile, then call it again */
  COVEY_ROUND_TIME = 3,   /* timeout_ns is over; call it again */
  COVEY_ROUND_LEFT = 4 /* waiting: others have gone on (covey_rounds_go_on) without this rank, and
                           * for max_wait none has published since. The version is not made */
} covey_round_event;
#define COVEY_ROUNDS_FINISH INT64_C(-1)
#define COVEY_ROUNDS_MEET INT64_C(-2)

/* covey_rounds_wait, or with COVEY_ROUNDS_FINISH covey_rounds_finish, until *event. With
 * COVEY_ROUNDS_MEET, after finishing and applying everything: until all that live are so far; until
 * then one may need a snapshot. COVEY_TIMEOUT: only for max_wait, as covey_rounds_finish has it. */
covey_code covey_rounds_serve(covey_runtime* runtime, covey_rounds rounds, int64_t version,
                              int64_t applied, int64_t timeout_ns, covey_round_event* event,
                              covey_error* error);

/* 1: this rank is to give a snapshot now. Costs nothing while no rank asks. */
int32_t covey_rounds_asked(covey_runtime* runtime, covey_rounds rounds, int64_t applied);

/* Copies parts[i], lengths[i] bytes each, one after the other, for the rank that asks. */
covey_code covey_rounds_give(covey_runtime* runtime, covey_rounds rounds, int64_t applied,
                             const void* const* parts, const int64_t* lengths, int32_t num_parts,
                             covey_error* error);

typedef struct covey_snapshot {
  uint32_t struct_size;
  int32_t rank;         /* that gives it; -1: there is none yet, call covey_rounds_seek again */
  int64_t version;      /* applied in it; versions from the next one on are in the log */
  int64_t length_bytes; /* of all its parts */
  uint64_t place[2];    /* for covey_rounds_take */
} covey_snapshot;

/* Asks, and waits for a snapshot; for timeout_ns at most. COVEY_EXHAUSTED: no rank is left that
 * could give one, or the donor has no room for it; COVEY_TIMEOUT: all others have finished, and
 * have given none for max_wait. */
covey_code covey_rounds_seek(covey_runtime* runtime, covey_rounds rounds, int64_t applied,
                             int64_t timeout_ns, covey_snapshot* snapshot, covey_error* error);

/* Copies it to `to`, length_bytes bytes. *taken 0: it was replaced meanwhile, seek again; what lies
 * at `to` is then undefined. */
covey_code covey_rounds_take(covey_runtime* runtime, covey_rounds rounds,
                             const covey_snapshot* snapshot, void* to, int32_t* taken,
                             covey_error* error);

/* This rank leaves: the others do not wait for it any more. Its published contributions still
 * count. */
void covey_rounds_close(covey_runtime* runtime, covey_rounds rounds);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_API_COVEY_ROUNDS_H_ */
