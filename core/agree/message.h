// The messages of ranks outside the exchanges themselves. One struct, one encoding.
//
// Sans-IO: the negotiator and the coordinator produce and consume Envelopes; the runtime carries
// them. In a steady training step none is sent (agree-N13 counts those that agree on something, see
// Agrees).
#ifndef COVEY_CORE_AGREE_MESSAGE_H_
#define COVEY_CORE_AGREE_MESSAGE_H_

#include <string>
#include <vector>

#include "core/agree/signature.h"
#include "core/base/channel.h"
#include "core/base/status.h"
#include "core/base/types.h"
#include "core/base/wire.h"

namespace covey {

enum class MessageType : uint8_t {
  kAnnounce,   // member -> coordinator: this occurrence is here, with this signature and this
               // landing block
  kAgreed,     // coordinator -> members: it is entry `entry`; all landing blocks
  kError,      // coordinator -> members: this occurrence fails everywhere, for `text`
  kFreeze,     // coordinator -> members: bundle `entry` of `members` is planned; begin nothing new
               // of these streams
  kFrozen,     // member -> coordinator: per member stream its next unbegun occurrence; own block
  kSwitch,     // coordinator -> members: from these occurrences on the streams travel as bundle
               // `entry`; all blocks, none = the plan is dropped
  kBreak,      // member -> members: occurrence `id.occurrence` of bundle `entry` is void
  kJoin,       // member -> coordinator: this rank has no more data
  kJoined,     // coordinator -> members: `ranks` have joined so far
  kAllJoined,  // coordinator -> members: all have; `peer` was the last
  kShadow,     // a member that goes on -> one that joined: take part in this, by a proxy request
  kRetire,     // coordinator -> members: are these streams and bundles idle? (retire.h)
  kIdle,       // member -> coordinator: the next occurrence of each
  kDrop,       // coordinator -> members: forget those
  kDropped,    // member -> coordinator: it has
  kMissing,    // coordinator or waiter -> members: `ranks` have not submitted this occurrence
  kWho,        // member -> coordinator: which ranks have not submitted it?    answered by MISSING
  kWhere,      // asker -> rank: where are you?   answered by
  kHere,       // rank -> asker: last operation and source line, in `text`
};
const char* NameOf(MessageType type);  // "ANNOUNCE"

// A stream in a bundle's plan; or, in a retirement, a stream, `entry` its bundle, or that bundle.
struct PlanMember {
  std::string stream;
  uint32_t entry = 0;
  // freeze: that was announced; frozen: the next unbegun one; switch: the first that is bundled.
  uint64_t occurrence = 0;

  bool operator==(const PlanMember&) const = default;
};

struct Message {
  MessageType type = MessageType::kAnnounce;
  OperationId id;
  std::vector<int32_t> ranks;  // announce, retire, idle, drop: the group's members; missing: those
  Signature signature;         // announce, shadow
  // agreed; of a bundle: freeze, frozen, switch, break; retire, idle, drop, dropped: its number;
  // shadow: how often the sender has dropped something
  uint32_t entry = 0;
  uint64_t slot_bytes = 0;  // announce, agreed: bytes of one landing slot, 0 = keep the old blocks
  // announce, frozen: slots of the own block; agreed, switch: of all, the least of them
  uint32_t depth = kMinLandingSlots;
  std::vector<uint64_t> blocks;     // announce, frozen: [1] own block; agreed, switch: [n] all,
                                    // in group order
  uint64_t waits = 0;               // announce: how often its rank had waited when it was submitted
  Time submitted_at = 0;            // announce: on its rank's clock
  Time waited = 0;                  // missing: for so long
  std::vector<PlanMember> members;  // freeze, frozen, switch; retire, idle, drop
  std::vector<uint64_t> peers;  // announce of a neighbor_allreduce: core/base/neighbor_weights.h
  StatusCode code = StatusCode::kOk;  // error; announce: this rank cannot take part
  int32_t peer = -1;                  // error; all joined
  std::string text;  // error, here; announce: the knobs that must agree, or why it cannot take part
};

// Whether agree-N13 counts it: a steady step sends none of these.
constexpr bool Agrees(MessageType type) { return type < MessageType::kMissing; }

struct Envelope {
  Rank to = kNoRank;
  Message message;
};

Bytes EncodeMessage(const Message& message);
bool DecodeMessage(std::span<const std::byte> bytes,
                   Message* message);  // false: malformed, drop and count

}  // namespace covey
#endif  // COVEY_CORE_AGREE_MESSAGE_H_
