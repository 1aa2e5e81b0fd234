/* Waiting: the ranks that an operation waits for, those for which it would be in vain, and how long
 * this rank has waited. A part of the C API, with the conventions of covey.h. Any thread. */
#ifndef COVEY_CORE_API_COVEY_WAITING_H_
#define COVEY_CORE_API_COVEY_WAITING_H_

#include "core/api/covey.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The members that an operation in flight waits for, ascending, into ranks[0..capacity): they have
 * not submitted it, or they have not come as far in it. When operations of its stream come before
 * it: those that the first of them waits for. Returns how many there are; 0: it has ended, waits
 * for no rank, or this rank does not know: then the rank that does is asked, and a later call may
 * say; -1: unknown handle. */
COVEY_API int covey_awaited(covey_runtime* runtime, covey_handle handle, int32_t* ranks,
                            int32_t capacity);

/* The ranks of the job that have died or left it, as far as this rank has seen, ascending, into
 * ranks[0..capacity). Returns how many there are; -1 without a runtime. Operations that wait for
 * them end by themselves: this is for what waits otherwise, as for a message in a file or store. */
COVEY_API int covey_lost(covey_runtime* runtime, int32_t* ranks, int32_t capacity);

/* How long calls have waited in all: `blocked_ns` of covey_stats alone, for a call in each step. 0
 * without a runtime. */
COVEY_API int64_t covey_blocked_ns(covey_runtime* runtime);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* COVEY_CORE_API_COVEY_WAITING_H_ */
