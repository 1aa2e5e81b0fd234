// A stream: all occurrences of one name in one group, executed one after the other (agree-N1,
// agree-N3).
//
// Plain state, changed only by the Negotiator (queue, entries, state) and the Executor (the
// channel's counters). Because a stream runs one exchange at a time, an announcement of occurrence
// k tells its reader that k-1 is over on the sender: landing blocks can be replaced and entries
// dropped at AGREED without a question to other ranks.
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

// kHeld: the front waits for a plan to change or for the rest of its bundle; kMoving: it is part of
// an exchange of its bundle.
enum class StreamState : uint8_t { kIdle, kAnnounced, kRunning, kHeld, kMoving, kBroken };

struct Bundle;
inline constexpr uint64_t kNoOccurrence = ~uint64_t{0};

struct Stream {
  const Group* group = nullptr;
  std::string name;  // empty: the unnamed requests of the group
  StreamState state = StreamState::kIdle;
  uint64_t occurrence = 0;        // of the front
  std::vector<Request*> waiting;  // submitted and not ended; the front is waiting[head]
  size_t head = 0;
  Channel channel;
  std::vector<Entry> entries;
  size_t last_entry = 0;             // index of the entry used last
  uint64_t proposed_block = 0;       // in our own region, while kAnnounced with a new block
  uint64_t proposed_slot_bytes = 0;  // 0 = none proposed
  Status broken;                     // why nothing can run any more (kBroken)

  // Which members had not submitted an occurrence when its coordinator said so; told once.
  struct Missing {
    uint64_t occurrence = kNoOccurrence;
    std::vector<int32_t> ranks;
  };
  Missing missing;

  Time last_submitted = 0;   // when the latest request came
  uint64_t last_used = 0;    // number of that submission on this rank
  uint64_t patience = 0;     // submissions without it until it may be retired (retire.h); 0: never
  NameMemo* memo = nullptr;  // of its name, which points here; null: none
  bool is_gone = false;      // dropped

  Bundle* bundle = nullptr;              // it is a member of; null = none
  uint64_t base = 0;                     // the first occurrence that travels in `bundle`
  uint32_t planned_entry = 0;            // the entry `bundle` was planned with
  uint64_t frozen_from = kNoOccurrence;  // nothing from here on may begin (agree-N8)
  Bundle* carries = nullptr;             // the bundle whose exchanges this stream is; null = none

  Request* Front() const { return head < waiting.size() ? waiting[head] : nullptr; }
};

struct EndedRequest {
  Request* request = nullptr;
  Status status;
};

// The front of a stream: which operation it is, and how a status line names it: "allreduce 'x'", or
// "allreduce number 3 of the unnamed operations".
inline OperationId IdOf(const Stream& stream) {
  return {stream.group->key, stream.name, stream.occurrence};
}
std::string Describe(const Stream& stream);

}  // namespace covey
#endif  // COVEY_CORE_AGREE_STREAM_H_
