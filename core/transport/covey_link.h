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

enum { COVEY_LINK_ABI = 5 };

/* How this rank was told to join. */
typedef struct covey_link_options {
  int32_t rank; /* -1: the network knows */
  int32_t size;
  /* The book of the job's ranks, their addresses and its key, with a 0 at its end
   * (core/transport/peer_book.h); null: none was given. */
  const char* book;
  int32_t listener;    /* a socket that listens at this rank's address of the book; -1: none */
  int64_t lease_ns;    /* a peer that the network cannot reach for so long is lost */
  const char* address; /* this rank's of the book, as inet_pton takes it; null: none */
  int32_t is_trusted;  /* 1 = the user says that there are no strangers in its network */
  int32_t streams;     /* connections of a pair for large puts; 0: as the network likes */
} covey_link_options;

typedef struct covey_link {
  void* self;
  int32_t rank;
  int32_t size;
  /* By rank, the lowest rank of its host; lives as long as the link. Null: unknown. */
  const int32_t* hosts;
  int32_t any_thread;
  /* For poll(2): readable when there is something to do; -1 = there is none, the caller looks. */
  int32_t descriptor;
  /* 1 = taken (and copied), 0 = no room now, -1 = the network is broken: every peer is lost. */
  int (*send)(void* self, int32_t to, const void* message, size_t length);
  /* 1 = *message is the next one, valid until the next call; 0 = none has arrived; -1 = broken. */
  int (*receive)(void* self, int32_t* from, const void** message, size_t* length);
  /* 1 = everything taken has left this process. */
  int (*flushed)(void* self);
  void (*close)(void* self);
  /* Puts (link.h). All three null: the network has none. put returns as send. */
  void (*land)(void* self, int32_t from, void* memory, size_t length);
  int (*put)(void* self, int32_t to, uint64_t offset, const void* data, size_t length);
  void (*drop)(void* self, int32_t peer);
  /* A message up to this length leaves at once, a longer one when its receiver asks for it: short
   * puts go as messages of this length. 0: there is no such limit. */
  size_t eager_bytes;
  /* 1 = *peer has been lost, with one sentence in *how, valid until the next call; each peer once.
   * 0 = no other. Null: only the whole network is ever lost. */
  int (*lost)(void* self, int32_t* peer, const char** how);
  /* For a network that reaches its peers by addresses (addressed_link.h); all null: it needs none.
   * The address of this rank lives as long as the link. */
  const void* address;
  size_t address_length;
  void (*expect)(void* self, int32_t peer, uint64_t token);
  void (*connect)(void* self, int32_t peer, const void* address, size_t length, uint64_t token);
} covey_link;

/* Joins; fills *link. 0, or 1 with one sentence in `error`. `abi`: the COVEY_LINK_ABI of the
 * caller. `options` live as long as the call; the listener stays the caller's. */
typedef int covey_open_link_function(uint32_t abi, const covey_link_options* options,
                                     covey_link* link, char* error, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_TRANSPORT_COVEY_LINK_H_ */
