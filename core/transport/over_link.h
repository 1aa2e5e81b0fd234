// A transport over the link of a network.
#ifndef COVEY_CORE_TRANSPORT_OVER_LINK_H_
#define COVEY_CORE_TRANSPORT_OVER_LINK_H_

#include <memory>
#include <utility>
#include <vector>

#include "core/transport/far_peers.h"
#include "core/transport/transport.h"

namespace covey {

// The ranks of a host share its memory where they can (core/transport/composite.h), and are one job
// of it when there is no other host; else each is a host of its own (core/transport/mirrored.h).
// `early`: messages of the link that have been received already.
Status OpenOverLink(const TransportOptions& options, const FarPeers::Options& of_peers,
                    std::unique_ptr<Link> link, std::vector<std::pair<Rank, Bytes>> early,
                    std::unique_ptr<Transport>* transport);

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_OVER_LINK_H_
