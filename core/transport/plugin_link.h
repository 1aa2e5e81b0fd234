// A Link over the functions of a plug-in written in C (core/transport/covey_link.h).
#ifndef COVEY_CORE_TRANSPORT_PLUGIN_LINK_H_
#define COVEY_CORE_TRANSPORT_PLUGIN_LINK_H_

#include <memory>
#include <string_view>
#include <vector>

#include "core/transport/addressed_link.h"
#include "core/transport/covey_link.h"

namespace covey {

class PluginLink final : public AddressedLink {
 public:
  static Status Open(std::string_view name, covey_open_link_function* open,
                     const covey_link_options& options, std::unique_ptr<PluginLink>* link);
  ~PluginLink() override { link_.close(link_.self); }

  Rank rank() const override { return Rank{link_.rank}; }
  int size() const override { return link_.size; }
  Rank HostOf(Rank r) const override {
    return link_.hosts == nullptr ? kNoRank : Rank{link_.hosts[ToInt(r)]};
  }
  bool Send(Rank to, std::span<const std::byte> message) override;
  bool Receive(Rank* from, std::span<const std::byte>* message) override;
  bool Puts() const override { return link_.put != nullptr; }
  void Land(Rank from, std::span<std::byte> memory) override;
  bool Put(Rank to, uint64_t offset, std::span<const std::byte> data) override;
  size_t EagerBytes() const override { return link_.eager_bytes; }
  void Drop(Rank peer) override;
  bool Flushed() override { return link_.flushed(link_.self) != 0; }
  int Descriptor() const override { return link_.descriptor; }
  std::vector<PeerLoss> PollLost() override;
  bool AnyThread() const override { return link_.any_thread != 0; }

  // Whether the functions of AddressedLink may be called.
  bool HasAddress() const { return link_.connect != nullptr; }
  std::span<const std::byte> Address() const override {
    return {static_cast<const std::byte*>(link_.address), link_.address_length};
  }
  void Expect(Rank peer, uint64_t token) override { link_.expect(link_.self, ToInt(peer), token); }
  void Connect(Rank peer, std::span<const std::byte> address, uint64_t token) override {
    link_.connect(link_.self, ToInt(peer), address.data(), address.size(), token);
  }

 private:
  explicit PluginLink(const covey_link& link) : link_(link) {}

  covey_link link_;
  bool broken_ = false;  // a call failed: every peer is out of reach
  bool told_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_PLUGIN_LINK_H_
