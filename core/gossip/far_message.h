// The messages of ranks on several hosts whose models are averaged in pairs, as data and as bytes.
//
//   message    from, to          says
//   kState     rank, all         where I am: my epoch, and whether I train in it
//   kOffer     rank, partner     average with me
//   kAccepted  partner, rank     send me your model
//   kInput     rank, partner     my model of now
//   kTaken     partner, rank     the difference that I have added to my model: take it from yours
//   kDeclined  partner, rank     I have added nothing
//   kAsk       rank, member      show me your model
//   kModel     member, rank      my model of now, or none
//
// `number` is that of the offer among those of its rank to this partner: 1, 2, 3, ...
#ifndef COVEY_CORE_GOSSIP_FAR_MESSAGE_H_
#define COVEY_CORE_GOSSIP_FAR_MESSAGE_H_

#include <cstdint>
#include <span>

#include "core/base/wire.h"

namespace covey {

// The state of a member, as the others know it.
enum class FarState : uint8_t {
  kUnknown = 0,  // it has not begun, as far as is known
  kTrains = 1,
  kFinished = 2,  // it takes no offers
  kLeft = 3,      // it never will again, and is waited for no more
};

struct FarMessage {
  enum class Kind : uint8_t {
    kState = 1,
    kOffer,
    kAccepted,
    kInput,
    kTaken,
    kDeclined,
    kAsk,
    kModel
  };

  Kind kind = Kind::kState;
  FarState state = FarState::kUnknown;  // kState
  uint64_t epoch = 0;                   // kState, kOffer, kInput, kModel
  uint64_t number = 0;                  // kOffer and all that follows; kModel: steps done
  // kInput: the model; kTaken: the difference; as far_codec.h says. kModel: the model, as a buffer
  // has it; empty: there is none.
  std::span<const std::byte> body;

  // A body after it is aligned as its elements are.
  static constexpr size_t kHeadBytes = 3 * sizeof(uint64_t);

  // Without the body, which follows.
  Bytes Head() const;
  // False: it is none. The body lies in `bytes`.
  static bool Decode(std::span<const std::byte> bytes, FarMessage* message);
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_FAR_MESSAGE_H_
