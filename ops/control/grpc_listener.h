// Where connections from the whole network arrive, before gRPC has them: it does what admission.h
// decides. gRPC gets a connection, and its TLS handshake is limited too, when a whole greeting of
// it is there; until then it costs one descriptor and nothing of gRPC's.
//
// After Close no client can connect; clients that have proved to hold the secret go on. More than
// half of the descriptors that this process may have are not taken by strangers.
//
// Threads: its own one, from Start on, calls both functions; Welcome and Close may be called by
// any, by these functions' callees too.
#ifndef COVEY_OPS_CONTROL_GRPC_LISTENER_H_
#define COVEY_OPS_CONTROL_GRPC_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/status.h"
#include "ops/control/admission.h"

namespace covey {

class GrpcListener {
 public:
  static constexpr Time kHandshakeLimit = Admission::kPatience / 2;  // for gRPC to keep

  // Binds. Clients that connect wait until Start.
  static Status Open(const std::string& address, std::unique_ptr<GrpcListener>* listener);
  ~GrpcListener();  // closes, and waits for its thread

  // With the port in use; see ListenAt.
  const std::string& address() const { return address_; }
  // `name` is in the greeting of those that hold the secret; `take` gets a connection, and owns it;
  // `turned_away`: so many were.
  void Start(std::string name, std::function<void(int fd)> take,
             std::function<void(uint64_t count)> turned_away);
  // A peer that gRPC calls by this name has proved to hold the secret.
  void Welcome(const std::string& peer);
  // Does not wait.
  void Close();

 private:
  GrpcListener(std::vector<int> fds, int wake_fd, std::string address)
      : fds_(std::move(fds)), wake_fd_(wake_fd), address_(std::move(address)) {}
  void Run();
  bool Await(bool is_full);
  bool AcceptAll(Admission::Orders* orders);
  void Listen(Admission::Orders* orders);
  void Obey(const Admission::Orders& orders);

  std::vector<int> fds_;  // that listen; the thread's from Start on
  const int wake_fd_;
  const std::string address_;
  std::string name_;
  std::function<void(int fd)> take_;
  std::function<void(uint64_t count)> turned_away_;
  // Of the thread alone: connections of which there is news.
  std::vector<int> gone_, spoken_;
  std::thread thread_;

  std::mutex mutex_;  // guards the two below
  bool closed_ = false;
  Admission admission_;
};

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_GRPC_LISTENER_H_
