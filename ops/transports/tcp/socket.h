// A TCP socket that never blocks: the errors of the kernel as three outcomes.
//
// One thread. Owns its descriptor.
#ifndef COVEY_OPS_TRANSPORTS_TCP_SOCKET_H_
#define COVEY_OPS_TRANSPORTS_TCP_SOCKET_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "core/base/types.h"

namespace covey::tcp {

enum class Outcome {
  kDone,
  kWait,   // the socket has to become ready first
  kEnded,  // the connection is over: error() says why, 0 = the other side closed it
};

// Where a rank listens: IPv4 or IPv6.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};
// REQUIRES: inet_pton takes `text`.
Address AddressOf(const std::string& text, uint16_t port);

class Socket {
 public:
  Socket() = default;
  // Takes over a connected or connecting descriptor; -1: none. A peer that answers nothing for
  // `lease` while nothing is in flight ends it.
  Socket(int fd, Time lease);
  ~Socket() { Close(); }
  Socket(Socket&& other) noexcept { *this = std::move(other); }
  Socket& operator=(Socket&& other) noexcept;

  // Begins to connect. kEnded: see error().
  static Outcome Dial(const Address& address, Time lease, Socket* socket);
  // kDone: it is connected.
  Outcome Connected();

  Outcome Send(const iovec* parts, size_t count, size_t* sent);
  Outcome Receive(iovec* parts, size_t count, size_t* received);
  // Like Receive, but the bytes stay.
  Outcome Peek(std::byte* to, size_t length, size_t* there);
  // What was sent, or was to be sent, has not been answered by the peer's kernel for a lease.
  bool IsSilent(Time lease) const;
  // What is in flight for `lease` ends the connection; 0: it does not.
  void LimitSilence(Time lease);
  // Bytes that the other side's kernel has not confirmed.
  size_t Unconfirmed() const;

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int error() const { return error_; }
  void Close();

 private:
  Outcome Failed();

  int fd_ = -1;
  int error_ = 0;
};

}  // namespace covey::tcp
#endif  // COVEY_OPS_TRANSPORTS_TCP_SOCKET_H_
