/* Windows: memory of a rank that the others copy while it works on it. A part of the C API, with
 * the conventions of covey.h.
 *
 * A rank trains on memory of the arena (covey_arena_alloc) and says when it changes it. Any other
 * rank copies it, alone and at any time, and is told whether the copy is of one moment; no rank
 * waits for another. core/transport/seqlock.h has the rules. */
#ifndef COVEY_CORE_API_COVEY_WINDOW_H_
#define COVEY_CORE_API_COVEY_WINDOW_H_

#include "core/api/covey.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens one on `num_spans` pieces of this rank's arena, lengths_bytes[i] bytes from spans[i] on;
 * with none it has only a version. *place is what others need to find it, a number to be sent to
 * them. It takes a few words of the arena until covey_shutdown. COVEY_INVALID_ARGUMENT: memory that
 * is not in the arena; COVEY_UNSUPPORTED: the ranks share no memory. */
COVEY_API covey_code covey_window_open(covey_runtime* runtime, void* const* spans,
                                       const int64_t* lengths_bytes, int32_t num_spans,
                                       int64_t* place, covey_error* error);

/* Brackets every change of that memory; `version` is what others are told with it. Until the first
 * covey_window_end there is nothing to be seen. One thread at a time. After covey_window_close,
 * before which the memory stays, nothing is. All three do nothing without a runtime. */
COVEY_API void covey_window_begin(covey_runtime* runtime, int64_t place);
COVEY_API void covey_window_end(covey_runtime* runtime, int64_t place, int64_t version);
COVEY_API void covey_window_close(covey_runtime* runtime, int64_t place);

typedef enum covey_window_state {
  COVEY_WINDOW_WHOLE = 0,    /* copied, all of one moment */
  COVEY_WINDOW_NOTHING = 1,  /* there is nothing yet, or other spans than were asked for */
  COVEY_WINDOW_CHANGING = 2, /* it is being changed, or was while it was copied; look again */
  COVEY_WINDOW_CLOSED = 3,
  COVEY_WINDOW_LOST = 4 /* that rank has died, or left without closing it */
} covey_window_state;

/* Copies what lies in rank's window at `place`, which that rank was given: lengths_bytes[i] bytes
 * to to[i]. num_spans 0: only looks, also while it is being changed. *version: of what is there; 0
 * with NOTHING, CLOSED and LOST. Never waits. */
COVEY_API covey_code covey_window_look(covey_runtime* runtime, int32_t rank, int64_t place,
                                       void* const* to, const int64_t* lengths_bytes,
                                       int32_t num_spans, covey_window_state* state,
                                       int64_t* version, covey_error* error);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_API_COVEY_WINDOW_H_ */
