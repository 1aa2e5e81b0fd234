// Where connections of whoever can reach this machine arrive, before gRPC has them.
//
//   accepted  -> (handed to gRPC, whose TLS handshake is limited too) -> proved: Welcome
//             -> closed by either side, kPatience over, crowded out, or Close: turned away
//
// Invariants:
//  1. At most kMaxUnproved connections have not proved that they hold the job's secret; one more
//     ends the oldest of them. One that has proved it is never ended here.
//  2. None stays unproved for longer than kPatience.
//  3. After Close nobody can connect; who has proved goes on.
//
// Threads: its own one, from Start on, calls both functions; Welcome and Close may be called by
// any, by these functions' callees too.
#ifndef COVEY_OPS_CONTROL_GRPC_LISTENER_H_
#define COVEY_OPS_CONTROL_GRPC_LISTENER_H_

#include <poll.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/status.h"

namespace covey {

class GrpcListener {
 public:
  static constexpr size_t kMaxUnproved = 64;
  static constexpr Time kHandshakeLimit = kSecond;  // for gRPC to keep
  static constexpr Time kPatience = 3 * kHandshakeLimit;

  // Binds. Whoever connects waits until Start.
  static Status Open(const std::string& address, std::unique_ptr<GrpcListener>* listener);
  ~GrpcListener();  // closes, and waits for its thread

  int port() const { return port_; }
  // `take` gets a connection, and owns it; `turned_away`: so many were.
  void Start(std::function<void(int fd)> take, std::function<void(uint64_t count)> turned_away);
  // Whoever gRPC calls by this name has proved to hold the secret.
  void Welcome(const std::string& peer);
  // Does not wait.
  void Close();

 private:
  struct Unproved {
    int fd = -1;       // a second descriptor of the connection, to end it by
    std::string peer;  // address and port
    Time since = 0;
  };

  GrpcListener(std::vector<int> fds, int wake_fd, int port)
      : fds_(std::move(fds)), wake_fd_(wake_fd), port_(port) {}
  void Run();
  int ToPoll(bool is_full, std::vector<pollfd>* polled);
  uint64_t TurnAway(const std::vector<pollfd>& polled);
  bool AcceptAll(uint64_t* turned_away);
  bool Admit(int fd, uint64_t* turned_away);
  bool EndOldest(uint64_t* turned_away);

  std::vector<int> fds_;  // that listen; the thread's from Start on
  const int wake_fd_;
  const int port_;
  std::function<void(int fd)> take_;
  std::function<void(uint64_t count)> turned_away_;
  std::thread thread_;

  std::mutex mutex_;  // guards the two below
  bool closed_ = false;
  std::deque<Unproved> unproved_;  // the oldest first
};

// What gRPC's name of a peer ("ipv4:1.2.3.4:5", "ipv6:%5B::1%5D:5", "ipv6:[::1]:5") says of address
// and port: "1.2.3.4:5", "::1:5".
std::string PlaceOfPeer(const std::string& name);

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_GRPC_LISTENER_H_
