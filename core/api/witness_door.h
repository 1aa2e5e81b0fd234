// The way of this process to its job's witness records (core/replicated/witness.h): a socket of
// packets to the launcher, which has made it.
//
// A request is: channel, number, state, 8 bytes each, record. An answer: channel, number, state,
// 8 bytes each, 1 byte: it was taken, record. Both little-endian. A request that has no room is
// dropped, as one is that a dead launcher does not answer.
//
// Holder of the progress lock; a thread of its own waits for answers.
#ifndef COVEY_CORE_API_WITNESS_DOOR_H_
#define COVEY_CORE_API_WITNESS_DOOR_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "core/replicated/channel_waiters.h"
#include "core/transport/descriptor_bell.h"

namespace covey {

class WitnessDoor {
 public:
  // `stir`: an answer may have come; by the thread. The descriptor stays the caller's.
  static Status Open(int descriptor, std::function<void()> stir,
                     std::unique_ptr<WitnessDoor>* door);

  // Channels ask and hear by it, which outlives them.
  void Serve(ChannelDriver* driver);

 private:
  explicit WitnessDoor(int descriptor) : descriptor_(descriptor) {}
  void Ask(uint64_t channel, const WitnessRequest& request);
  // The next answer in that channel. False: there is none.
  bool Hear(uint64_t channel, WitnessAnswer* answer);
  void Receive();

  const int descriptor_;
  std::map<uint64_t, std::deque<WitnessAnswer>> answers_;  // by channel
  std::unique_ptr<DescriptorBell> bell_;
};

}  // namespace covey
#endif  // COVEY_CORE_API_WITNESS_DOOR_H_
