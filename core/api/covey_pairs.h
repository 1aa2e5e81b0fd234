/* Pairs: models averaged two at a time, where no member waits for another. A part of the C API,
 * with the conventions of covey.h.
 *
 * Each member of a group trains on its own model, all on one host. covey_pairs_step hands in what
 * it has become and averages it with one other member's, as the method's `topology` says, without
 * waiting: stopped or killed members delay no other. Others may do the same with this rank's model
 * meanwhile; their changes come back with the next step. Every update counts once, and averaging
 * moves no mean. core/PROTOCOL.md has the rules.
 *
 * Where functions take a model: spans[i] is the address of span i, memory of the caller's own that
 * it trains on. One thread at a time per pairs. */
#ifndef COVEY_CORE_API_COVEY_PAIRS_H_
#define COVEY_CORE_API_COVEY_PAIRS_H_

#include "core/api/covey.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t covey_pairs; /* 0 is never one */

typedef struct covey_pairs_config {
  uint32_t struct_size;
  covey_group group;
  const char* name;           /* not empty; members open the same names in the same order */
  const covey_method* method; /* one with COVEY_ADMIT_PAIRS; NULL = the knob `method` */
  int32_t num_spans;          /* at least 1 */
  const covey_dtype* dtypes;  /* [num_spans], not bool */
  const int64_t* counts;      /* [num_spans] elements, each at least 1 */
} covey_pairs_config;

/* Every member calls it, with the model it begins with; waits for all. COVEY_MISMATCH on every
 * member when name, method or spans differ: the message names the first difference, the ranks and
 * both values. COVEY_EXHAUSTED on every member when one has no room. COVEY_UNSUPPORTED: not on one
 * host. */
COVEY_API covey_code covey_pairs_open(covey_runtime* runtime, const covey_pairs_config* config,
                                      const void* const* spans, covey_pairs* pairs,
                                      covey_error* error);

/* The outcome of a step. */
typedef struct covey_pairs_met {
  uint32_t struct_size;
  int32_t partner; /* the rank it has averaged with; -1: none. It was not its turn, its local steps
                    * are not over, or another rank was about to change one of the two models */
  int32_t merged;  /* 1: others had averaged with this rank since its last step */
} covey_pairs_met;

/* The model has become what it is by one update of this rank. When the method's local steps are
 * over, hands in what they have brought, averages, and writes what this rank has now to the same
 * memory. Never waits. `met` may be NULL. */
COVEY_API covey_code covey_pairs_step(covey_runtime* runtime, covey_pairs pairs, void* const* spans,
                                      covey_pairs_met* met, covey_error* error);

/* Copies what a member (by its rank in the job) has handed in last, with what others have made of
 * it, to spans. Any member, at any time, alone. *whole (may be NULL) = 0: it was changed while it
 * was copied; call it again. */
COVEY_API covey_code covey_pairs_look(covey_runtime* runtime, covey_pairs pairs, int32_t rank,
                                      void* const* spans, int32_t* whole, covey_error* error);

/* This rank has done its last step, or wants what all have. Waits until all members that live have
 * called it; then the model is the mean of all, the same bits on each member, and all may train on.
 * COVEY_TIMEOUT after timeout_ns (negative: no limit of its own), or once the method's max_wait is
 * over: then the message names the ranks that are missing, peer_rank is the first of them, the
 * model is this rank's own, all its steps handed in, and it may be called again, or trained on. */
COVEY_API covey_code covey_pairs_finish(covey_runtime* runtime, covey_pairs pairs,
                                        void* const* spans, int64_t timeout_ns, covey_error* error);

/* As covey_pairs_finish, but the model is this rank's own then: all its steps, with the changes by
 * others. Once all have it nothing of any model is elsewhere, until a member steps: for saving
 * them. */
COVEY_API covey_code covey_pairs_settle(covey_runtime* runtime, covey_pairs pairs,
                                        void* const* spans, int64_t timeout_ns, covey_error* error);

/* This rank leaves; the others go on without it. */
COVEY_API void covey_pairs_close(covey_runtime* runtime, covey_pairs pairs);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_API_COVEY_PAIRS_H_ */
