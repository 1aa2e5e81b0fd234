// A packet between two ranks: an active message of UCX, whose header this is.
#ifndef COVEY_OPS_TRANSPORTS_UCX_PACKET_H_
#define COVEY_OPS_TRANSPORTS_UCX_PACKET_H_

#include <cstdint>

namespace covey::ucx {

enum class Kind : int32_t {
  kMessage = 1,
  kPut,     // goes to `offset` of the receiver's memory for puts of the sender
  kFence,   // asks for an answer once everything before it is there
  kAnswer,  // all up to `number` is there; not numbered itself
};

struct Packet {
  static constexpr unsigned kId = 7;  // of the active message

  uint64_t token;   // that the receiver has given to the sender
  uint64_t number;  // 1, 2, 3, ... of a sender to a receiver: UCX keeps no order
  uint64_t offset;
  int32_t from;
  Kind kind;
};

}  // namespace covey::ucx
#endif  // COVEY_OPS_TRANSPORTS_UCX_PACKET_H_
