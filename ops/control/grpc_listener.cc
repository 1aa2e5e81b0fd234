#include "ops/control/grpc_listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/clock.h"
#include "ops/control/grpc_address.h"

namespace covey {
namespace {

// Without a descriptor left it looks again after so long.
constexpr Time kFullPause = 50 * kMillisecond;
// Accepted in one go; then who has gone is looked for.
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

}  // namespace

std::string PlaceOfPeer(const std::string& name) {
  std::string place = name.substr(std::min(name.find(':'), name.size() - 1) + 1);
  for (const std::string_view mark : {"%5B", "%5D", "[", "]"})
    if (const size_t at = place.find(mark); at != std::string::npos) place.erase(at, mark.size());
  // The zone of a link-local address: not in what getpeername gives as text.
  const size_t zone = place.find('%'), port = place.rfind(':');
  if (zone != std::string::npos && port != std::string::npos && zone < port)
    place.erase(zone, port - zone);
  return place;
}

Status GrpcListener::Open(const std::string& address, std::unique_ptr<GrpcListener>* listener) {
  std::vector<int> fds;
  int port = 0;
  RETURN_IF_ERROR(ListenAt(address, &fds, &port));
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  listener->reset(new GrpcListener(std::move(fds), wake_fd, port));
  return wake_fd >= 0 ? Status::Ok()
                      : Status::Exhausted("cannot make an eventfd: " + ErrnoText(errno));
}

GrpcListener::~GrpcListener() {
  Close();
  if (thread_.joinable()) thread_.join();
  for (const int fd : fds_) close(fd);
  if (wake_fd_ >= 0) close(wake_fd_);
}

void GrpcListener::Start(std::function<void(int fd)> take,
                         std::function<void(uint64_t count)> turned_away) {
  take_ = std::move(take);
  turned_away_ = std::move(turned_away);
  thread_ = std::thread([this] { Run(); });
}

void GrpcListener::Welcome(const std::string& peer) {
  const std::string place = PlaceOfPeer(peer);
  const std::lock_guard lock(mutex_);
  for (const Unproved& one : unproved_)
    if (one.peer == place) close(one.fd);
  std::erase_if(unproved_, [&](const Unproved& one) { return one.peer == place; });
}

void GrpcListener::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (wake_fd_ >= 0) eventfd_write(wake_fd_, 1);
}

void GrpcListener::Run() {
  std::vector<pollfd> polled;
  bool is_full = false;
  for (;;) {
    const int timeout_ms = ToPoll(is_full, &polled);
    if (polled.empty()) break;
    poll(polled.data(), polled.size(), timeout_ms);
    uint64_t count = TurnAway(polled);
    is_full = !AcceptAll(&count);
    if (count > 0) turned_away_(count);
  }
  for (const int fd : fds_) close(fd);
  fds_.clear();
  uint64_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    while (EndOldest(&count)) continue;
  }
  if (count > 0) turned_away_(count);
}

// Nothing: it is closed. Returns for how many milliseconds nobody's patience is over.
int GrpcListener::ToPoll(bool is_full, std::vector<pollfd>* polled) {
  const std::lock_guard lock(mutex_);
  polled->clear();
  if (closed_) return 0;
  polled->push_back({wake_fd_, POLLIN, 0});
  for (const Unproved& one : unproved_) polled->push_back({one.fd, POLLRDHUP, 0});
  if (!is_full)
    for (const int fd : fds_) polled->push_back({fd, POLLIN, 0});
  Time until = is_full ? MonotonicNow() + kFullPause : kNever;
  if (!unproved_.empty()) until = std::min(until, unproved_.front().since + kPatience);
  if (until == kNever) return -1;
  return static_cast<int>(std::max(until - MonotonicNow(), Time{0}) / kMillisecond) + 1;
}

// Those that have gone, and those that were too slow.
uint64_t GrpcListener::TurnAway(const std::vector<pollfd>& polled) {
  const Time now = MonotonicNow();
  const std::lock_guard lock(mutex_);
  return std::erase_if(unproved_, [&](const Unproved& one) {
    const bool has_gone = std::any_of(polled.begin(), polled.end(), [&](const pollfd& seen) {
      return seen.fd == one.fd && seen.revents != 0;
    });
    if (!has_gone && now - one.since < kPatience) return false;
    shutdown(one.fd, SHUT_RDWR);
    close(one.fd);
    return true;
  });
}

// False: the process can have no more descriptors.
bool GrpcListener::AcceptAll(uint64_t* turned_away) {
  for (const int listening : fds_) {
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
      const int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
      if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (fd >= 0 && Admit(fd, turned_away)) continue;
      const std::lock_guard lock(mutex_);
      EndOldest(turned_away);
      return false;
    }
  }
  return true;
}

// False: there is no descriptor to watch it by.
bool GrpcListener::Admit(int fd, uint64_t* turned_away) {
  const int watched = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  std::string peer = PlaceOf(fd);
  if (watched < 0 || peer.empty()) {
    close(fd);
    if (watched >= 0) close(watched);
    return watched >= 0;
  }
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  {
    const std::lock_guard lock(mutex_);
    if (unproved_.size() >= kMaxUnproved) EndOldest(turned_away);
    unproved_.push_back({.fd = watched, .peer = std::move(peer), .since = MonotonicNow()});
  }
  take_(fd);
  return true;
}

// REQUIRES: mutex_ is held. False: there is none.
bool GrpcListener::EndOldest(uint64_t* turned_away) {
  if (unproved_.empty()) return false;
  shutdown(unproved_.front().fd, SHUT_RDWR);
  close(unproved_.front().fd);
  unproved_.pop_front();
  ++*turned_away;
  return true;
}

}  // namespace covey
