#include "ops/control/grpc_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace covey {
namespace {

struct Parts {
  std::string host;
  std::string port;
};

Parts PartsOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {};
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {host, address.substr(colon + 1)};
}

}  // namespace

Status CheckAddress(const std::string& address) {
  const Parts parts = PartsOf(address);
  const char* end = parts.port.data() + parts.port.size();
  int port = -1;
  const auto read = std::from_chars(parts.port.data(), end, port);
  if (!parts.host.empty() && read.ec == std::errc() && read.ptr == end && port >= 0 &&
      port <= 65535)
    return Status::Ok();
  return Status::InvalidArgument("\"" + address +
                                 "\" is not an address of the form HOST:PORT, such as node1:29500");
}

Status CheckBindable(const std::string& address) {
  const Parts parts = PartsOf(address);
  const addrinfo hints{.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found);
  if (error != 0)
    return Status::InvalidArgument("cannot serve at " + address + ": " + gai_strerror(error));
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const bool bound =
      fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int cause = errno;
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  if (bound) return Status::Ok();
  return Status::InvalidArgument("cannot serve at " + address + ": " + ErrnoText(cause));
}

}  // namespace covey
