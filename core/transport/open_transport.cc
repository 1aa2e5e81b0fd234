#include "core/transport/open_transport.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "core/base/check.h"
#include "core/transport/composite.h"
#include "core/transport/host_memory.h"
#include "core/transport/mirrored.h"
#include "core/transport/plugin.h"
#include "core/transport/plugin_link.h"

namespace covey {
namespace {

// Descriptors go to all ranks of a host, so each reads from the beginning.
Status ReadBook(int fd, std::string* book) {
  std::array<char, 4096> part;
  ssize_t length = 0;
  while (fd >= 0 &&
         (length = pread(fd, part.data(), part.size(), static_cast<off_t>(book->size()))) > 0)
    book->append(part.data(), static_cast<size_t>(length));
  if (length == 0) return Status::Ok();
  return Status::InvalidArgument("cannot read COVEY_BOOK_FD=" + std::to_string(fd) + ": " +
                                 ErrnoText(errno) +
                                 "; a program between the launcher and this one has closed it");
}

}  // namespace

Status OpenOverLink(const TransportOptions& options, const FarPeers::Options& of_peers,
                    std::unique_ptr<Link> link, std::unique_ptr<Transport>* transport) {
  auto far = std::make_unique<FarPeers>(std::move(link), of_peers);
  std::vector<Rank> hosted = far->Hosted();
  std::unique_ptr<Transport> near;
  if (hosted.size() > 1) RETURN_IF_ERROR(JoinHostMemory(options, hosted, far.get(), &near));
  if (near == nullptr)
    return Mirrored::Open(
        {.arena_bytes = of_peers.arena_bytes, .start_timeout = options.start_timeout},
        std::move(far), transport);
  if (near->size() == far->link().size()) {
    *transport = std::move(near);
    return Status::Ok();
  }
  return Composite::Open(options.start_timeout, std::move(near), std::move(hosted), std::move(far),
                         transport);
}

Status OpenTransport(std::string_view name, std::string_view plugin_path,
                     const TransportOptions& options, std::unique_ptr<Transport>* transport) {
  const TransportKind* kind = FindTransport(name);
  if (kind != nullptr) return kind->open(options, transport);
  Plugin plugin;
  if (const Status opened = Plugin::Open(name, plugin_path, &plugin); !opened.ok())
    return Status::Unsupported("transport " + std::string(name) + ": " + opened.message());
  if (plugin.open_link() == nullptr) {
    RETURN_IF_ERROR(LoadTransport(name, plugin_path, &kind));
    return kind->open(options, transport);
  }
  std::string book;
  RETURN_IF_ERROR(ReadBook(options.book_fd, &book));
  std::unique_ptr<PluginLink> link;
  RETURN_IF_ERROR(PluginLink::Open(name, plugin.open_link(),
                                   {.rank = options.book_fd < 0 ? -1 : ToInt(options.rank),
                                    .size = options.size,
                                    .book = options.book_fd < 0 ? nullptr : book.c_str(),
                                    .listener = options.listen_fd,
                                    .lease_ns = options.lease},
                                   &link));
  return OpenOverLink(options, {.arena_bytes = options.arena_bytes}, std::move(link), transport);
}

}  // namespace covey
