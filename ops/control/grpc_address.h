// Addresses of the control plane, "host:port", looked at before gRPC does, so that a mistake is
// told in the system's words.
#ifndef COVEY_OPS_CONTROL_GRPC_ADDRESS_H_
#define COVEY_OPS_CONTROL_GRPC_ADDRESS_H_

#include <string>

#include "core/base/status.h"

namespace covey {

// "host:port" or "[::1]:port", the port 0-65535.
Status CheckAddress(const std::string& address);

// Whether this process could listen there now.
Status CheckBindable(const std::string& address);

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_GRPC_ADDRESS_H_
