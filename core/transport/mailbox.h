// Messages between the ranks of a job.
//
// Contract: transport-T1 (core/transport/transport.h). The thread that holds the progress lock; no
// call blocks.
#ifndef COVEY_CORE_TRANSPORT_MAILBOX_H_
#define COVEY_CORE_TRANSPORT_MAILBOX_H_

#include <cstddef>
#include <span>

#include "core/base/types.h"
#include "core/base/wire.h"

namespace covey {

class Mailbox {
 public:
  virtual ~Mailbox() = default;

  // False: there is no room now. Try again after progress. A mailbox has this or the next.
  virtual bool TrySend(Rank to, std::span<const std::byte> message) {
    return TrySendParts(to, Parts(&message, 1));
  }
  // The same of a message in parts: a mailbox that can takes them from where they lie.
  virtual bool TrySendParts(Rank to, Parts parts) {
    Bytes message;
    Append(&message, parts);
    return TrySend(to, message);
  }
  virtual bool TryReceive(Rank* from, Bytes* message) = 0;
  virtual bool HasMail() = 0;
  // Something accepted waits for room in the network; TryReceive sees to it.
  virtual bool HasUnsent() { return false; }
  virtual size_t MaxMessageBytes() const = 0;  // of the longest that TrySend takes
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_MAILBOX_H_
