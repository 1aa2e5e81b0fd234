// What ranks say to each other outside the exchanges themselves. One struct, one encoding.
//
// Sans-IO: the negotiator and the coordinator produce and consume Envelopes; the runtime carries
// them. In a steady training step none is sent (rule N13 counts those of the agreeing kinds).
#ifndef COVEY_CORE_AGREE_MESSAGE_H_
#define COVEY_CORE_AGREE_MESSAGE_H_

#include <string>
#include <vector>

#include "core/agree/signature.h"
#include "core/base/status.h"
#include "core/base/types.h"
#include "core/base/wire.h"

namespace covey {

enum class MessageType : uint8_t {
  kAnnounce,  // member -> coordinator: this occurrence is here, with this signature and this
              // landing block
  kAgreed,    // coordinator -> members: it is entry `entry`; everybody's landing blocks
  kError,     // coordinator -> members: this occurrence fails everywhere, for `text`
  kMissing,   // coordinator or waiter -> members: `ranks` have not submitted this occurrence
  kWhere,     // asker -> rank: where are you?   answered by
  kHere,      // rank -> asker: last operation and source line, in `text`
};
const char* NameOf(MessageType type);  // "ANNOUNCE"

// Which occurrence of which stream (rule N1). The epoch is the transport's.
struct OperationId {
  uint64_t group = 0;
  std::string stream;
  uint32_t occurrence = 0;

  bool operator==(const OperationId&) const = default;
  auto operator<=>(const OperationId&) const = default;
};

struct Message {
  MessageType type = MessageType::kAnnounce;
  OperationId id;
  std::vector<int32_t> ranks;  // announce: the group's members; missing: who is
  Signature signature;         // announce
  uint32_t entry = 0;          // agreed
  uint64_t slot_bytes = 0;  // announce, agreed: bytes of one landing slot, 0 = keep the old blocks
  std::vector<uint64_t> blocks;  // announce: [1] own block; agreed: [n] everybody's, in group order
  StatusCode code = StatusCode::kOk;  // error
  int32_t peer = -1;                  // error
  std::string text;                   // error, here; announce: the knobs that must agree
};

struct Envelope {
  Rank to = kNoRank;
  Message message;
};

Bytes EncodeMessage(const Message& message);
bool DecodeMessage(std::span<const std::byte> bytes,
                   Message* message);  // false: malformed, drop and count

}  // namespace covey
#endif  // COVEY_CORE_AGREE_MESSAGE_H_
