#include "ops/control/grpc_listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "core/base/clock.h"
#include "core/base/thread_name.h"
#include "ops/control/grpc_address.h"

namespace covey {
namespace {

// Without a descriptor left it looks again after so long.
constexpr Time kFullPause = 50 * kMillisecond;
// Accepted in one go; then the connections that have gone are looked for.
constexpr int kAcceptedAtOnce = 64;

// As PlaceOfPeer; empty: it has gone already.
std::string PlaceOf(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
    return text + (':' + std::to_string(ntohs(v4->sin_port)));
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  constexpr size_t kMappedBytes = 12;  // before the IPv4 address in an IPv6 one
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
    inet_ntop(AF_INET, v6->sin6_addr.s6_addr + kMappedBytes, text, sizeof(text));
  else
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
  return text + (':' + std::to_string(ntohs(v6->sin6_port)));
}

// From this descriptor on they are short: it is the lowest that was free.
int FirstOfCrowd() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > std::numeric_limits<int>::max())
    return std::numeric_limits<int>::max();
  return static_cast<int>(limit.rlim_cur / 2);
}

}  // namespace

Status GrpcListener::Open(const std::string& address, std::unique_ptr<GrpcListener>* listener) {
  std::vector<int> fds;
  std::string bound;
  RETURN_IF_ERROR(ListenAt(address, &fds, &bound));
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  listener->reset(new GrpcListener(std::move(fds), wake_fd, std::move(bound)));
  return wake_fd >= 0 ? Status::Ok()
                      : Status::Exhausted("cannot make an eventfd: " + ErrnoText(errno));
}

GrpcListener::~GrpcListener() {
  Close();
  if (thread_.joinable()) thread_.join();
  for (const int fd : fds_) close(fd);
  if (wake_fd_ >= 0) close(wake_fd_);
}

void GrpcListener::Start(std::string name, std::function<void(int fd)> take,
                         std::function<void(uint64_t count)> turned_away) {
  name_ = std::move(name);
  take_ = std::move(take);
  turned_away_ = std::move(turned_away);
  thread_ = std::thread([this] { Run(); });
}

void GrpcListener::Welcome(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  if (const int fd = admission_.Welcome(PlaceOfPeer(peer)); fd >= 0) close(fd);
  eventfd_write(wake_fd_, 1);  // there is a place for another
}

void GrpcListener::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (wake_fd_ >= 0) eventfd_write(wake_fd_, 1);
}

void GrpcListener::Run() {
  NameThread("covey-serve");
  bool is_full = false;
  while (Await(is_full)) {
    Admission::Orders orders;
    Listen(&orders);
    is_full = !AcceptAll(&orders);
    Obey(orders);
  }
  for (const int fd : fds_) close(fd);
  fds_.clear();
  Admission::Orders last;
  {
    const std::lock_guard lock(mutex_);
    admission_.EndAll(&last);
  }
  Obey(last);
}

// Returns when there is something to do: in gone_ and spoken_, or a connection. False: closed.
bool GrpcListener::Await(bool is_full) {
  std::vector<pollfd> polled{{wake_fd_, POLLIN, 0}};
  Time until = is_full ? MonotonicNow() + kFullPause : kNever;
  gone_.clear();
  spoken_.clear();
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    until = std::min(until, admission_.Next(MonotonicNow()));
    for (const Admission::Watched& one : admission_.watched()) {
      const int bytes = one.is_silent ? POLLIN : 0;
      polled.push_back({one.fd, static_cast<int16_t>(POLLRDHUP | bytes), 0});
      if (!one.is_silent && !one.is_heard) spoken_.push_back(one.fd);
    }
  }
  const size_t guests = polled.size();
  if (!is_full)
    for (const int fd : fds_) polled.push_back({fd, POLLIN, 0});
  const Time rest = std::max(until == kNever ? Time{0} : until - MonotonicNow(), Time{0});
  const int timeout_ms =
      until == kNever ? -1 : static_cast<int>((rest + kMillisecond - 1) / kMillisecond);
  poll(polled.data(), polled.size(), timeout_ms);
  eventfd_t rings = 0;
  if (polled[0].revents != 0) eventfd_read(wake_fd_, &rings);
  for (size_t i = 1; i < guests; ++i) {
    if ((polled[i].revents & ~POLLIN) != 0)
      gone_.push_back(polled[i].fd);
    else if (polled[i].revents != 0)
      spoken_.push_back(polled[i].fd);
  }
  return true;
}

// Welcome may have taken one away since: then admission_ does not know its descriptor.
void GrpcListener::Listen(Admission::Orders* orders) {
  char bytes[kMostGreetingBytes];
  const std::lock_guard lock(mutex_);
  for (const int fd : gone_) admission_.Gone(fd, orders);
  for (const int fd : spoken_) {
    const ssize_t length = recv(fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
    if (length > 0)
      admission_.Hear(fd, GreetingOf({bytes, static_cast<size_t>(length)}, name_), orders);
  }
  admission_.Decide(MonotonicNow(), orders);
}

// False: the process can have no more descriptors.
bool GrpcListener::AcceptAll(Admission::Orders* orders) {
  const int first_of_crowd = FirstOfCrowd();
  const std::lock_guard lock(mutex_);
  for (const int listening : fds_) {
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
      const int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
      if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (fd < 0) {
        admission_.MakeRoom(orders);
        return false;
      }
      const std::string peer = PlaceOf(fd);
      if (peer.empty()) {
        close(fd);
        continue;
      }
      const int yes = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
      admission_.Arrive(fd, peer, MonotonicNow(), fd >= first_of_crowd, orders);
    }
  }
  return true;
}

// Ends before it takes: there may be no other descriptor for gRPC's.
void GrpcListener::Obey(const Admission::Orders& orders) {
  for (const int fd : orders.end) {
    shutdown(fd, SHUT_RDWR);
    close(fd);
  }
  for (const int fd : orders.take) {
    if (std::count(orders.end.begin(), orders.end.end(), fd) > 0) continue;  // crowded out since
    const int given = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (given >= 0) take_(given);
  }
  if (!orders.end.empty()) turned_away_(orders.end.size());
}

}  // namespace covey
