#include "ops/transports/tcp/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/sockios.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace covey::tcp {
namespace {

void Set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

// While nothing is in flight the kernel asks a silent peer after half a lease, and then thrice. It
// repeats what is in flight every quarter of one at least (Linux 6.15; older ones: 2 minutes).
void Tune(int fd, Time lease) {
  constexpr Time kLongest = 480 * kSecond;
  constexpr int kMostRto = 44;  // TCP_RTO_MAX_MS of linux/tcp.h
  const Time span = std::min(lease, kLongest);
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, IPPROTO_TCP, kMostRto, std::max<int>(1000, static_cast<int>(span / (4 * kMillisecond))));
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max<int>(1, static_cast<int>(span / (2 * kSecond))));
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max<int>(1, static_cast<int>(span / (6 * kSecond))));
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

}  // namespace

Address AddressOf(const std::string& text, uint16_t port) {
  Address address;
  sockaddr_in v4{};
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    address.length = sizeof(v4);
    std::memcpy(&address.storage, &v4, sizeof(v4));
    return address;
  }
  sockaddr_in6 v6{};
  inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  address.length = sizeof(v6);
  std::memcpy(&address.storage, &v6, sizeof(v6));
  return address;
}

Socket::Socket(int fd, Time lease) : fd_(fd) {
  if (fd_ >= 0) Tune(fd_, lease);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  Close();
  fd_ = std::exchange(other.fd_, -1);
  error_ = other.error_;
  return *this;
}

// A process that this one has forked may hold the descriptor, too, and the connection with it.
void Socket::Close() {
  if (fd_ < 0) return;
  shutdown(fd_, SHUT_RDWR);
  close(fd_);
  fd_ = -1;
}

Outcome Socket::Failed() {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Outcome::kWait;
  error_ = errno;
  return Outcome::kEnded;
}

Outcome Socket::Dial(const Address& address, Time lease, Socket* socket) {
  *socket = Socket(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), lease);
  if (!socket->is_open()) return socket->Failed();
  socket->LimitSilence(lease);
  const auto* to = reinterpret_cast<const sockaddr*>(&address.storage);
  if (connect(socket->fd_, to, address.length) == 0) return Outcome::kDone;
  return errno == EINPROGRESS ? Outcome::kWait : socket->Failed();
}

Outcome Socket::Connected() {
  pollfd room{fd_, POLLOUT, 0};
  if (poll(&room, 1, 0) <= 0) return Outcome::kWait;
  socklen_t length = sizeof(error_);
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error_, &length) != 0) error_ = errno;
  return error_ == 0 ? Outcome::kDone : Outcome::kEnded;
}

Outcome Socket::Send(const iovec* parts, size_t count, size_t* sent) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  const ssize_t n = sendmsg(fd_, &message, MSG_NOSIGNAL);
  *sent = static_cast<size_t>(std::max<ssize_t>(n, 0));
  return n >= 0 ? Outcome::kDone : Failed();
}

Outcome Socket::Receive(iovec* parts, size_t count, size_t* received) {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t n =
      count == 1 ? recv(fd_, parts[0].iov_base, parts[0].iov_len, 0) : recvmsg(fd_, &message, 0);
  *received = static_cast<size_t>(std::max<ssize_t>(n, 0));
  if (n < 0) return Failed();
  return n > 0 ? Outcome::kDone : Outcome::kEnded;
}

Outcome Socket::Peek(std::byte* to, size_t length, size_t* there) {
  const ssize_t n = recv(fd_, to, length, MSG_PEEK);
  *there = static_cast<size_t>(std::max<ssize_t>(n, 0));
  if (n < 0) return Failed();
  return n > 0 ? Outcome::kDone : Outcome::kEnded;
}

// TCP_USER_TIMEOUT would take a peer whose buffers are full, as its process stands still, for one
// that is away. That one's kernel answers each probe, which sets tcpi_probes back.
bool Socket::IsSilent(Time lease) const {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  const bool asked = info.tcpi_unacked > 0 || info.tcpi_probes > 1;
  return asked && info.tcpi_last_ack_recv >= lease / kMillisecond;
}

void Socket::LimitSilence(Time lease) {
  constexpr Time kLongest = 24 * 3600 * kSecond;
  const Time span = std::min(lease, kLongest);
  Set(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(span / kMillisecond));
}

size_t Socket::Unconfirmed() const {
  int bytes = 0;
  return ioctl(fd_, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

}  // namespace covey::tcp
