// Shared parts of the C API over core/gossip/gossip_port.h.
#ifndef COVEY_CORE_API_C_API_PAIRS_H_
#define COVEY_CORE_API_C_API_PAIRS_H_

#include "core/api/covey_pairs.h"
#include "core/api/runtime_handle.h"
#include "core/base/status.h"

namespace covey {

// covey_pairs_open without its model: GossipPort::Begin is to come. The pairs are those of the part
// of the method that holds at version `from`.
Status OpenPairs(const Use& use, covey_runtime* runtime, const covey_pairs_config* config,
                 int64_t from, covey_pairs* number);

}  // namespace covey
#endif  // COVEY_CORE_API_C_API_PAIRS_H_
