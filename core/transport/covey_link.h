/* The exports of a plug-in that is a network: C, so that it can be compiled with any compiler
 * against any MPI. core/transport/plugin_link.h makes a Link of it; the contract is that of
 * core/transport/link.h.
 *
 * The plug-in exports covey_open_link and nothing else of this header's. All functions are called
 * by one thread at a time; with any_thread 0 always by the thread that opened it.
 */
#ifndef COVEY_CORE_TRANSPORT_COVEY_LINK_H_
#define COVEY_CORE_TRANSPORT_COVEY_LINK_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { COVEY_LINK_ABI = 1 };

typedef struct covey_link {
  void* self;
  int32_t rank;
  int32_t size;
  int32_t local_rank; /* among the ranks of this host; -1 = unknown */
  int32_t local_size;
  int32_t any_thread;
  /* 1 = taken (and copied), 0 = no room now, -1 = broken. */
  int (*send)(void* self, int32_t to, const void* message, size_t length);
  /* 1 = *message is the next one, valid until the next call; 0 = none has arrived; -1 = broken. */
  int (*receive)(void* self, int32_t* from, const void** message, size_t* length);
  /* 1 = everything taken has left this process. */
  int (*flushed)(void* self);
  void (*close)(void* self);
} covey_link;

/* Joins; fills *link. 0, or 1 with one sentence in `error`. `abi`: the COVEY_LINK_ABI of the
 * caller. */
typedef int covey_open_link_function(uint32_t abi, covey_link* link, char* error, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_TRANSPORT_COVEY_LINK_H_ */
