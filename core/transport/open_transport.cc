#include "core/transport/open_transport.h"

#include "core/transport/composite.h"
#include "core/transport/host_memory.h"
#include "core/transport/mirrored.h"
#include "core/transport/plugin.h"
#include "core/transport/plugin_link.h"

namespace covey {
namespace {

// The ranks of a host share its memory where they can, and are one job of it when there is no other
// host.
Status OverLink(const TransportOptions& options, std::unique_ptr<Link> link,
                std::unique_ptr<Transport>* transport) {
  auto far = std::make_unique<FarPeers>(std::move(link),
                                        FarPeers::Options{.arena_bytes = options.arena_bytes});
  std::vector<Rank> hosted = far->Hosted();
  std::unique_ptr<Transport> near;
  if (hosted.size() > 1 && options.shares_host)
    RETURN_IF_ERROR(JoinHostMemory(options, hosted, far.get(), &near));
  if (near == nullptr)
    return Mirrored::Open(
        {.arena_bytes = options.arena_bytes, .start_timeout = options.start_timeout},
        std::move(far), transport);
  if (near->size() == far->link().size()) {
    *transport = std::move(near);
    return Status::Ok();
  }
  return Composite::Open(options.start_timeout, std::move(near), std::move(hosted), std::move(far),
                         transport);
}

}  // namespace

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
  return OverLink(options, std::move(link), transport);
}

}  // namespace covey
