#include "ops/control/grpc_server.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

#include "core/base/clock.h"
#include "ops/control/challenge.h"
#include "ops/control/grpc_listener.h"
#include "ops/control/grpc_messages.h"
#include "ops/control/identity.h"
#include "ops/control/rendezvous.h"
#include "proto/control.grpc.pb.h"

namespace covey {
namespace {

using control::Sealed;
using grpc::ServerContext;

grpc::Status Refusal(const Status& status) {
  if (status.code() == StatusCode::kInvalidArgument)
    return {grpc::StatusCode::UNAUTHENTICATED, status.message()};
  if (status.code() == StatusCode::kAborted) return {grpc::StatusCode::ABORTED, status.message()};
  return {grpc::StatusCode::FAILED_PRECONDITION, status.message()};
}

std::string InHex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kDigits[byte / 16], kDigits[byte % 16]};
  }
  return text;
}

grpc::Status Garbage() { return {grpc::StatusCode::INVALID_ARGUMENT, "not a message of Covey"}; }

// The state behind both services.
class Desk {
 public:
  explicit Desk(const ControlOptions& options)
      : door_(options.secret),
        rendezvous_({.nodes = options.nodes,
                     .lease = options.lease,
                     .build = options.build,
                     .job = InHex(NewNonce())}),
        lease_(options.lease) {}

  // `full` is called once, when all nodes are there. Before the first call of a node.
  void OnFull(std::function<void()> full) { full_ = std::move(full); }
  void TurnedAway(uint64_t count) {
    const std::lock_guard lock(mutex_);
    for (uint64_t i = 0; i < count; ++i) rendezvous_.NoteStranger();
    Deliver();
  }

  grpc::Status Hello(const control::HelloRequest& request, control::HelloReply* reply) {
    const std::lock_guard lock(mutex_);
    const std::string nonce = NewNonce();
    const Status status =
        door_.Hello(MonotonicNow(), request.protocol(), request.client_nonce(), nonce);
    if (!status.ok()) return Refusal(status);
    reply->set_server_nonce(nonce);
    return grpc::Status::OK;
  }

  grpc::Status Prove(const control::ProveRequest& request, control::ProveReply* reply) {
    const std::lock_guard lock(mutex_);
    std::string proof;
    const Status status =
        door_.Prove(MonotonicNow(), request.session(), request.client_proof(), &proof);
    if (status.code() == StatusCode::kInvalidArgument) rendezvous_.NoteStranger();
    Deliver();
    if (!status.ok()) return Refusal(status);
    reply->set_server_proof(proof);
    return grpc::Status::OK;
  }

  grpc::Status Join(const Sealed& request, Sealed* reply) {
    control::JoinRequest join;
    Rendezvous::Offer offer;
    const std::lock_guard lock(mutex_);
    if (const Status open = Open(request, "Join"); !open.ok()) return Refusal(open);
    if (!join.ParseFromString(request.body()) || !FromMessage(join.node(), &offer.node) ||
        tickets_.contains(request.session()))
      return Garbage();
    offer.build = join.build();
    offer.nodes = join.nodes();
    int32_t ticket = -1;
    const Rendezvous::Decision decision = rendezvous_.Join(MonotonicNow(), offer, &ticket);
    if (decision.accepted) {
      tickets_[request.session()] = ticket;
      outboxes_[ticket];
    }
    Deliver();
    if (full_ && rendezvous_.phase() != Rendezvous::Phase::kWaiting) std::exchange(full_, {})();
    control::JoinReply answer;
    answer.set_accepted(decision.accepted);
    answer.set_reason(decision.reason);
    answer.set_lease_ns(lease_);
    Answer(request, "Join", answer.SerializeAsString(), reply);
    if (!decision.accepted) door_.Leave(request.session());
    return grpc::Status::OK;
  }

  grpc::Status Report(const Sealed& request, Sealed* reply) {
    control::ReportRequest message;
    ControlReport report;
    const std::lock_guard lock(mutex_);
    if (const Status open = Open(request, "Report"); !open.ok()) return Refusal(open);
    const auto found = tickets_.find(request.session());
    if (!message.ParseFromString(request.body()) || !FromMessage(message, &report) ||
        found == tickets_.end())
      return Garbage();
    const Rendezvous::Decision decision = rendezvous_.Report(MonotonicNow(), found->second, report);
    Deliver();
    control::ReportReply answer;
    answer.set_accepted(decision.accepted);
    answer.set_reason(decision.reason);
    Answer(request, "Report", answer.SerializeAsString(), reply);
    return grpc::Status::OK;
  }

  grpc::Status Watch(ServerContext* context, const Sealed& request,
                     grpc::ServerWriter<Sealed>* writer) {
    const std::string& session = request.session();
    std::unique_lock lock(mutex_);
    if (const Status open = Open(request, "Watch"); !open.ok()) return Refusal(open);
    const auto found = tickets_.find(session);
    if (found == tickets_.end()) return Garbage();
    const int32_t ticket = found->second;
    std::deque<Event>& outbox = outboxes_[ticket];
    uint64_t sequence = 0;
    bool connected = true;
    while (connected && !context->IsCancelled() && !(closing_ && outbox.empty())) {
      if (outbox.empty()) {
        news_.wait_for(lock, std::chrono::nanoseconds(GrpcServer::kLook));
        rendezvous_.Tick(MonotonicNow());
        Deliver();
        continue;
      }
      Sealed event;
      Put(session, "Watch event", ++sequence, ToMessage(*outbox.front()).SerializeAsString(),
          &event);
      outbox.pop_front();
      lock.unlock();
      connected = writer->Write(event);
      lock.lock();
    }
    rendezvous_.Lose(ticket, "has died (its connection broke)");
    Deliver();
    tickets_.erase(session);
    outboxes_.erase(ticket);
    door_.Leave(session);
    news_.notify_all();
    return grpc::Status::OK;
  }

  // Returns when every node has taken its last news, or `patience` is over.
  void Close(Time patience) {
    std::unique_lock lock(mutex_);
    closing_ = true;
    news_.notify_all();
    news_.wait_for(lock, std::chrono::nanoseconds(patience), [this] { return tickets_.empty(); });
  }

 private:
  using Event = std::shared_ptr<const ControlEvent>;

  Status Open(const Sealed& request, std::string_view call) {
    // A session that the end has just taken: its node may not have heard of it yet.
    if (closing_ && !tickets_.contains(request.session()))
      return Status::Aborted("the rendezvous has ended");
    return door_.Open(request.session(), call, request.sequence(), request.body(), request.mac());
  }
  void Put(const std::string& session, const std::string& call, uint64_t sequence, std::string body,
           Sealed* sealed) {
    sealed->set_session(session);
    sealed->set_sequence(sequence);
    sealed->set_mac(door_.SealOf(session, call, sequence, body));
    sealed->set_body(std::move(body));
  }
  void Answer(const Sealed& request, const std::string& call, std::string body, Sealed* reply) {
    Put(request.session(), call + " reply", request.sequence(), std::move(body), reply);
  }
  void Deliver() {
    std::vector<Rendezvous::Mail> mails = rendezvous_.TakeMail();
    for (Rendezvous::Mail& mail : mails) {
      const auto box = outboxes_.find(mail.ticket);
      if (box != outboxes_.end() && box->second.size() < kMaxOutbox)
        box->second.push_back(std::move(mail.event));
    }
    if (!mails.empty()) news_.notify_all();
  }

  // Beyond what a job has to say: each node once waits, fails per rank, is lost, leaves.
  static constexpr size_t kMaxOutbox = 4 * kMaxNodes;

  std::mutex mutex_;  // guards all below
  std::condition_variable news_;
  Door door_;
  Rendezvous rendezvous_;
  const Time lease_;
  bool closing_ = false;
  std::function<void()> full_;
  std::map<std::string, int32_t> tickets_;         // by session
  std::map<int32_t, std::deque<Event>> outboxes_;  // by ticket
};

class RendezvousService final : public control::Rendezvous::Service {
 public:
  RendezvousService(Desk* desk, GrpcListener* listener) : desk_(desk), listener_(listener) {}
  // The caller has the job's identity: TLS lets no other client come so far.
  grpc::Status Hello(ServerContext* context, const control::HelloRequest* request,
                     control::HelloReply* reply) override {
    listener_->Welcome(context->peer());
    return desk_->Hello(*request, reply);
  }
  grpc::Status Prove(ServerContext*, const control::ProveRequest* request,
                     control::ProveReply* reply) override {
    return desk_->Prove(*request, reply);
  }
  grpc::Status Join(ServerContext*, const Sealed* request, Sealed* reply) override {
    return desk_->Join(*request, reply);
  }

 private:
  Desk* desk_;
  GrpcListener* listener_;
};

// Beyond the memory of a job of one node: the messages to all nodes, which join at once.
constexpr size_t kBytesPerNode = size_t{1} << 20;
constexpr size_t kBytes = size_t{32} << 20;
// Each node has one call that lasts (Watch), and one at a time that does not.
constexpr int kThreadsPerNode = 2, kThreads = 16;

class MembershipService final : public control::Membership::Service {
 public:
  explicit MembershipService(Desk* desk) : desk_(desk) {}
  grpc::Status Watch(ServerContext* context, const Sealed* request,
                     grpc::ServerWriter<Sealed>* writer) override {
    return desk_->Watch(context, *request, writer);
  }
  grpc::Status Report(ServerContext*, const Sealed* request, Sealed* reply) override {
    return desk_->Report(*request, reply);
  }

 private:
  Desk* desk_;
};

// Both sides show the job's identity, and take no other.
std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const Identity& identity) {
  grpc::SslServerCredentialsOptions tls(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  tls.pem_root_certs = identity.certificate_pem;
  tls.pem_key_cert_pairs.push_back({identity.key_pem, identity.certificate_pem});
  return grpc::SslServerCredentials(tls);
}

class Server final : public GrpcServer {
 public:
  Server(const ControlOptions& options, std::unique_ptr<GrpcListener> listener)
      : desk_(options),
        listener_(std::move(listener)),
        rendezvous_(&desk_, listener_.get()),
        membership_(&desk_) {}
  ~Server() override {
    listener_->Close();
    if (server_ == nullptr) return;
    desk_.Close(kLastWords);
    server_->Shutdown(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(kLastWords, GPR_TIMESPAN)));
    server_->Wait();
  }
  std::string address() const override { return address_; }

  Status Start(const ControlOptions& options) {
    Identity identity;
    RETURN_IF_ERROR(MakeIdentity(options.secret, &identity));
    grpc::ServerBuilder builder;
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        CredentialsOf(identity));
    grpc::ResourceQuota quota("covey control");
    quota.Resize(kBytes + kBytesPerNode * static_cast<size_t>(options.nodes));
    quota.SetMaxThreads(kThreads + kThreadsPerNode * options.nodes);
    builder.SetResourceQuota(quota);
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                               static_cast<int>(GrpcListener::kHandshakeLimit / kMillisecond));
    builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
    builder.RegisterService(&rendezvous_);
    builder.RegisterService(&membership_);
    server_ = builder.BuildAndStart();
    const std::string& asked = options.address;
    if (server_ == nullptr)
      return Status::InvalidArgument("cannot serve at " + asked + ": gRPC does not start");
    address_ = listener_->address();
    desk_.OnFull([this] { listener_->Close(); });
    listener_->Start(
        identity.name,
        [this](int fd) {
          grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters taken;
          taken.fd = fd;
          acceptor_->HandleNewConnection(&taken);
        },
        [this](uint64_t count) { desk_.TurnedAway(count); });
    return Status::Ok();
  }

 private:
  static constexpr int kMaxReceiveBytes = 64 * 1024;
  static constexpr Time kLastWords = 500 * kMillisecond;

  Desk desk_;
  std::unique_ptr<GrpcListener> listener_;
  RendezvousService rendezvous_;
  MembershipService membership_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

Status GrpcServer::Serve(const ControlOptions& options, std::unique_ptr<GrpcServer>* server) {
  std::unique_ptr<GrpcListener> listener;
  RETURN_IF_ERROR(GrpcListener::Open(options.address, &listener));
  auto made = std::make_unique<Server>(options, std::move(listener));
  RETURN_IF_ERROR(made->Start(options));
  *server = std::move(made);
  return Status::Ok();
}

}  // namespace covey
