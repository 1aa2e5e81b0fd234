#include "ops/control/grpc_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace covey {
namespace {

struct HostAndPort {
  std::string host;
  std::string port;
};

HostAndPort PartsOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {};
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {host, address.substr(colon + 1)};
}

// "0.0.0.0" or "[::]" when the socket is bound to every network of this machine, else empty.
std::string EverywhereOf(const sockaddr* bound) {
  if (bound->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(bound);
    return v4->sin_addr.s_addr == INADDR_ANY ? "0.0.0.0" : "";
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(bound)->sin6_addr;
  if (IN6_IS_ADDR_UNSPECIFIED(&v6)) return "[::]";
  constexpr size_t kMappedWord = 3;  // the IPv4 address in an IPv6 one
  return IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr32[kMappedWord] == INADDR_ANY ? "0.0.0.0" : "";
}

struct Bound {
  int port = 0;            // 0: any free one
  std::string everywhere;  // as EverywhereOf
};

// A socket that listens, or -1 and errno. `is_only_v6`: others listen at IPv4's addresses.
int ListenAtOne(const addrinfo& at, bool is_only_v6, Bound* bound) {
  constexpr int kBacklog = 512;
  sockaddr_storage place{};
  std::memcpy(&place, at.ai_addr, at.ai_addrlen);
  auto* raw = reinterpret_cast<sockaddr*>(&place);
  const bool is_v6 = at.ai_family == AF_INET6;
  in_port_t* number = is_v6 ? &reinterpret_cast<sockaddr_in6*>(&place)->sin6_port
                            : &reinterpret_cast<sockaddr_in*>(&place)->sin_port;
  if (bound->port > 0) *number = htons(static_cast<in_port_t>(bound->port));
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (is_v6 && is_only_v6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
  socklen_t length = at.ai_addrlen;
  if (bind(fd, raw, length) != 0 || listen(fd, kBacklog) != 0 ||
      getsockname(fd, raw, &length) != 0) {
    const int cause = errno;
    close(fd);
    errno = cause;
    return -1;
  }
  bound->port = ntohs(*number);
  if (bound->everywhere.empty()) bound->everywhere = EverywhereOf(raw);
  return fd;
}

}  // namespace

Status CheckAddress(const std::string& address) {
  const HostAndPort parts = PartsOf(address);
  const char* end = parts.port.data() + parts.port.size();
  int port = -1;
  const auto read = std::from_chars(parts.port.data(), end, port);
  if (!parts.host.empty() && read.ec == std::errc() && read.ptr == end && port >= 0 &&
      port <= 65535)
    return Status::Ok();
  return Status::InvalidArgument("\"" + address +
                                 "\" is not an address of the form HOST:PORT, such as node1:29500");
}

Status ListenAt(const std::string& address, std::vector<int>* fds, std::string* bound) {
  const HostAndPort parts = PartsOf(address);
  const addrinfo hints{.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found);
  if (error != 0)
    return Status::InvalidArgument("cannot serve at " + address + ": " + gai_strerror(error));
  bool has_v4 = false;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next)
    has_v4 |= at->ai_family == AF_INET;
  int cause = 0;
  Bound where;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = ListenAtOne(*at, has_v4, &where);
    if (fd >= 0) fds->push_back(fd);
    if (fd < 0 && cause == 0) cause = errno;
  }
  freeaddrinfo(found);
  const std::string& everywhere = where.everywhere;
  *bound = everywhere.empty() ? address.substr(0, address.rfind(':')) : everywhere;
  *bound += ':' + std::to_string(where.port);
  // A host without IPv6 has a name for its address all the same.
  if (!fds->empty() && cause != EADDRINUSE) return Status::Ok();
  for (const int fd : *fds) close(fd);
  fds->clear();
  return Status::InvalidArgument("cannot serve at " + address + ": " + ErrnoText(cause));
}

}  // namespace covey
