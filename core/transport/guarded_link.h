// A fast link behind a guard, a link that knows its peers: over it ranks tell each other the
// addresses and tokens by which they meet on the fast one, and by it a peer's end is seen, too.
//
// A pair meets when one of them first sends: it offers its address and a token, and the other one
// answers with its own. Tokens are 64 random bits for each of a pair's two directions, told to the
// peer only. The guard's connection stays: it ends with the peer's process and with its host, which
// not every engine sees.
//
// As Link.
#ifndef COVEY_CORE_TRANSPORT_GUARDED_LINK_H_
#define COVEY_CORE_TRANSPORT_GUARDED_LINK_H_

#include <memory>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/transport/addressed_link.h"

namespace covey {

class GuardedLink final : public Link {
 public:
  // Both are of the same rank and size, and have descriptors.
  static Status Open(std::unique_ptr<Link> guard, std::unique_ptr<AddressedLink> fast,
                     std::unique_ptr<GuardedLink>* link);
  ~GuardedLink() override;

  // A message of the guard that has been received before.
  void Hear(Rank from, std::span<const std::byte> message);

  Rank rank() const override { return guard_->rank(); }
  int size() const override { return guard_->size(); }
  Rank HostOf(Rank r) const override { return guard_->HostOf(r); }
  bool Send(Rank to, std::span<const std::byte> message) override;
  bool Puts() const override { return fast_->Puts(); }
  void Land(Rank from, std::span<std::byte> memory) override { fast_->Land(from, memory); }
  bool Put(Rank to, uint64_t offset, std::span<const std::byte> data) override;
  size_t EagerBytes() const override { return fast_->EagerBytes(); }
  void Drop(Rank peer) override;
  bool Receive(Rank* from, std::span<const std::byte>* message) override;
  bool Flushed() override { return fast_->Flushed(); }
  int Descriptor() const override { return descriptor_; }
  std::vector<PeerLoss> PollLost() override;
  bool AnyThread() const override { return guard_->AnyThread() && fast_->AnyThread(); }

 private:
  struct Peer {
    uint64_t token = 0;         // that its packets bear
    bool is_offered = false;    // own address and token have gone to it
    bool is_connected = false;  // its own have come
    bool is_lost = false;
  };
  // Between two looks at the guard while the fast link is looked at all the time.
  static constexpr Time kLook = kMillisecond;

  GuardedLink(std::unique_ptr<Link> guard, std::unique_ptr<AddressedLink> fast);
  void Offer(Rank to);
  void LookAtGuard();
  Peer& Of(Rank r) { return peers_[static_cast<size_t>(ToInt(r))]; }

  std::unique_ptr<Link> guard_;
  std::unique_ptr<AddressedLink> fast_;
  int descriptor_ = -1;           // epoll: of both
  std::vector<Peer> peers_;       // by rank
  std::vector<Rank> owed_;        // peers whose offer is to be answered
  std::vector<PeerLoss> losses_;  // not yet polled
  Time look_ = 0;                 // when the guard is looked at again
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_GUARDED_LINK_H_
