/* The C API's part for launchers: a job whose ranks one launcher has not started alone.
 *
 * A covey_control needs the plug-in grpc (libcovey_grpc.so) and is used by one thread at a time.
 * The conventions are those of covey.h.
 */
#ifndef COVEY_CORE_API_COVEY_CONTROL_H_
#define COVEY_CORE_API_COVEY_CONTROL_H_

#include "core/api/covey.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the shared memory of a job of `size` ranks on this host: a memfd without a name, so it
 * vanishes with the last process that holds it. Pass the descriptor on to every rank as
 * COVEY_SHM_FD. -1 with `error`. */
COVEY_API int covey_job_create(int32_t size, covey_error* error);

typedef struct covey_control covey_control; /* opaque: a node of the job */

typedef struct covey_control_config {
  uint32_t struct_size;
  const char* address; /* "host:port"; serving, port 0 is any free one */
  const void* secret;  /* of the job, the same for every node; never sent: 32 drawn bytes or more
                        * as 64 hexadecimal digits or as base64 */
  size_t secret_bytes;
  int32_t serve;       /* 1: serve the rendezvous here, and join it */
  int32_t nodes;       /* of the job; 0 when joining: as the rendezvous says */
  int32_t node;        /* the number of this one; -1: any that is free */
  int32_t slots;       /* ranks it brings */
  const char* host;    /* name of this machine, for people */
  const char* host_id; /* equal for nodes that can share memory */
} covey_control_config;

/* Joins in the background, and serves if asked to. Errors: the plug-in is not there, the address
 * cannot be bound, a value is wrong. Everything else, a refusal too, comes as an event. A node that
 * the rendezvous does not hear of for COVEY_LEASE (the server's value) is lost. */
COVEY_API covey_code covey_control_open(const covey_control_config* config, covey_control** control,
                                        covey_error* error);

/* "host:port" with the port that was bound; valid until close. */
COVEY_API const char* covey_control_address(covey_control* control);

/* A descriptor that is readable while there are events; belongs to `control`. */
COVEY_API int covey_control_fd(covey_control* control);

/* Takes the next event: 1, or 0 when there is none. It is read with covey_control_event, a JSON
 * object {kind, node, text, texts, nodes: [{node, slots, first_rank, process, serves, host,
 * host_id}]} with the buffer rule of covey_stats; core/transport/control.h tells the kinds: waiting
 * view shared failed lost ended refused. */
COVEY_API int covey_control_next(covey_control* control);
COVEY_API size_t covey_control_event(covey_control* control, char* json, size_t capacity);

/* Tells the rendezvous: `kind` is share, ready, failed or left (core/transport/control.h). */
COVEY_API covey_code covey_control_report(covey_control* control, const char* kind,
                                          const char* text, covey_error* error);

/* Leaves. Without a report "left" before, the others take this for a death. */
COVEY_API void covey_control_close(covey_control* control);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_API_COVEY_CONTROL_H_ */
