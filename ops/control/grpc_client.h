// A node's side of the control plane over gRPC: finds the server, exchanges proofs, joins, and
// turns what the server says into events.
//
// Threads: its own two (one reads events, one sends the beat), and the caller's in Report and Next.
#ifndef COVEY_OPS_CONTROL_GRPC_CLIENT_H_
#define COVEY_OPS_CONTROL_GRPC_CLIENT_H_

#include <memory>

#include "core/transport/control.h"

namespace covey {

// Joins options.address in the background. The object owns its threads; destroying it ends them,
// and every call that is under way.
Status OpenGrpcClient(const ControlOptions& options, std::unique_ptr<Control>* control);

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_GRPC_CLIENT_H_
