// Joins a job by the name of a transport: one that is linked in, one of a plug-in, or what a
// network's link and the memory of this host make together.
#ifndef COVEY_CORE_TRANSPORT_OPEN_TRANSPORT_H_
#define COVEY_CORE_TRANSPORT_OPEN_TRANSPORT_H_

#include <memory>
#include <string_view>

#include "core/transport/transport.h"

namespace covey {

// `options.rank` and `size` are ignored by networks, which know them.
Status OpenTransport(std::string_view name, std::string_view plugin_path,
                     const TransportOptions& options, std::unique_ptr<Transport>* transport);

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_OPEN_TRANSPORT_H_
