/* Methods: the exchange of the ranks at each step. A part of the C API, with the conventions of
 * covey.h. Pure, and any thread. */
#ifndef COVEY_CORE_API_COVEY_METHODS_H_
#define COVEY_CORE_API_COVEY_METHODS_H_

#include "core/api/covey.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum covey_payload {
  COVEY_NOTHING = 0,   /* this step is done by each rank alone */
  COVEY_GRADIENTS = 1, /* before the update: the gradients, reduced */
  COVEY_MODEL = 2,     /* after the update: the parameters, averaged */
  COVEY_DELTA = 3      /* after local_steps updates: how the parameters have changed; by
                        * core/api/covey_trainer.h alone */
} covey_payload;

typedef enum covey_admission {
  COVEY_ADMIT_ALL = 0,      /* the exchange runs once every member has come */
  COVEY_ADMIT_ROUNDS = 1,   /* as versions, see core/api/covey_rounds.h: once enough have come */
  COVEY_ADMIT_PAIRS = 2,    /* two at a time, see core/gossip: no member waits */
  COVEY_ADMIT_NEIGHBORS = 3 /* by a neighbor_allreduce with covey_method_row's weights */
} covey_admission;

/* Waits of a method: a time in ns, or one of these. */
enum { COVEY_WAIT_AUTO = 0, COVEY_WAIT_FOREVER = -1 };
enum { COVEY_MAX_CODEC = 64 };

/* A step of a method. An adapter takes all that it has to know of a method from here, and reads
 * nothing from the method's text. */
typedef struct covey_plan {
  uint32_t struct_size;
  covey_payload payload;
  covey_admission admission;
  covey_group group; /* the members that take part */
  int64_t until;     /* the next version at which another method holds, or warm-up is over (not that
                        * of rounds of gradients, which go on); INT64_MAX when there is none */
  int64_t local_steps; /* COVEY_MODEL, COVEY_DELTA in rounds: a member does so many steps between
                        * two of its versions; else 0: each step is exchanged as said */
  int64_t warmup;      /* in rounds: so many versions from this one on wait for all, for max_wait at
                        * most */

  /* These belong to the method, and hold in its warm-up too. */
  int64_t max_wait_ns; /* how long a member waits for the others; COVEY_WAIT_AUTO: by its steps */
  int32_t needed;      /* a version waits for so many members; all, where there are no rounds */
  int32_t skips_ahead; /* 1: a late member goes on with the step after the last version */
  double clip_norm;    /* the largest norm of the gradients of an update; 0: any */
  char codec[COVEY_MAX_CODEC]; /* codec of its payload, "topk@bits=2+block=512"; "": none */
} covey_plan;

/* All methods as a JSON array of {name, help, bytes, citation, exchanged, partners, saved, late,
 * learning_rate, memory, lr_scale, parameters: [{name, letter, unit, default, minimum, maximum,
 * help}]}, where values that are not written as numbers are strings. `bytes` is per rank, with P
 * ranks, g bytes of gradients and m of parameters; `saved` is what a rank has to save; lr_scale is
 * "ranks" or "one": by what a learning rate for one rank is to be multiplied. Same buffer rule as
 * covey_stats; needs no runtime. */
COVEY_API size_t covey_methods(char* json, size_t capacity);

/* The method that `text` chooses, such as "local:local_steps=8,warmup_steps=100"; NULL: the knob
 * `method` of the runtime; with a text none is needed. It is immutable, of any thread and of no
 * runtime, and is given back by covey_method_free. COVEY_INVALID_ARGUMENT names what there is and
 * the nearest to what was written; *method is NULL then. */
COVEY_API covey_code covey_method_parse(covey_runtime* runtime, const char* text,
                                        covey_method** method, covey_error* error);
/* NULL: does nothing. */
COVEY_API void covey_method_free(covey_method* method);

/* Its text with every parameter by its full name: equal texts mean equal methods. Empty for NULL.
 * Same buffer rule as covey_stats. */
COVEY_API size_t covey_method_text(const covey_method* method, char* out, size_t capacity);

/* The text of the method that holds at `version`, alone: without warm-up and what follows. Empty
 * for NULL or a negative version. Same buffer rule as covey_stats. */
COVEY_API size_t covey_method_at(const covey_method* method, int64_t version, char* out,
                                 size_t capacity);

/* The exchange of the members of `group` at the end of step `version` (0 is the first), by `method`
 * (NULL: the knob `method` of the runtime). Pure: every member gets the same answer, at any time.
 * COVEY_INVALID_ARGUMENT when the group has fewer members than the method waits for; a group of one
 * never waits, and has every method. */
COVEY_API covey_code covey_method_plan(covey_runtime* runtime, const covey_method* method,
                                       covey_group group, int64_t version, covey_plan* plan,
                                       covey_error* error);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_API_COVEY_METHODS_H_ */
