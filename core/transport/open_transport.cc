#include "core/transport/open_transport.h"

#include <string>

#include "core/transport/open_hosts.h"
#include "core/transport/over_link.h"
#include "core/transport/plugin.h"
#include "core/transport/plugin_link.h"

namespace covey {
Status OpenTransport(std::string_view name, std::string_view plugin_path,
                     const TransportOptions& options, std::unique_ptr<Transport>* transport) {
  if (options.book_fd >= 0 && IsOfHosts(name))
    return OpenHosts(name, plugin_path, options, transport);
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
  if (options.book_fd >= 0) RETURN_IF_ERROR(ReadBook(options, &book));
  std::unique_ptr<PluginLink> link;
  RETURN_IF_ERROR(PluginLink::Open(name, plugin.open_link(),
                                   {.rank = options.book_fd < 0 ? -1 : ToInt(options.rank),
                                    .size = options.size,
                                    .book = options.book_fd < 0 ? nullptr : book.c_str(),
                                    .listener = options.listen_fd,
                                    .lease_ns = options.lease},
                                   &link));
  return OpenOverLink(options, {.arena_bytes = options.arena_bytes}, std::move(link), {},
                      transport);
}

}  // namespace covey
