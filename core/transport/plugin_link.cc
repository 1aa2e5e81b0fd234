#include "core/transport/plugin_link.h"

namespace covey {

Status PluginLink::Open(std::string_view name, covey_open_link_function* open,
                        const covey_link_options& options, std::unique_ptr<PluginLink>* link) {
  covey_link opened = {};
  char error[512] = "it does not say why";
  if (open(COVEY_LINK_ABI, &options, &opened, error, sizeof(error)) != 0)
    return Status::Unsupported("transport " + std::string(name) + ": " + error);
  link->reset(new PluginLink(opened));
  return Status::Ok();
}

bool PluginLink::Send(Rank to, std::span<const std::byte> message) {
  const int taken = link_.send(link_.self, ToInt(to), message.data(), message.size());
  broken_ |= taken < 0;
  return taken != 0;  // to a network that is broken everything may go
}

bool PluginLink::Receive(Rank* from, std::span<const std::byte>* message) {
  int32_t rank = -1;
  const void* data = nullptr;
  size_t length = 0;
  const int arrived = link_.receive(link_.self, &rank, &data, &length);
  broken_ |= arrived < 0;
  if (arrived <= 0) return false;
  *from = Rank{rank};
  *message = {static_cast<const std::byte*>(data), length};
  return true;
}

void PluginLink::Land(Rank from, std::span<std::byte> memory) {
  link_.land(link_.self, ToInt(from), memory.data(), memory.size());
}

bool PluginLink::Put(Rank to, uint64_t offset, std::span<const std::byte> data) {
  const int taken = link_.put(link_.self, ToInt(to), offset, data.data(), data.size());
  broken_ |= taken < 0;
  return taken != 0;
}

void PluginLink::Drop(Rank peer) {
  if (link_.drop != nullptr) link_.drop(link_.self, ToInt(peer));
}

std::vector<PeerLoss> PluginLink::PollLost() {
  std::vector<PeerLoss> losses;
  int32_t peer = -1;
  const char* how = nullptr;
  while (link_.lost != nullptr && link_.lost(link_.self, &peer, &how) != 0)
    losses.push_back({Rank{peer}, how});
  if (!broken_ || told_) return losses;
  told_ = true;
  for (int32_t r = 0; r < size(); ++r)
    if (Rank{r} != rank()) losses.push_back({Rank{r}, "is out of reach (the network failed)"});
  return losses;
}

}  // namespace covey
