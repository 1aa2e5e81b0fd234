// The messages of one simulated rank's replicas: what the thread that drives its runtime does.
#ifndef COVEY_TESTS_SIM_SIMULATOR_RANK_CHANNELS_H_
#define COVEY_TESTS_SIM_SIMULATOR_RANK_CHANNELS_H_

#include <utility>

#include "core/replicated/channel_mux.h"
#include "core/replicated/fragmenter.h"
#include "core/transport/transport.h"

namespace covey {

class RankChannels {
 public:
  // `transport` outlives this.
  explicit RankChannels(Transport* transport) : transport_(transport), mux_(transport) {}

  ChannelMux* mux() { return &mux_; }
  // One pass. False: a frame is refused.
  bool Pass(Time now) {
    bool is_right = true;
    Rank from = kNoRank;
    Bytes frame;
    // As many as the engine takes in a pass: to a slow rank more come meanwhile.
    for (int i = 0; i < kMailPerPass && transport_->TryReceive(&from, &frame); ++i)
      is_right &= Fragmenter::IsFrame(frame) && mux_.OnFrame(from, std::move(frame), now);
    for (const PeerLoss& loss : transport_->PollPeers()) mux_.OnLoss(loss.rank);
    bool moved = false;
    mux_.Advance(now, &moved);
    return is_right;
  }

 private:
  static constexpr int kMailPerPass = 64;

  Transport* transport_;
  ChannelMux mux_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_RANK_CHANNELS_H_
