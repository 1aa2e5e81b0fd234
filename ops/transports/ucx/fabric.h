// Which of UCX's transports a link may use. UCX does not know its peers: whoever reaches a port of
// its TCP can end the process with a few forged bytes. So it opens no such port unless the user
// trusts the network.
//
// Functions; any thread.
#ifndef COVEY_OPS_TRANSPORTS_UCX_FABRIC_H_
#define COVEY_OPS_TRANSPORTS_UCX_FABRIC_H_

#include <string>

namespace covey::ucx {

// Values of UCX_TLS and UCX_NET_DEVICES.
struct Fabric {
  std::string transports;
  std::string devices;  // empty: as the user has set them
};

// Whether an InfiniBand, RoCE or EFA device of this host is up.
bool HasRdma();

// RDMA where the host has it; else TCP on the interface that has `address` (as inet_pton takes it),
// where its network is trusted. Empty: found; else one sentence.
std::string Choose(const std::string& address, bool is_trusted, Fabric* fabric);

}  // namespace covey::ucx
#endif  // COVEY_OPS_TRANSPORTS_UCX_FABRIC_H_
