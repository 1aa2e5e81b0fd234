// Where messages go: each gets the term of its replica, and what the replica has and knows to be
// committed, as of when it is written, not sent.
#ifndef COVEY_CORE_REPLICATED_OUTBOX_H_
#define COVEY_CORE_REPLICATED_OUTBOX_H_

#include <algorithm>
#include <utility>
#include <vector>

#include "core/replicated/replica_message.h"
#include "core/replicated/replicated_log.h"

namespace covey {

struct QueuedMessage {
  int32_t to = -1;
  ReplicaMessage message;
};

// The messages to be sent, as bytes: `bytes`, then `body`.
struct EncodedMessage {
  int32_t to = -1;
  Bytes bytes;
  bool is_leave = false;  // nothing follows, and it need not wait for unsent messages
  Slice body = {};

  Bytes Whole() const {
    Bytes whole;
    const std::span<const std::byte> parts[] = {bytes, body};
    Append(&whole, parts);
    return whole;
  }
};

// The last version that is committed, as any replica has told it.
struct KnownCommitted {
  uint64_t version = 0;
  Origin made;
  // Versions after that one which were made in earlier terms are lost with the dead.
  uint64_t lost_after = 0, lost_before = 0;

  bool IsLost(uint64_t told, const Origin& of) const {
    return told > lost_after && of.term < lost_before;
  }
};

class Outbox {
 public:
  // All outlive the outbox.
  Outbox(const uint64_t* term, const KnownCommitted* known, const ReplicatedLog* log)
      : term_(term), known_(known), log_(log) {}

  void Send(int32_t to, ReplicaMessage message) {
    message.term = *term_;
    message.executed = log_->executed();
    message.known_committed = known_committed();
    message.known_made = log_->executed() < known_->version ? known_->made : log_->made();
    messages_.push_back({to, std::move(message)});
  }
  bool empty() const { return messages_.empty(); }
  uint64_t known_committed() const { return std::max(known_->version, log_->executed()); }
  const KnownCommitted& known() const { return *known_; }
  std::vector<QueuedMessage> Take() { return std::exchange(messages_, {}); }

 private:
  const uint64_t* term_;
  const KnownCommitted* known_;
  const ReplicatedLog* log_;
  std::vector<QueuedMessage> messages_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_OUTBOX_H_
