// The interface of a network: messages and puts between two ranks, in order.
// core/transport/mirrored.h makes a Transport of it.
//
// A message is copied on both sides. A put is not: it is read where it lies, while the network has
// room for it, and written where the receiver wants it.
//
// Called with the progress lock held. Contract:
//  link-L1. Per ordered pair every message and every put arrives once and whole, messages in order,
//      or the peer is reported as lost and nothing follows; between pairs any order.
//  link-L2. A message is received after the puts of its sender that went before it have been
//      written. Later ones may have been, too.
#ifndef COVEY_CORE_TRANSPORT_LINK_H_
#define COVEY_CORE_TRANSPORT_LINK_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "core/base/wire.h"
#include "core/transport/transport.h"

namespace covey {

class Link {
 public:
  virtual ~Link() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // The lowest rank of the host of `r`; kNoRank: unknown.
  virtual Rank HostOf(Rank /*r*/) const { return kNoRank; }
  // False: no room now; the same message again after some Receive calls. `message` is copied.
  virtual bool Send(Rank to, std::span<const std::byte> message) = 0;
  // Whether the network has puts. False: Land, Put and Drop are not called.
  virtual bool Puts() const { return false; }
  // Puts of `from` are written into `memory`, which outlives the link. Once for each peer, before
  // the first Receive.
  virtual void Land(Rank /*from*/, std::span<std::byte> /*memory*/) {}
  // `data` goes to `offset` of the memory in which `to` lands puts of this rank. It may be read
  // until `to` has answered what it was sent afterwards, or is dropped. False: as of Send.
  virtual bool Put(Rank /*to*/, uint64_t /*offset*/, std::span<const std::byte> /*data*/) {
    return false;
  }
  // A message up to this length leaves at once, a longer one when its receiver asks for it.
  // 0: there is no such limit.
  virtual size_t EagerBytes() const { return 0; }
  // Forgets what is under way to and from a lost peer: its memory is not touched any more.
  virtual void Drop(Rank /*peer*/) {}
  // The next message that has arrived, of any peer; valid until the next call. False: none.
  virtual bool Receive(Rank* from, std::span<const std::byte>* message) = 0;
  // All that was accepted by Send and Put has left this process.
  virtual bool Flushed() = 0;
  // Is readable when Receive may find something or Send may have room again, for poll(2);
  // -1: there is none, the user has to look.
  virtual int Descriptor() const { return -1; }
  // Each lost peer once.
  virtual std::vector<PeerLoss> PollLost() = 0;
  // False: only the thread that opened it may call, so nothing moves while that thread computes.
  virtual bool AnyThread() const { return true; }
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_LINK_H_
