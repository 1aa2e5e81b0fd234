// Addresses of the control plane, "host:port", looked at before gRPC does, so that a mistake is
// told in the system's words.
#ifndef COVEY_OPS_CONTROL_GRPC_ADDRESS_H_
#define COVEY_OPS_CONTROL_GRPC_ADDRESS_H_

#include <string>
#include <vector>

#include "core/base/status.h"

namespace covey {

// "host:port" or "[::1]:port", the port 0-65535.
Status CheckAddress(const std::string& address);

// Listens at every address that the host stands for, at one port, and nowhere else. *fds are the
// caller's to close; *bound is the address with the port in use, and with the host 0.0.0.0 or [::]
// where it stands for every network of this machine, however that was written ("0", "*",
// "[::ffff:0.0.0.0]"). An error says why, in the system's words.
Status ListenAt(const std::string& address, std::vector<int>* fds, std::string* bound);

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_GRPC_ADDRESS_H_
