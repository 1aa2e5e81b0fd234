#include "core/transport/open_transport.h"

#include "core/transport/mirrored.h"
#include "core/transport/plugin.h"
#include "core/transport/plugin_link.h"

namespace covey {

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
  std::unique_ptr<PluginLink> link;
  RETURN_IF_ERROR(PluginLink::Open(name, plugin.open_link(), &link));
  return Mirrored::Open(
      {.arena_bytes = options.arena_bytes, .start_timeout = options.start_timeout}, std::move(link),
      transport);
}

}  // namespace covey
