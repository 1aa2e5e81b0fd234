// A stream: all occurrences of one name in one group, executed one after the other (rules N1, N3).
//
// Plain state, changed only by the Negotiator (queue, entries, state) and the Executor (the
// channel's counters). Because a stream runs one exchange at a time, an announcement of occurrence
// k tells its reader that k-1 is over on the sender: landing blocks can be replaced and entries
// dropped at AGREED without asking anybody.
#ifndef COVEY_CORE_AGREE_STREAM_H_
#define COVEY_CORE_AGREE_STREAM_H_

#include <string>
#include <vector>

#include "core/agree/signature.h"
#include "core/base/channel.h"
#include "core/base/status.h"
#include "core/base/tensor.h"

namespace covey {

// An agreed operation: the signature and the number all members know it by.
struct Entry {
  uint32_t id = 0;
  Signature signature;
};

enum class StreamState : uint8_t { kIdle, kAnnounced, kRunning, kBroken };

struct Stream {
  const Group* group = nullptr;
  std::string name;  // empty: the unnamed requests of the group
  StreamState state = StreamState::kIdle;
  uint32_t occurrence = 0;        // of the front
  std::vector<Request*> waiting;  // submitted and not ended; the front is waiting[head]
  size_t head = 0;
  Channel channel;
  std::vector<Entry> entries;
  size_t last_entry = 0;             // index of the entry used last
  uint64_t proposed_block = 0;       // in our own region, while kAnnounced with a new block
  uint64_t proposed_slot_bytes = 0;  // 0 = none proposed
  Status broken;                     // why nothing can run any more (kBroken)

  Request* Front() const { return head < waiting.size() ? waiting[head] : nullptr; }
};

}  // namespace covey
#endif  // COVEY_CORE_AGREE_STREAM_H_
