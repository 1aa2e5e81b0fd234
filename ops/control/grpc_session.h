// The calls of one node: each with a deadline, sealed, and checked when the answer comes.
//
// Calls may come from several threads: they are made one after the other, so that sequences grow on
// the server. Cancel ends the one under way and all later ones.
#ifndef COVEY_OPS_CONTROL_GRPC_SESSION_H_
#define COVEY_OPS_CONTROL_GRPC_SESSION_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <string>

#include "core/transport/control.h"
#include "ops/control/challenge.h"
#include "proto/control.grpc.pb.h"

namespace covey {

// gRPC writes lines to stderr for each stranger whose handshake fails; here they are counted
// instead. With GRPC_VERBOSITY at more than errors they are all written. Before any client can
// connect. REQUIRES: grpc_init was called: it reads GRPC_VERBOSITY.
void KeepGrpcQuiet();

class GrpcSession {
 public:
  static constexpr Time kCallTimeout = 5 * kSecond;

  explicit GrpcSession(const ControlOptions& options);

  // Hello and Prove. kTimeout: no answer yet. Others: refused for good, with the reason.
  Status Enter();
  // Joins as options.offer; *lease is the server's. REQUIRES: entered. Errors as of Enter.
  Status Join(Time* lease);
  // `timeout`: so long is an answer waited for.
  Status Report(const ControlReport& report, Time timeout = kCallTimeout);
  // Calls `take` for each event, until the stream ends. The status says how: kAborted.
  template <class Take>
  Status Watch(const Take& take);
  void Cancel();
  // Until there is a connection. One is made only while a call waits for it, and this is one.
  void AwaitConnection(Time limit);

 private:
  // A call's context for as long as it is under way.
  class Context;

  Status SealedCall(std::string_view call, const std::string& body, Time timeout,
                    std::string* answer);
  control::Sealed Sealed(std::string_view call, const std::string& body);
  bool IsFrom(const control::Sealed& sealed, const std::string& call, uint64_t sequence) const;
  Status ReadEvent(const control::Sealed& sealed, uint64_t sequence, ControlEvent* event) const;
  Status FailureOf(const grpc::Status& status) const;

  const ControlOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<control::Rendezvous::Stub> rendezvous_;
  std::unique_ptr<control::Membership::Stub> membership_;
  std::string session_;
  SessionKeys keys_;

  std::mutex calls_;  // held during a sealed call; guards sequence_
  uint64_t sequence_ = 0;
  std::mutex contexts_mutex_;  // guards the two below
  std::vector<grpc::ClientContext*> contexts_;
  bool cancelled_ = false;
};

class GrpcSession::Context {
 public:
  Context(GrpcSession* session, Time timeout);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  grpc::ClientContext* get() { return &context_; }

 private:
  GrpcSession* session_;
  grpc::ClientContext context_;
};

template <class Take>
Status GrpcSession::Watch(const Take& take) {
  Context context(this, kNever);
  std::unique_ptr<grpc::ClientReader<control::Sealed>> reader;
  {
    const std::lock_guard lock(calls_);
    reader = membership_->Watch(context.get(), Sealed("Watch", {}));
  }
  control::Sealed sealed;
  for (uint64_t sequence = 1; reader->Read(&sealed); ++sequence) {
    ControlEvent event;
    RETURN_IF_ERROR(ReadEvent(sealed, sequence, &event));
    take(std::move(event));
  }
  return Status::Aborted("the connection to " + options_.address + " broke");
}

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_GRPC_SESSION_H_
