// A link of an engine that does not find its peers by itself, and does not know who sends to it:
// core/transport/guarded_link.h exchanges addresses and tokens for it.
//
// Besides the contract of Link: to a peer that is not connected Send and Put are false. Nothing of
// a peer is received that does not bear the token of Expect.
#ifndef COVEY_CORE_TRANSPORT_ADDRESSED_LINK_H_
#define COVEY_CORE_TRANSPORT_ADDRESSED_LINK_H_

#include "core/transport/link.h"

namespace covey {

class AddressedLink : public Link {
 public:
  // The address of this rank; lives as long as the link.
  virtual std::span<const std::byte> Address() const = 0;
  // Packets of `peer` bear `token`, always the same. Called before the peer can know the token.
  virtual void Expect(Rank peer, uint64_t token) = 0;
  // Packets to `peer` bear `token`. Called once for each peer.
  virtual void Connect(Rank peer, std::span<const std::byte> address, uint64_t token) = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_ADDRESSED_LINK_H_
