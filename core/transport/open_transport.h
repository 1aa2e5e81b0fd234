// Joins a job by the name of a transport: one that is linked in, one of a plug-in, or what a
// network's link and the memory of this host make together.
#ifndef COVEY_CORE_TRANSPORT_OPEN_TRANSPORT_H_
#define COVEY_CORE_TRANSPORT_OPEN_TRANSPORT_H_

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/transport/far_peers.h"
#include "core/transport/transport.h"

namespace covey {

// `options.rank` and `size` are ignored by networks, which know them.
Status OpenTransport(std::string_view name, std::string_view plugin_path,
                     const TransportOptions& options, std::unique_ptr<Transport>* transport);

// Over a link, of which the messages `early` have been received already: the ranks of a host share its memory where they can (core/transport/composite.h),
// and are one job of it when there is no other host; else each is a host of its own
// (core/transport/mirrored.h).
Status OpenOverLink(const TransportOptions& options, const FarPeers::Options& of_peers,
                    std::unique_ptr<Link> link, std::vector<std::pair<Rank, Bytes>> early,
                    std::unique_ptr<Transport>* transport);

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_OPEN_TRANSPORT_H_
