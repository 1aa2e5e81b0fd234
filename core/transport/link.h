// The interface of a network: whole messages between two ranks, in order.
// core/transport/mirrored.h makes a Transport of it.
//
// Called with the progress lock held. Contract: per ordered pair every message arrives once, whole,
// in order, or the peer is reported as lost and nothing follows; between pairs any order.
#ifndef COVEY_CORE_TRANSPORT_LINK_H_
#define COVEY_CORE_TRANSPORT_LINK_H_

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
  // Among the ranks of this host; -1 = unknown.
  virtual int local_rank() const { return -1; }
  virtual int local_size() const { return -1; }
  // False: no room now; the same message again after some Receive calls. `message` is copied.
  virtual bool Send(Rank to, std::span<const std::byte> message) = 0;
  // The next message that has arrived, of any peer; valid until the next call. False: none.
  virtual bool Receive(Rank* from, std::span<const std::byte>* message) = 0;
  // All that was accepted by Send has left this process.
  virtual bool Flushed() = 0;
  // Each lost peer once.
  virtual std::vector<PeerLoss> PollLost() = 0;
  // False: only the thread that opened it may call, so nothing moves while that thread computes.
  virtual bool AnyThread() const { return true; }
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_LINK_H_
