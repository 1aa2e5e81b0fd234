// The control plane of the plug-in grpc: a node, with the server in it where it serves.
#include <grpc/grpc.h>

#include "core/transport/control.h"
#include "ops/control/grpc_address.h"
#include "ops/control/grpc_client.h"
#include "ops/control/grpc_server.h"
#include "ops/control/grpc_session.h"
#include "ops/control/secret.h"

namespace covey {
namespace {

class ServingNode final : public Control {
 public:
  ServingNode(std::unique_ptr<GrpcServer> server, std::unique_ptr<Control> node)
      : server_(std::move(server)), node_(std::move(node)) {}
  std::string address() const override { return node_->address(); }
  int event_fd() const override { return node_->event_fd(); }
  bool Next(ControlEvent* event) override { return node_->Next(event); }
  Status Report(const ControlReport& report) override { return node_->Report(report); }

 private:
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<Control> node_;  // goes first
};

Status Check(const ControlOptions& options) {
  RETURN_IF_ERROR(CheckAddress(options.address));
  RETURN_IF_ERROR(CheckSecret(options.secret));
  if (options.nodes < (options.serve ? 1 : 0) || options.nodes > kMaxNodes)
    return Status::InvalidArgument("a job has 1 to " + std::to_string(kMaxNodes) + " nodes, not " +
                                   std::to_string(options.nodes));
  if (options.serve && options.lease <= 0)
    return Status::InvalidArgument("the lease must be positive");
  return Status::Ok();
}

// gRPC is there from this on, and what a server or a client in it leaves alive.
struct Library {
  Library() { grpc_init(); }
  ~Library() { grpc_shutdown(); }
};

Status OpenGrpc(const ControlOptions& asked, std::unique_ptr<Control>* control) {
  RETURN_IF_ERROR(Check(asked));
  const Library library;
  KeepGrpcQuiet();
  ControlOptions options = asked;
  options.offer.serves = options.serve;
  std::unique_ptr<GrpcServer> server;
  if (options.serve) {
    RETURN_IF_ERROR(GrpcServer::Serve(options, &server));
    options.address = server->address();
  }
  std::unique_ptr<Control> node;
  RETURN_IF_ERROR(OpenGrpcClient(options, &node));
  if (server == nullptr) {
    *control = std::move(node);
  } else {
    *control = std::make_unique<ServingNode>(std::move(server), std::move(node));
  }
  return Status::Ok();
}

constexpr ControlKind kGrpc{"grpc", OpenGrpc};
const ControlRegistration kRegistration(kGrpc);

}  // namespace
}  // namespace covey
