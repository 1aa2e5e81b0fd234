// The network of ranks on several hosts whose launcher has written a book of them (peer_book.h):
// tcp, of which every rank has the plug-in, or ucx behind its door (guarded_link.h), where every
// rank can.
#ifndef COVEY_CORE_TRANSPORT_OPEN_HOSTS_H_
#define COVEY_CORE_TRANSPORT_OPEN_HOSTS_H_

#include <memory>
#include <string>
#include <string_view>

#include "core/transport/transport.h"

namespace covey {

// Whether OpenHosts knows the name of the transport: auto, tcp, ucx.
bool IsOfHosts(std::string_view name);

// The text behind options.book_fd.
Status ReadBook(const TransportOptions& options, std::string* book);

// auto: ucx where every rank has an RDMA device and the plug-in, else tcp; the log of a rank 0 that
// has the plug-in says why. ucx: also in a network that is declared trusted; otherwise an error, on
// all ranks, of the lowest rank that cannot. The name has to be one for all ranks, or ends in such
// an error, too.
Status OpenHosts(std::string_view name, std::string_view plugin_path,
                 const TransportOptions& options, std::unique_ptr<Transport>* transport);

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_OPEN_HOSTS_H_
