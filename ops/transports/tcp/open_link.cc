// The export of the plug-in tcp: TcpLink as the functions of core/transport/covey_link.h.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/transport/covey_link.h"
#include "ops/transports/tcp/tcp_link.h"

namespace covey::tcp {
namespace {

TcpLink* Of(void* self) { return static_cast<TcpLink*>(self); }

int Send(void* self, int32_t to, const void* message, size_t length) {
  return Of(self)->Send(to, {static_cast<const std::byte*>(message), length}) ? 1 : 0;
}

int Put(void* self, int32_t to, uint64_t offset, const void* data, size_t length) {
  return Of(self)->Put(to, offset, {static_cast<const std::byte*>(data), length}) ? 1 : 0;
}

int Receive(void* self, int32_t* from, const void** message, size_t* length) {
  std::span<const std::byte> arrived;
  if (!Of(self)->Receive(from, &arrived)) return 0;
  *message = arrived.data();
  *length = arrived.size();
  return 1;
}

void Land(void* self, int32_t from, void* memory, size_t length) {
  Of(self)->Land(from, {static_cast<std::byte*>(memory), length});
}

int Flushed(void* self) { return Of(self)->Flushed() ? 1 : 0; }
void Drop(void* self, int32_t peer) { Of(self)->Drop(peer); }
int Lost(void* self, int32_t* peer, const char** how) { return Of(self)->Lost(peer, how) ? 1 : 0; }
void Close(void* self) { delete Of(self); }

// It was made by the launcher, which other processes inherit it from, too. The link gets one of its
// own: the process may open another when it has closed this one.
Status Listens(int listener, int* own) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  const std::string name = "COVEY_LISTEN_FD=" + std::to_string(listener);
  if (getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0)
    return Status::InvalidArgument(name + " is no socket: " + ErrnoText(errno));
  if (listens == 0) return Status::InvalidArgument(name + " does not listen");
  if (fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK) != 0 ||
      fcntl(listener, F_SETFD, FD_CLOEXEC) != 0 || (*own = fcntl(listener, F_DUPFD_CLOEXEC, 0)) < 0)
    return Status::InvalidArgument(name + ": " + ErrnoText(errno));
  return Status::Ok();
}

Status Open(const covey_link_options& options, std::unique_ptr<TcpLink>* link) {
  if (options.book == nullptr)
    return Status::InvalidArgument("the launcher has given no book of ranks (COVEY_BOOK_FD)");
  PeerBook book;
  RETURN_IF_ERROR(PeerBook::Parse(options.book, &book));
  const auto size = static_cast<int32_t>(book.peers.size());
  if (options.size != size || options.rank < 0 || options.rank >= size)
    return Status::InvalidArgument("this is rank " + std::to_string(options.rank) + " of " +
                                   std::to_string(options.size) + ", the book of ranks is of " +
                                   std::to_string(size));
  int listener = -1;
  RETURN_IF_ERROR(Listens(options.listener, &listener));
  const TcpLink::Options of_link{Rank{options.rank}, listener, options.lease_ns, options.streams};
  return TcpLink::Open(of_link, book, link);
}

int Fail(const std::string& why, char* error, size_t capacity) {
  if (capacity == 0) return 1;
  const size_t length = std::min(why.size(), capacity - 1);
  std::memcpy(error, why.data(), length);
  error[length] = '\0';
  return 1;
}

}  // namespace
}  // namespace covey::tcp

extern "C" {

[[gnu::visibility("default")]] int covey_open_link(uint32_t abi, const covey_link_options* options,
                                                   covey_link* link, char* error, size_t capacity) {
  namespace tcp = covey::tcp;
  if (abi != COVEY_LINK_ABI)
    return tcp::Fail("it was built for another version of Covey", error, capacity);
  std::unique_ptr<tcp::TcpLink> opened;
  if (const covey::Status status = tcp::Open(*options, &opened); !status.ok())
    return tcp::Fail(status.message(), error, capacity);
  *link = {};
  link->rank = options->rank;
  link->size = opened->size();
  link->hosts = opened->hosts();
  link->any_thread = 1;
  link->descriptor = opened->descriptor();
  link->send = tcp::Send;
  link->receive = tcp::Receive;
  link->flushed = tcp::Flushed;
  link->close = tcp::Close;
  link->land = tcp::Land;
  link->put = tcp::Put;
  link->drop = tcp::Drop;
  link->lost = tcp::Lost;
  link->self = opened.release();
  return 0;
}

}  // extern "C"
