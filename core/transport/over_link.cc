#include "core/transport/over_link.h"

#include "core/transport/composite.h"
#include "core/transport/host_memory.h"
#include "core/transport/mirrored.h"

namespace covey {

Status OpenOverLink(const TransportOptions& options, const FarPeers::Options& of_peers,
                    std::unique_ptr<Link> link, std::vector<std::pair<Rank, Bytes>> early,
                    std::unique_ptr<Transport>* transport) {
  auto far = std::make_unique<FarPeers>(std::move(link), of_peers);
  for (const auto& [from, message] : early) far->Hear(from, message);
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

}  // namespace covey
