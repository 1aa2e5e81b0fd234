/* A training by a method: what an adapter of a framework does, and nothing else. A part of the C
 * API, with the conventions of covey.h.
 *
 * The parameters of a model are spans, the same on all members of the group. A trainer holds memory
 * for their gradients, and for the model where a method averages models. A step, and a finish, is
 * a loop over actions:
 *
 *   covey_trainer_submit(...)
 *   while covey_trainer_next(...) gives an action other than COVEY_DONE:
 *     COVEY_COLLECT_GRADIENTS  copy the gradients to where covey_trainer_gradients says now
 *     COVEY_UPDATE             apply the gradients that lie where it says now to the model
 *     COVEY_COLLECT_MODEL      copy the model to where covey_trainer_model says now
 *     COVEY_LOAD_MODEL         copy the model from there
 *     COVEY_PACK               call covey_trainer_give with model and optimizer's state
 *     COVEY_UNPACK             go on from the state in the action, which another rank has given
 *     COVEY_LIST_STATE         call covey_trainer_list with what the optimizer keeps
 *     COVEY_LOAD_STATE         that is the same on all members now: it lies where it was listed;
 *                              covey_trainer_listed also has the arrays of other members
 *     COVEY_VACATE             tensors in the trainer's memory get memory of their own: it ends
 *     covey_trainer_ack(...)
 *
 * Which actions come, and what the ranks exchange between them, is the method's affair: an adapter
 * knows no method. One call at a time, of any thread: a call beside another one is refused.
 *
 * A step that fails before its COVEY_UPDATE has changed nothing, and the next one is that step
 * again. One that fails later, or has waited for the method's max_wait (COVEY_TIMEOUT with
 * COVEY_DONE), is taken up by the next covey_trainer_submit, which takes no new gradients then; so
 * is one that was left while covey_trainer_next waited, or before it gave the next action. Only one
 * that has not done its COVEY_COLLECT_GRADIENTS takes the gradients of the new call.
 *
 * Methods that do not wait for all ranks (eager, allreduce with max_wait) have versions: a step has
 * one COVEY_UPDATE for each version made since the last step, or none. Models are equal at equal
 * version. Gradients that come too late count in a later version, once. A rank that has fallen
 * behind the method's log gets COVEY_UNPACK, and another one COVEY_PACK. */
#ifndef COVEY_CORE_API_COVEY_TRAINER_H_
#define COVEY_CORE_API_COVEY_TRAINER_H_

#include "core/api/covey.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t covey_trainer; /* never 0 */

typedef struct covey_trainer_config {
  uint32_t struct_size;
  covey_group group;
  const char* name;           /* equal on all members; no other open trainer's */
  const covey_method* method; /* NULL = the knob `method`; not needed after open */
  covey_op op;                /* of gradients: COVEY_AVERAGE or COVEY_SUM */
  int64_t begin;              /* steps done before, by an earlier trainer; mostly 0 */
  int64_t end;                /* it ends with the part of the method that ends at this step: see
                               * covey_position.is_over; 0: with the method */
  int32_t num_spans;          /* parameters */
  const covey_dtype* dtypes;  /* [num_spans]; floating-point */
  const int64_t* counts;      /* [num_spans] elements, 0 is possible, but not of all; one without
                               * elements needs no address */
  int32_t num_hypers;      /* hyper-parameters that travel with gradients, 0 to 4096: an update uses
                            * those of the gradients, which may be another rank's or older ones */
  int32_t num_state;       /* arrays that updates keep beside the model, momenta for example, for
                            * COVEY_LIST_STATE; 0: none; -1: it is not known yet, or differs */
  int32_t keeps_gradients; /* 1: an update with this rank's own gradients takes them where the
                            * caller has them: without COVEY_COLLECT_GRADIENTS. Not agreed */
  int32_t prepares;        /* 1: the caller looks for NaN, and clips gradients to the method's
                            * clip_norm. Not agreed */
  int32_t reduces;         /* 1, with prepares: where the method has all members wait for the
                            * gradients of all, the caller exchanges them by itself, in
                            * COVEY_UPDATE, which is all of such a step. If it fails the step has
                            * changed nothing */
  int32_t vacates;         /* 1: the caller's tensors lie in memory of this trainer after an action:
                            * it gets COVEY_VACATE before such memory ends. Not agreed */
  int32_t in_place; /* 1: the caller trains its model where covey_trainer_model says, in parts whose
                     * exchanges are operations (not rounds, not pairs): others may look at it
                     * there. It lies there from the first call of such a part on, and is changed
                     * only within actions. Not agreed */
  int32_t copies;   /* 1: the caller trains its model elsewhere, and copies it for others in such
                     * parts: when one has asked for it, a call ends with COVEY_COLLECT_MODEL. Not
                     * agreed */
} covey_trainer_config;

/* The input of a step, beside the gradients. */
typedef struct covey_step {
  uint32_t struct_size;
  const char* unfit;    /* why its gradients must not be mixed with those of others, for people;
                         * NULL: they may be */
  const double* hypers; /* [num_hypers], copied; NULL when there is none */
} covey_step;

typedef enum covey_verb {
  COVEY_PENDING = 0, /* none yet: timeout_ns is over, and it goes on when called again */
  COVEY_COLLECT_GRADIENTS = 1,
  COVEY_COLLECT_MODEL = 2,
  COVEY_UPDATE = 3,
  COVEY_LOAD_MODEL = 4,
  COVEY_DONE = 5, /* the step, or finish, has ended, as the code of covey_trainer_next says */
  COVEY_PACK = 6,
  COVEY_UNPACK = 7,
  COVEY_LIST_STATE = 8,
  COVEY_LOAD_STATE = 9,
  COVEY_VACATE = 10
} covey_verb;

typedef struct covey_action {
  uint32_t struct_size;
  covey_verb verb;
  uint64_t number; /* for covey_trainer_ack; 0 with COVEY_PENDING and COVEY_DONE */
  /* Valid until covey_trainer_ack. */
  const double* hypers; /* COVEY_UPDATE: [num_hypers] */
  const void* image;    /* COVEY_UNPACK: the parts that were given, one after the other, */
  int64_t length_bytes; /* so long in all */
  int32_t own;          /* COVEY_UPDATE: 1: with this rank's own gradients of the step */
  double scale;         /* COVEY_LOAD_MODEL of a model at covey_trainer_place: to be multiplied by
                         * this: its mean is over all members, some of which have joined */
} covey_action;

/* Where a training is, for a checkpoint. */
typedef struct covey_position {
  uint32_t struct_size;
  int32_t may_differ; /* 1: this rank's model may be another than those of other ranks */
  int64_t version;    /* steps done, by the members it has merged with where it has done fewer */
  int64_t step;       /* the number of the next step */
  int64_t begin;      /* of covey_trainer_config, for a trainer that goes on from here */
  int64_t local;      /* steps since this rank has published what it has done, where it does so */
  int32_t has_state;  /* 1: covey_trainer_state is a part of it */
  int64_t step_ns;    /* in rounds: so long a step of this rank's own takes; 0: it is not known */
  int64_t published;  /* in rounds: the version that its last contribution was for; not restored */
  int32_t of_all;     /* in rounds: 1: which has waited for all members; not restored */
  int32_t payload;    /* covey_payload of the next step; not restored */
  int32_t catches_up; /* in rounds: 1: covey_trainer_begin_pass may give updates; not restored */
  int32_t is_over; /* 1: the part with which it is to end (covey_trainer_config.end) has ended for
                    * this rank: the caller closes it, and goes on by other means. Until then
                    * steps go on as in that part. Not restored */
  int64_t planned; /* the version whose plan (covey_method_plan) the next step goes by: in rounds
                    * that with which they have begun. Not restored */
  int32_t is_open; /* 1: a step has not come to its end, 2: a finish: the next call of it goes on.
                    * Not restored */
} covey_position;

typedef enum covey_seen_state {
  COVEY_SEEN_WHOLE = 0,    /* copied, all of one moment; or only looked at */
  COVEY_SEEN_NOTHING = 1,  /* there is no model to be seen, or none yet */
  COVEY_SEEN_CHANGING = 2, /* it is being changed, or was while it was copied; call it again. In
                            * pairs also: the member has not begun */
  COVEY_SEEN_CLOSED = 3,   /* the member has closed its trainer, or hidden it */
  COVEY_SEEN_LOST = 4,     /* it has died, or left without that */
  COVEY_SEEN_ASKED = 5     /* it shares no memory with this rank, and is asked; call it again */
} covey_seen_state;

/* A look at a member. */
typedef struct covey_seen {
  uint32_t struct_size;
  covey_seen_state state;
  int32_t superseded; /* in rounds: 1: an average of all has come after it; in pairs: this rank has
                       * the mean of a finish, and the member has not taken it */
  int64_t step;       /* in rounds: that it was published as; 0: none yet */
  int64_t version; /* updates that the member had done, as it last said; 0 if it has closed, or is
                       * lost */
} covey_seen;

/* Every member calls it; waits for all. COVEY_MISMATCH on every member when name, method, op,
 * begin, end or spans differ: the message names the first difference, the ranks and both values.
 * COVEY_INVALID_ARGUMENT too when no part of the method ends at `end`.
 * COVEY_UNSUPPORTED for a method that it cannot do: the message names those it can.
 * COVEY_EXHAUSTED when the arena has no room, on every member. */
COVEY_API covey_code covey_trainer_open(covey_runtime* runtime, const covey_trainer_config* config,
                                        covey_trainer* trainer, covey_error* error);

/* spans[i]: where gradient i lies or is to lie: counts[i] elements, aligned to 64 bytes. To be
 * asked within each COVEY_COLLECT_GRADIENTS and COVEY_UPDATE: it may be elsewhere each time. An
 * update may change them: no other rank sees that. NULL where no part of the training needs it. */
COVEY_API covey_code covey_trainer_gradients(covey_runtime* runtime, covey_trainer trainer,
                                             void** spans, covey_error* error);
/* The same for parameter i of the model, within COVEY_COLLECT_MODEL and COVEY_LOAD_MODEL. */
COVEY_API covey_code covey_trainer_model(covey_runtime* runtime, covey_trainer trainer,
                                         void** spans, covey_error* error);

/* Within COVEY_COLLECT_MODEL, for a model on a device: parameter i lies at tensors[i], of its
 * dtype, contiguous, of the shape [count], and is exchanged there, in place, up to
 * COVEY_LOAD_MODEL, ordered on the streams of the tensors. Parameters beside it in memory of the
 * host are listed too.
 * No codec encodes them. To be called within each COVEY_COLLECT_MODEL.
 * COVEY_UNSUPPORTED in rounds and pairs: they exchange models at covey_trainer_model. */
COVEY_API covey_code covey_trainer_place(covey_runtime* runtime, covey_trainer trainer,
                                         const covey_tensor* tensors, int32_t num_tensors,
                                         covey_error* error);

/* This rank has gradients for the next step. `step` may be NULL if there are no hyper-parameters.
 * With step->unfit the step ends with COVEY_NOT_FINITE and this text: in rounds on this rank, after
 * the step is done without its gradients; else nothing is done, on all members where gradients are
 * exchanged, else on this one. Does not wait. */
COVEY_API covey_code covey_trainer_submit(covey_runtime* runtime, covey_trainer trainer,
                                          const covey_step* step, covey_error* error);

/* Instead of a step, by every member: makes the models of all equal, if one may differ: their mean.
 * Afterwards the next step of all is that of the member that has done most. In rounds it ends when
 * all that was published is applied. When ranks are missing for max_wait it ends with COVEY_TIMEOUT
 * if it is strict (1), the message names them, and it goes on when called again; else (0) it ends
 * with what those have that are there, and a missing rank that comes later with the same. In a part
 * that another one follows (then=), or with which the trainer ends, it is strict. Does not wait. */
COVEY_API covey_code covey_trainer_finish(covey_runtime* runtime, covey_trainer trainer,
                                          int32_t strict, covey_error* error);

/* Instead of a step, by every member, before a checkpoint: nothing that this rank has learnt is
 * with another one, or in flight, afterwards. In pairs its model becomes all that is its own, with
 * what others have made of it, and covey_trainer_finish of another rank waits for this rank's; in
 * rounds it is a strict covey_trainer_finish; else there is nothing to do. When ranks are missing
 * for max_wait it ends with COVEY_TIMEOUT, and goes on when called again. Does not wait. */
COVEY_API covey_code covey_trainer_settle(covey_runtime* runtime, covey_trainer trainer,
                                          covey_error* error);

/* Before this rank computes the gradients of its next step: covey_trainer_next gives the updates of
 * the versions that others have made meanwhile, if the method has it skip ahead (`progress=skip`)
 * or this rank was overdue, and waits a moment for one that is due. So its gradients are for the
 * newest model. Before the first step of pairs others see its model from here on. Else there is
 * nothing to do. Need not be called. */
COVEY_API covey_code covey_trainer_begin_pass(covey_runtime* runtime, covey_trainer trainer,
                                              covey_error* error);

/* Between two steps, while the caller waits elsewhere: COVEY_PACK comes if a rank that has fallen
 * behind asks for this rank's state, else nothing. */
COVEY_API covey_code covey_trainer_serve(covey_runtime* runtime, covey_trainer trainer,
                                         covey_error* error);

/* The next action, after covey_trainer_submit or _finish, and again until COVEY_DONE. With
 * COVEY_PENDING it returns COVEY_TIMEOUT: timeout_ns is over (negative: no limit). */
COVEY_API covey_code covey_trainer_next(covey_runtime* runtime, covey_trainer trainer,
                                        int64_t timeout_ns, covey_action* action,
                                        covey_error* error);

/* Action `number` was done (1), or could not be (0): then the step ends with COVEY_ABORTED, and
 * gives the action again when it is taken up. Once for each action, else COVEY_INVALID_ARGUMENT. */
COVEY_API covey_code covey_trainer_ack(covey_runtime* runtime, covey_trainer trainer,
                                       uint64_t number, int32_t done, covey_error* error);

/* Within COVEY_PACK: copies parts[i], lengths[i] bytes each, for a rank that has fallen behind. */
COVEY_API covey_code covey_trainer_give(covey_runtime* runtime, covey_trainer trainer,
                                        const void* const* parts, const int64_t* lengths,
                                        int32_t num_parts, covey_error* error);

/* An array that an optimizer keeps beside the model. */
typedef struct covey_state_array {
  uint32_t struct_size;
  const char* name;  /* not empty, no more than 1024 bytes; NULL: the order of the list counts */
  void* data;        /* [count], in host memory of the caller's own; may be NULL when count is 0 */
  covey_dtype dtype; /* not bool */
  covey_op op;       /* COVEY_AVERAGE (floating-point numbers) or COVEY_MAX, over the members */
  int64_t count;     /* elements; 0: the name says that it is there, and no more */
} covey_state_array;

/* Within COVEY_LIST_STATE: this rank's optimizer state (momenta, step counts). The memory is the
 * trainer's until COVEY_LOAD_STATE, or the end of the step. It comes where a part of the training
 * ends in which ranks had updates of their own, and `then=` another one follows: else equal models
 * would part with the next update. arrays[num_arrays]; structs and names are copied.
 *
 * Members may list different arrays by name: one that a member has not listed counts as zeros
 * there. A name stands for one dtype, op and count on all members, else the step ends with
 * COVEY_MISMATCH on all: the message names the array, both kinds and their ranks. Without names:
 * as many, of the same kinds, on all members, else the same. After a mismatch the next call lists
 * anew.
 * COVEY_INVALID_ARGUMENT, and nothing is listed: an array unlike covey_state_array says, some with
 * and some without a name, two of one name, two in the same memory: the message gives the array's
 * index and name. */
COVEY_API covey_code covey_trainer_list(covey_runtime* runtime, covey_trainer trainer,
                                        const covey_state_array* arrays, int32_t num_arrays,
                                        covey_error* error);

/* Within COVEY_LOAD_STATE: the i-th of all arrays that any member has listed, in the order of their
 * names (their bytes); without names in that of the list. Returns its name ("" without one), or
 * NULL when there are no more, within another action, or there is no such trainer. *data holds the
 * result, *count elements of *dtype: it is the caller's own memory where this rank has listed the
 * array, else the trainer's (NULL when count is 0). Name and trainer's memory are valid until the
 * action is acknowledged. data, dtype and count may be NULL. */
COVEY_API const char* covey_trainer_listed(covey_runtime* runtime, covey_trainer trainer, int32_t i,
                                           void** data, covey_dtype* dtype, int64_t* count);

/* Between two steps; restoring, every member does it, and the model is the caller's affair. */
COVEY_API covey_code covey_trainer_position(covey_runtime* runtime, covey_trainer trainer,
                                            covey_position* position, covey_error* error);
/* COVEY_INVALID_ARGUMENT too when rounds are at another version: open a trainer with `begin`. */
COVEY_API covey_code covey_trainer_restore(covey_runtime* runtime, covey_trainer trainer,
                                           const covey_position* position, covey_error* error);

/* Copies the model of a member, by its rank in the job, as others see it now to spans[i], its
 * parameters: in pairs what it has published last, with what others have made of it since; in
 * rounds of models what it has published last; where models are exchanged by operations (local,
 * dpsgd) what it trains on, if it does so in place, as it was after its last update, also while it
 * waits for others. They are written only with COVEY_SEEN_WHOLE. spans NULL: only looks for state
 * and version, in any part. By any member, alone, at itself too, within a step or not; never waits.
 * COVEY_UNSUPPORTED in a part of other methods. Where members share no memory the first look asks
 * the member, and the same look within 2 s of the one before has its answer; a member that trains
 * elsewhere than in place answers at the end of its step. */
COVEY_API covey_code covey_trainer_peek(covey_runtime* runtime, covey_trainer trainer, int32_t rank,
                                        void* const* spans, covey_seen* seen, covey_error* error);

/* Between two steps, where the model is trained elsewhere (covey_trainer_config.copies): others see
 * this one, by span, until the next call of this rank. For a rank that looks at others, which may
 * look at it meanwhile. In rounds and pairs others see what was published: does nothing. */
COVEY_API covey_code covey_trainer_show(covey_runtime* runtime, covey_trainer trainer,
                                        const void* const* spans, covey_error* error);

/* Others see COVEY_SEEN_CLOSED from now on, for ever; covey_trainer_close does that too. An unknown
 * trainer: does nothing. */
COVEY_API void covey_trainer_hide(covey_runtime* runtime, covey_trainer trainer);

/* Between two steps: the i-th of the arrays that the method replicates on all ranks, such as
 * diloco's outer momentum; *bytes of it, the model's spans as covey_trainer_model has them. Returns
 * its name, or NULL when there are no more, or there is no such trainer. To go on from a checkpoint
 * write them, then call covey_trainer_restore. */
COVEY_API const char* covey_trainer_state(covey_runtime* runtime, covey_trainer trainer, int32_t i,
                                          void** address, int64_t* bytes);

/* Counters of this rank, as JSON. `steps` that have ended; when the `first` and the `last` one of
 * them did: nanoseconds of the clock that all processes of the host share, of this process's
 * processor time, and of covey_blocked_ns; [] before. `versions` that it has applied: 0 by a method
 * without versions. `published`: its contributions. `fresh`, by member: the versions that contain
 * its contribution of the same step. `overdue`, by member: how often max_wait was over without it.
 * `staleness`: the contributions that counted 0, 1, 2, 3 to 4, 5 to 8, 9 to 16, and more steps
 * late. In pairs `begun`: averages with a partner, and `met`: steps before which others had
 * averaged with this rank. `snapshots` of others that it has gone on from. In the rounds that the
 * next step belongs to: `made`, the last version that any rank has made; `missing`, by member, for
 * how many versions it had been overdue in the last one applied; `copied`, 1: a version is copied
 * before it is applied.
 * `memory_bytes` that it holds in this rank: gradients and model for the `exchange`,
 * contributions and results of `rounds`, models of `pairs`, the method's `arrays`, a `codec`'s.
 * "{}" for an unknown trainer, and during another call. The buffer rule of covey_stats. */
COVEY_API size_t covey_trainer_stats(covey_runtime* runtime, covey_trainer trainer, char* json,
                                     size_t capacity);

/* This rank has come to an exchange, and had something for it: what the table at the end of a job
 * finds late ranks by. */
typedef struct covey_arrival {
  int64_t exchange; /* equal on all members, another one for each; of this trainer */
  int64_t at_ns;    /* of the clock that all processes of the host share */
  int32_t needed;   /* it begins once so many members have come */
} covey_arrival;

/* Takes up to `capacity` of them, the oldest first, and returns how many; the latest 16384 are
 * kept. Not of exchanges in pairs. 0 for an unknown trainer, and during another call. */
COVEY_API int64_t covey_trainer_arrivals(covey_runtime* runtime, covey_trainer trainer,
                                         covey_arrival* arrivals, int64_t capacity);

/* Its memory is gone then. Not within a step. An unknown trainer: does nothing. */
COVEY_API void covey_trainer_close(covey_runtime* runtime, covey_trainer trainer);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_API_COVEY_TRAINER_H_ */
