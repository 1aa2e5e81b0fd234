#include "ops/control/grpc_session.h"

#include <grpc/support/log.h>

#include <algorithm>

#include "ops/control/grpc_messages.h"
#include "ops/control/identity.h"

namespace covey {
namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const ControlOptions& options) {
  constexpr int kFirstRetryMs = 50;
  constexpr int kLastRetryMs = 500;
  constexpr int kConnectMs = 10000;  // so long may a connection and its handshake take
  // The job's identity is shown, and asked for. Empty credentials: libcrypto makes none.
  Identity identity;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  if (MakeIdentity(options.secret, &identity).ok())
    credentials = grpc::SslCredentials({.pem_root_certs = identity.certificate_pem,
                                        .pem_private_key = identity.key_pem,
                                        .pem_cert_chain = identity.certificate_pem});
  grpc::ChannelArguments arguments;
  arguments.SetString(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, identity.name);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a proxy of the site is no way to a node
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstRetryMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLastRetryMs);
  arguments.SetMaxReceiveMessageSize(kMaxControlMessageBytes);
  return grpc::CreateCustomChannel(options.address, credentials, arguments);
}

// gRPC tells by OpenSSL's words alone that a handshake failed for the other side's certificate.
bool IsOtherIdentity(std::string_view why) {
  return why.find("certificate verify failed") != std::string_view::npos ||
         why.find("CERTIFICATE_VERIFY_FAILED") != std::string_view::npos;
}

}  // namespace

void KeepGrpcQuiet() {
  constexpr auto kNothing = static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1);
  if (gpr_should_log(GPR_LOG_SEVERITY_INFO) == 0) gpr_set_log_verbosity(kNothing);
}

GrpcSession::Context::Context(GrpcSession* session, Time timeout) : session_(session) {
  if (timeout != kNever)
    context_.set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(timeout, GPR_TIMESPAN)));
  const std::lock_guard lock(session_->contexts_mutex_);
  session_->contexts_.push_back(&context_);
  if (session_->cancelled_) context_.TryCancel();
}

GrpcSession::Context::~Context() {
  const std::lock_guard lock(session_->contexts_mutex_);
  std::erase(session_->contexts_, &context_);
}

GrpcSession::GrpcSession(const ControlOptions& options)
    : options_(options), channel_(MakeChannel(options)) {
  rendezvous_ = control::Rendezvous::NewStub(channel_);
  membership_ = control::Membership::NewStub(channel_);
}

void GrpcSession::AwaitConnection(Time limit) {
  channel_->WaitForConnected(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(limit, GPR_TIMESPAN)));
}

void GrpcSession::Cancel() {
  const std::lock_guard lock(contexts_mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
}

Status GrpcSession::FailureOf(const grpc::Status& status) const {
  const std::string& who = options_.address;
  const std::string why = status.error_message();
  if (IsOtherIdentity(why))
    return Status::InvalidArgument("the rendezvous at " + who +
                                   " does not accept this node's secret, nor this node its: give "
                                   "every node the same secret file");
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::ABORTED:
      return Status::Timeout("no answer from " + who + " (" + status.error_message() + ")");
    case grpc::StatusCode::UNAUTHENTICATED:
      return Status::InvalidArgument("the rendezvous at " + who +
                                     " refuses this node: " + status.error_message());
    case grpc::StatusCode::FAILED_PRECONDITION:
      return Status::Unsupported("the rendezvous at " + who +
                                 " refuses this node: " + status.error_message());
    default:
      return Status::Unsupported("what listens at " + who + " is no rendezvous of Covey (" +
                                 status.error_message() + ")");
  }
}

Status GrpcSession::Enter() {
  control::HelloRequest hello;
  control::HelloReply hello_reply;
  const std::string nonce = NewNonce();
  hello.set_protocol(kControlProtocol);
  hello.set_client_nonce(nonce);
  {
    Context context(this, kSecond);
    const grpc::Status said = rendezvous_->Hello(context.get(), hello, &hello_reply);
    if (!said.ok()) return FailureOf(said);
  }
  session_ = hello_reply.server_nonce();
  keys_ = MakeKeys(options_.secret, nonce, session_);
  control::ProveRequest prove;
  control::ProveReply prove_reply;
  prove.set_session(session_);
  prove.set_client_proof(keys_.client_proof);
  Context context(this, kCallTimeout);
  const grpc::Status said = rendezvous_->Prove(context.get(), prove, &prove_reply);
  if (said.error_code() == grpc::StatusCode::UNAUTHENTICATED)
    return Status::InvalidArgument("the rendezvous at " + options_.address +
                                   " does not accept this node's secret (" + said.error_message() +
                                   "): give every node the same secret file");
  if (!said.ok()) return FailureOf(said);
  if (SameBytes(prove_reply.server_proof(), keys_.server_proof)) return Status::Ok();
  return Status::InvalidArgument("what listens at " + options_.address +
                                 " does not hold the job's secret: nothing was told to it");
}

Status GrpcSession::Join(Time* lease) {
  control::JoinRequest join;
  *join.mutable_node() = ToMessage(options_.offer);
  join.set_build(options_.build);
  join.set_nodes(options_.nodes);
  std::string answer;
  RETURN_IF_ERROR(SealedCall("Join", join.SerializeAsString(), kCallTimeout, &answer));
  control::JoinReply reply;
  if (!reply.ParseFromString(answer)) return Status::Unsupported("a reply to Join is malformed");
  if (!reply.accepted())
    return Status::InvalidArgument("the rendezvous at " + options_.address +
                                   " refuses this node: " + reply.reason());
  *lease = reply.lease_ns();
  return Status::Ok();
}

Status GrpcSession::Report(const ControlReport& report, Time timeout) {
  if (report.text.size() > kMaxControlTextBytes)
    return Status::InvalidArgument("a report has at most " + std::to_string(kMaxControlTextBytes) +
                                   " bytes, not " + std::to_string(report.text.size()));
  std::string answer;
  RETURN_IF_ERROR(SealedCall("Report", ToMessage(report).SerializeAsString(), timeout, &answer));
  control::ReportReply reply;
  if (!reply.ParseFromString(answer)) return Status::Unsupported("a reply to Report is malformed");
  if (!reply.accepted()) return Status::Aborted(reply.reason());
  return Status::Ok();
}

control::Sealed GrpcSession::Sealed(std::string_view call, const std::string& body) {
  control::Sealed sealed;
  sealed.set_session(session_);
  sealed.set_sequence(++sequence_);
  sealed.set_body(body);
  sealed.set_mac(Seal(keys_.client_seal, call, sealed.sequence(), body));
  return sealed;
}

bool GrpcSession::IsFrom(const control::Sealed& sealed, const std::string& call,
                         uint64_t sequence) const {
  return sealed.session() == session_ && sealed.sequence() == sequence &&
         SameBytes(sealed.mac(), Seal(keys_.server_seal, call, sequence, sealed.body()));
}

Status GrpcSession::SealedCall(std::string_view call, const std::string& body, Time timeout,
                               std::string* answer) {
  const std::lock_guard lock(calls_);
  const control::Sealed request = Sealed(call, body);
  control::Sealed reply;
  Context context(this, timeout);
  const grpc::Status said = call == "Join" ? rendezvous_->Join(context.get(), request, &reply)
                                           : membership_->Report(context.get(), request, &reply);
  if (!said.ok()) return FailureOf(said);
  if (!IsFrom(reply, std::string(call) + " reply", request.sequence()))
    return Status::InvalidArgument("an answer from " + options_.address +
                                   " is not the rendezvous's: its seal is wrong");
  *answer = reply.body();
  return Status::Ok();
}

Status GrpcSession::ReadEvent(const control::Sealed& sealed, uint64_t sequence,
                              ControlEvent* event) const {
  control::Event message;
  if (IsFrom(sealed, "Watch event", sequence) && message.ParseFromString(sealed.body()) &&
      FromMessage(message, event))
    return Status::Ok();
  return Status::Aborted("an event from " + options_.address +
                         " is not the rendezvous's: its seal is wrong");
}

}  // namespace covey
