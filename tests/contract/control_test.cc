// Goal: nodes over a real network (loopback) become one job, hear of each other's ends, and whoever
// does not hold the secret, speaks another version, or talks rubbish is refused and does no harm.
// Method: the control plane opened as the plug-in does, ports chosen by the system; strangers are
// raw stubs and raw sockets. Waits are for events, with a limit only a hang reaches.
#include "core/transport/control.h"

#include <arpa/inet.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "ops/control/challenge.h"
#include "ops/control/identity.h"
#include "proto/control.grpc.pb.h"

namespace covey {
namespace {

using Kind = ControlEvent::Kind;
using Report = ControlReport::Kind;
using Nodes = std::vector<std::unique_ptr<Control>>;

constexpr int kLimitMs = 60000;
const std::string kSecret = "9e7d24f0c1b85a3362d4f1a07bc8e9554f0d3a1c67b29e8840f5d6c7ab1392e4";

testing::AssertionResult Holds(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no \"" << part << "\" in \"" << text << "\"";
}

Status Open(const ControlOptions& options, std::unique_ptr<Control>* control) {
  return FindControl("grpc")->open(options, control);
}

ControlOptions Serving(int32_t nodes) {
  return {.address = "127.0.0.1:0",
          .secret = kSecret,
          .serve = true,
          .nodes = nodes,
          .offer = {.node = 0, .slots = 2, .host = "a", .host_id = "a", .process = 7},
          .build = "this build",
          .lease = 30 * kSecond};
}

ControlOptions Joining(const Control& server) {
  ControlOptions options = Serving(0);
  options.address = server.address();
  options.serve = false;
  options.offer.node = -1;
  return options;
}

std::unique_ptr<Control> Opened(const ControlOptions& options) {
  std::unique_ptr<Control> control;
  const Status status = Open(options, &control);
  EXPECT_TRUE(status.ok()) << status.message();
  return control;
}

// The next event that is not kWaiting.
ControlEvent Await(Control* control) {
  ControlEvent event;
  for (;;) {
    while (control->Next(&event))
      if (event.kind != Kind::kWaiting) return event;
    pollfd polled{control->event_fd(), POLLIN, 0};
    if (poll(&polled, 1, kLimitMs) != 1) {
      ADD_FAILURE() << "no event came";
      return {.kind = Kind::kRefused, .text = "no event"};
    }
  }
}

void ExpectNext(Control* control, Kind kind, const std::string& part) {
  const ControlEvent event = Await(control);
  EXPECT_EQ(static_cast<int>(event.kind), static_cast<int>(kind)) << event.text;
  EXPECT_TRUE(Holds(event.text, part));
}

// A job of `count` nodes that have all seen the view.
Nodes Formed(int32_t count) {
  Nodes nodes;
  nodes.push_back(Opened(Serving(count)));
  for (int32_t i = 1; i < count; ++i) nodes.push_back(Opened(Joining(*nodes[0])));
  for (const auto& node : nodes) {
    const ControlEvent view = Await(node.get());
    EXPECT_EQ(static_cast<int>(view.kind), static_cast<int>(Kind::kView)) << view.text;
    EXPECT_EQ(view.nodes.size(), static_cast<size_t>(count));
    EXPECT_EQ(view.text.size(), 64u);
  }
  return nodes;
}

// As one who holds `secret` connects.
std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address, const std::string& secret) {
  Identity identity;
  EXPECT_TRUE(MakeIdentity(secret, &identity).ok());
  grpc::ChannelArguments arguments;
  arguments.SetString(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, identity.name);
  return grpc::CreateCustomChannel(
      address,
      grpc::SslCredentials({identity.certificate_pem, identity.key_pem, identity.certificate_pem}),
      arguments);
}

// A socket of the system's choice on loopback, bound; connected when `to` is given.
int Socket(const std::string& to, uint16_t* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  if (to.empty()) {
    EXPECT_EQ(bind(fd, raw, length), 0);
    EXPECT_EQ(listen(fd, 16), 0);
    EXPECT_EQ(getsockname(fd, raw, &length), 0);
    *port = ntohs(address.sin_port);
  } else {
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(to.substr(to.rfind(':') + 1))));
    EXPECT_EQ(connect(fd, raw, length), 0);
  }
  return fd;
}

TEST(ControlTest, AJobFromItsFirstNodeToItsLast) {
  Nodes nodes = Formed(3);
  for (const auto& node : nodes) EXPECT_TRUE(node->Report({Report::kShare, "place"}).ok());
  for (const auto& node : nodes) {
    const ControlEvent shared = Await(node.get());
    EXPECT_EQ(static_cast<int>(shared.kind), static_cast<int>(Kind::kShared));
    EXPECT_EQ(shared.texts.size(), 3u);
  }
  for (const auto& node : nodes) EXPECT_TRUE(node->Report({Report::kReady, ""}).ok());
  EXPECT_EQ(nodes[0]->Report({Report::kShare, "late"}).message(), "it is not the time to share");
  EXPECT_TRUE(nodes[2]->Report({Report::kFailed, "boom"}).ok());
  for (int i : {0, 1}) ExpectNext(nodes[static_cast<size_t>(i)].get(), Kind::kFailed, "boom");
  for (const auto& node : nodes) EXPECT_TRUE(node->Report({Report::kLeft, ""}).ok());
  for (const auto& node : nodes) ExpectNext(node.get(), Kind::kEnded, "");
}

TEST(ControlTest, WhoGoesWithoutAWordIsLost) {
  Nodes nodes = Formed(3);
  nodes[1].reset();
  for (int i : {0, 2}) {
    const ControlEvent lost = Await(nodes[static_cast<size_t>(i)].get());
    EXPECT_EQ(static_cast<int>(lost.kind), static_cast<int>(Kind::kLost));
    EXPECT_TRUE(Holds(lost.text, " on a (process 7, ranks "));
    EXPECT_TRUE(Holds(lost.text, "has died (its connection broke)"));
    EXPECT_EQ(lost.nodes.size(), 1u);
  }
}

TEST(ControlTest, TheLossOfTheServerIsSeen) {
  Nodes nodes = Formed(2);
  nodes[0].reset();
  ExpectNext(nodes[1].get(), Kind::kLost, "node 0 on a (process 7, ranks 0-1)");
  EXPECT_EQ(nodes[1]->Report({Report::kLeft, ""}).code(), StatusCode::kAborted);
}

TEST(ControlTest, WhoReportsAtTheVeryEndHearsOfTheEnd) {
  for (int round = 0; round < 20; ++round) {
    Nodes nodes = Formed(2);
    std::atomic<bool> begun = false;
    Status last;
    std::thread reporting([&] {
      while ((last = nodes[1]->Report({Report::kFailed, "boom"})).ok()) begun = true;
    });
    while (!begun) std::this_thread::yield();
    nodes[0].reset();
    reporting.join();
    EXPECT_EQ(last.code(), StatusCode::kAborted) << last.message();
  }
}

TEST(ControlTest, AnotherSecretIsRefusedAndDoesNoHarm) {
  const std::unique_ptr<Control> server = Opened(Serving(2));
  ControlOptions options = Joining(*server);
  options.secret += "00";
  ExpectNext(Opened(options).get(), Kind::kRefused, "does not accept this node's secret");
  const std::unique_ptr<Control> node = Opened(Joining(*server));
  ExpectNext(node.get(), Kind::kView, "");
}

TEST(ControlTest, AServerWithoutTheSecretIsToldNothing) {
  class Impostor final : public control::Rendezvous::Service {
   public:
    grpc::Status Hello(grpc::ServerContext*, const control::HelloRequest*,
                       control::HelloReply*) override {
      heard = true;
      return grpc::Status::OK;
    }
    std::atomic<bool> heard = false;
  };
  Identity another;
  ASSERT_TRUE(MakeIdentity(kSecret + "00", &another).ok());
  grpc::SslServerCredentialsOptions tls;
  tls.pem_key_cert_pairs.push_back({another.key_pem, another.certificate_pem});
  Impostor impostor;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(tls), &port);
  builder.RegisterService(&impostor);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ControlOptions options = Serving(0);
  options.serve = false;
  options.address = "127.0.0.1:" + std::to_string(port);
  ExpectNext(Opened(options).get(), Kind::kRefused, "nor this node its");
  EXPECT_FALSE(impostor.heard);
}

TEST(ControlTest, WithoutTheIdentityNoCallArrives) {
  const std::unique_ptr<Control> server = Opened(Serving(2));
  control::HelloRequest hello;
  hello.set_protocol(kControlProtocol + 1);
  hello.set_client_nonce(NewNonce());
  for (const auto& channel :
       {grpc::CreateChannel(server->address(), grpc::InsecureChannelCredentials()),
        grpc::CreateChannel(server->address(), grpc::SslCredentials({})),
        ChannelTo(server->address(), kSecret + "00")}) {
    grpc::ClientContext context;
    control::HelloReply reply;
    const grpc::Status status =
        control::Rendezvous::NewStub(channel)->Hello(&context, hello, &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(status.error_message().find("protocol"), std::string::npos);
  }
}

TEST(ControlTest, NobodyConnectsOnceAllNodesAreThere) {
  const Nodes nodes = Formed(2);
  const std::string at = nodes[0]->address();
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(at.substr(at.find(':') + 1))));
  // The view may have come a moment before the socket is closed.
  for (int error = 0; error == 0; std::this_thread::yield()) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) error = errno;
    close(fd);
    EXPECT_TRUE(error == 0 || error == ECONNREFUSED || error == ECONNRESET) << error;
  }
}

TEST(ControlTest, AnotherProtocolIsRefusedInWords) {
  const std::unique_ptr<Control> server = Opened(Serving(2));
  grpc::ClientContext context;
  control::HelloRequest hello;
  control::HelloReply reply;
  hello.set_protocol(kControlProtocol + 1);
  hello.set_client_nonce(NewNonce());
  const grpc::Status status = control::Rendezvous::NewStub(ChannelTo(server->address(), kSecret))
                                  ->Hello(&context, hello, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(Holds(status.error_message(), "install the same version of Covey on every node"));
  EXPECT_EQ(reply.server_nonce(), "");
}

TEST(ControlTest, AnotherBuildIsRefusedInWords) {
  const std::unique_ptr<Control> server = Opened(Serving(2));
  ControlOptions options = Joining(*server);
  options.build = "another build";
  ExpectNext(Opened(options).get(), Kind::kRefused,
             "this node has another build, the rendezvous this build");
}

TEST(ControlTest, WithoutAProofEveryCallIsRefused) {
  const std::unique_ptr<Control> server = Opened(Serving(2));
  const auto channel = ChannelTo(server->address(), kSecret);
  control::Sealed sealed, reply;
  sealed.set_session(NewNonce());
  sealed.set_sequence(1);
  sealed.set_mac(NewNonce());
  grpc::ClientContext join, report, watch, large;
  EXPECT_EQ(control::Rendezvous::NewStub(channel)->Join(&join, sealed, &reply).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  const auto membership = control::Membership::NewStub(channel);
  EXPECT_EQ(membership->Report(&report, sealed, &reply).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  const auto reader = membership->Watch(&watch, sealed);
  EXPECT_FALSE(reader->Read(&reply));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  sealed.set_body(std::string(1 << 20, 'x'));
  EXPECT_EQ(membership->Report(&large, sealed, &reply).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(ControlTest, RubbishAndHalfOpenConnectionsDoNoHarm) {
  const std::unique_ptr<Control> server = Opened(Serving(2));
  std::vector<int> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(Socket(server->address(), nullptr));
    const std::string rubbish(static_cast<size_t>(i), static_cast<char>(i));
    if (i % 2 == 0) send(strangers.back(), rubbish.data(), rubbish.size(), MSG_NOSIGNAL);
  }
  const std::unique_ptr<Control> node = Opened(Joining(*server));
  ExpectNext(node.get(), Kind::kView, "");
  for (int fd : strangers) close(fd);
}

TEST(ControlTest, WhereNobodyOrNoRendezvousListensItWaitsAndSaysForWhat) {
  uint16_t port = 0;
  const int mute = Socket("", &port);  // takes connections and says nothing
  ControlOptions options = Serving(0);
  options.serve = false;
  options.address = "127.0.0.1:" + std::to_string(port);
  for (const bool listening : {true, false}) {
    if (!listening) close(mute);
    const std::unique_ptr<Control> node = Opened(options);
    pollfd polled{node->event_fd(), POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, kLimitMs), 1);
    ControlEvent event;
    ASSERT_TRUE(node->Next(&event));
    EXPECT_EQ(static_cast<int>(event.kind), static_cast<int>(Kind::kWaiting));
    EXPECT_TRUE(Holds(event.text, "no answer from " + options.address));
  }
}

TEST(ControlTest, WrongOptionsAreRefusedAtOnce) {
  std::unique_ptr<Control> control;
  const std::unique_ptr<Control> server = Opened(Serving(2));
  ControlOptions options = Serving(2);
  options.address = server->address();
  EXPECT_TRUE(Holds(Open(options, &control).message(), "Address already in use"));
  options.address = "192.0.2.1:0";  // of nobody: RFC 5737
  EXPECT_TRUE(Holds(Open(options, &control).message(), "Cannot assign requested address"));
  for (const char* address : {"", "host", ":1", "host:", "host:x", "host:65536", "host:-1"}) {
    options.address = address;
    EXPECT_TRUE(Holds(Open(options, &control).message(), "not an address of the form HOST:PORT"));
  }
  options = Serving(0);
  EXPECT_TRUE(Holds(Open(options, &control).message(), "a job has 1 to 1024 nodes, not 0"));
  options = Serving(2);
  options.secret = "0123456789abcdef0123456789abcdef";
  EXPECT_TRUE(Holds(Open(options, &control).message(), "`openssl rand -hex 32` makes one"));
  EXPECT_EQ(control, nullptr);
  EXPECT_TRUE(Holds(server->Report({Report::kFailed, std::string(20000, 'x')}).message(),
                    "at most 16384 bytes"));
}

TEST(ControlTest, EveryNetworkIsCalledByOneNameHoweverItIsWritten) {
  for (const char* host : {"0", "000.0.0.0", "0.0.0.0", "[::0]", "[::ffff:0.0.0.0]", "*"}) {
    ControlOptions options = Serving(2);
    options.address = std::string(host) + ":0";
    const std::unique_ptr<Control> server = Opened(options);
    ASSERT_NE(server, nullptr) << host;
    const std::string at = server->address();
    const std::string port = at.substr(at.rfind(':'));
    EXPECT_TRUE(at == "0.0.0.0" + port || at == "[::]" + port) << host << " is " << at;
    EXPECT_NE(port, ":0");
    ControlOptions joining = Joining(*server);
    joining.address = "127.0.0.1" + port;
    ExpectNext(Opened(joining).get(), Kind::kView, "");
  }
}

TEST(ControlTest, GrpcIsQuietBeforeAnybodyCanConnect) {
  const std::unique_ptr<Control> server = Opened(Serving(2));
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  ControlOptions options = Serving(2);
  options.address = server->address();  // taken: it ends before any connection
  std::unique_ptr<Control> control;
  EXPECT_FALSE(Open(options, &control).ok());
  EXPECT_EQ(gpr_should_log(GPR_LOG_SEVERITY_ERROR), 0);
}

TEST(ControlTest, BeatsKeepANodeBeyondItsLease) {
  ControlOptions options = Serving(2);
  options.lease = 3 * kSecond;
  const std::unique_ptr<Control> server = Opened(options);
  const std::unique_ptr<Control> node = Opened(Joining(*server));
  ExpectNext(server.get(), Kind::kView, "");
  ExpectNext(node.get(), Kind::kView, "");

  pollfd polled{server->event_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, 4000), 0);
}

}  // namespace
}  // namespace covey
