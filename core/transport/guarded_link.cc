#include "core/transport/guarded_link.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/base/clock.h"
#include "core/base/wire.h"

namespace covey {
namespace {

bool Watch(int all, int one) {
  epoll_event event{};
  event.events = EPOLLIN;
  return epoll_ctl(all, EPOLL_CTL_ADD, one, &event) == 0;
}

}  // namespace

GuardedLink::GuardedLink(std::unique_ptr<Link> guard, std::unique_ptr<AddressedLink> fast)
    : guard_(std::move(guard)),
      fast_(std::move(fast)),
      descriptor_(epoll_create1(EPOLL_CLOEXEC)),
      peers_(static_cast<size_t>(guard_->size())) {}

GuardedLink::~GuardedLink() {
  if (descriptor_ >= 0) close(descriptor_);
}

Status GuardedLink::Open(std::unique_ptr<Link> guard, std::unique_ptr<AddressedLink> fast,
                         std::unique_ptr<GuardedLink>* link) {
  std::unique_ptr<GuardedLink> it(new GuardedLink(std::move(guard), std::move(fast)));
  // transport-G2: an offer, and the end of a peer, come by the guard.
  if (!Watch(it->descriptor_, it->guard_->Descriptor()) ||
      !Watch(it->descriptor_, it->fast_->Descriptor()))
    return Status::Exhausted("no descriptor for the network's events: " + ErrnoText(errno));
  // transport-G1: only the peer is told its token, and no other process can guess it.
  for (Peer& peer : it->peers_)
    if (getrandom(&peer.token, sizeof(peer.token), 0) != sizeof(peer.token))
      return Status::Exhausted("no random bytes: " + ErrnoText(errno));
  *link = std::move(it);
  return Status::Ok();
}

// Tells `to` where this rank is, once; again later where the guard has no room.
void GuardedLink::Offer(Rank to) {
  Peer& peer = Of(to);
  if (peer.is_offered) return;
  Writer writer;
  writer.Put(peer.token);
  Bytes offer = writer.Take();
  const std::span<const std::byte> address = fast_->Address();
  offer.insert(offer.end(), address.begin(), address.end());
  fast_->Expect(to, peer.token);
  // transport-G2: an offer that the guard has no room for is made again.
  peer.is_offered = guard_->Send(to, offer);
}

bool GuardedLink::Send(Rank to, std::span<const std::byte> message) {
  const Peer& peer = Of(to);
  // transport-G4: what goes to a lost peer is gone.
  if (peer.is_lost) return true;
  if (peer.is_connected) return fast_->Send(to, message);
  Offer(to);
  return false;
}

bool GuardedLink::Put(Rank to, uint64_t offset, std::span<const std::byte> data) {
  const Peer& peer = Of(to);
  if (peer.is_lost) return true;
  if (peer.is_connected) return fast_->Put(to, offset, data);
  Offer(to);
  return false;
}

void GuardedLink::Hear(Rank from, std::span<const std::byte> message) {
  Peer& peer = Of(from);
  Reader reader(message);
  const auto token = reader.Get<uint64_t>();
  if (peer.is_lost) return;
  // transport-G3: an offer is whole, and the peer's only one.
  if (!reader.ok() || peer.is_connected) {
    losses_.push_back({from, "sends what no rank of this version sends"});
    return Drop(from);
  }
  fast_->Connect(from, reader.rest(), token);
  peer.is_connected = true;
  // transport-G2: each offer is answered.
  owed_.push_back(from);
}

void GuardedLink::LookAtGuard() {
  const Time now = MonotonicNow();
  if (now < look_) return;
  look_ = now + kLook;
  Rank from = kNoRank;
  std::span<const std::byte> message;
  while (guard_->Receive(&from, &message)) Hear(from, message);
  for (Rank peer : owed_)
    if (!Of(peer).is_lost) Offer(peer);
  std::erase_if(owed_, [this](Rank r) { return Of(r).is_offered || Of(r).is_lost; });
}

bool GuardedLink::Receive(Rank* from, std::span<const std::byte>* message) {
  if (fast_->Receive(from, message)) return true;
  LookAtGuard();
  return false;
}

void GuardedLink::Drop(Rank peer) {
  Of(peer).is_lost = true;
  // transport-G4: a peer is dropped on both links.
  fast_->Drop(peer);
  guard_->Drop(peer);
}

std::vector<PeerLoss> GuardedLink::PollLost() {
  std::vector<PeerLoss> losses = std::exchange(losses_, {});
  for (Link* link : {guard_.get(), static_cast<Link*>(fast_.get())})
    for (PeerLoss& loss : link->PollLost()) {
      // transport-G4: the first link that tells of a loss is believed.
      if (std::exchange(Of(loss.rank).is_lost, true)) continue;
      losses.push_back(std::move(loss));
    }
  return losses;
}

}  // namespace covey
