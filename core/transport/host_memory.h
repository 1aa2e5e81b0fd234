// The memory of this host for ranks of a job on several hosts.
//
// coveyrun hands it down, as options.shm_fd. Among ranks of mpirun and srun the lowest of the host
// makes it and tells the others by mail where it is; they open it. All say whether they have it,
// and only when all do is it used: containers and PID namespaces may forbid it to some, and the
// user to any (options.shares_host).
#ifndef COVEY_CORE_TRANSPORT_HOST_MEMORY_H_
#define COVEY_CORE_TRANSPORT_HOST_MEMORY_H_

#include <memory>
#include <span>

#include "core/base/status.h"
#include "core/transport/far_peers.h"
#include "core/transport/transport.h"

namespace covey {

// `hosted` are the ranks of this host, ascending, and have all called it. On return *near is a
// transport between them, in that order, or null: they share no memory. `options` are the job's.
// Errors: a peer that is lost or does not come.
Status JoinHostMemory(const TransportOptions& options, std::span<const Rank> hosted, FarPeers* far,
                      std::unique_ptr<Transport>* near);

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_HOST_MEMORY_H_
