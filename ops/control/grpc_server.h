// Serves the rendezvous of a job over gRPC: sessions are those of challenge.h, decisions those of
// rendezvous.h; this file only carries messages between them and the network.
//
// Threads: gRPC's. One lock guards everything; it is never held while a message travels. The thread
// of each Watch looks every kLook whether its node is still connected, and whose lease ran out.
#ifndef COVEY_OPS_CONTROL_GRPC_SERVER_H_
#define COVEY_OPS_CONTROL_GRPC_SERVER_H_

#include <memory>
#include <string>

#include "core/transport/control.h"

namespace covey {

class GrpcServer {
 public:
  static constexpr Time kLook = 20 * kMillisecond;

  virtual ~GrpcServer() = default;  // ends every stream
  virtual std::string address() const = 0;

  // Binds options.address. An error says why it cannot be bound, in the system's words.
  static Status Serve(const ControlOptions& options, std::unique_ptr<GrpcServer>* server);
};

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_GRPC_SERVER_H_
