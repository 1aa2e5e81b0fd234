// Models averaged in pairs by members on several hosts, or of one that share no memory.
//
// Members of a host average in its memory (core/gossip/gossip.h), those of different hosts by
// messages (core/gossip/far_pairs.h), which the thread that drives the process's runtime reads and
// answers while the trainer computes. The mean of an epoch is a version of rounds over the network
// (core/replicated), to which each member gives its model:
//
//   phase      until                                          then
//   kTrains    Finish                                         no rank averages with this one
//   kFinishes  all that live have finished, its offers are    it gives its model to the version
//              answered
//   kFinishes  the version is there                           it goes on with its mean: kTrains
//
// A rank that trains on though its Finish has timed out goes back to kTrains, unless it has given
// its model. Then it trains alone, and its progress is added to the mean.
//
// Any thread, but for ChannelPort's functions: the holder of the progress lock.
#ifndef COVEY_CORE_GOSSIP_HOSTS_PORT_H_
#define COVEY_CORE_GOSSIP_HOSTS_PORT_H_

#include <memory>
#include <vector>

#include "core/gossip/far_pairs.h"
#include "core/gossip/pairs_port.h"
#include "core/partial/rounds_port.h"
#include "core/replicated/channel_mux.h"
#include "core/replicated/channel_waiters.h"
#include "core/replicated/private_blocks.h"
#include "core/transport/private_atomics.h"

namespace covey {

class HostsPort final : public PairsPort, public ChannelPort {
 public:
  // `transport` outlives the port, as does `group`, of which this rank is a member.
  HostsPort(Bundle bundle, const Group* group, Transport* transport, ChannelDriver driver);

  // Whether this rank gives a block of its region to others of its host.
  bool HasBlock() const { return memory_.size() > 1; }
  // The rounds of the mean: of all members, each version of one epoch; `self` is this rank.
  static RoundsPort::Bundle RoundsOf(const Bundle& bundle, int32_t size);
  // All members have agreed on the offsets of their blocks, if they have one, on `channel`, and on
  // `rounds`, which outlive this or its Close.
  void Open(const std::vector<uint64_t>& offsets, uint64_t channel, RoundsPort* rounds);

  void Join(ChannelMux* box) override { box->Open(channel_, group_, this); }
  void Part(ChannelMux* box) override { box->Close(channel_); }
  void Begin(std::span<const void* const> model) override;
  void Tell(int64_t version) override;
  Seen Peek(int32_t member, std::span<void* const> to) override;
  void Interrupt() override;
  void Close() override;
  bool CanBeFreed() override;
  Totals totals() override;
  FarPairs::Counters far_counters();

  size_t LongestMessageBytes() override { return far_->LongestMessageBytes(); }
  void OnMessage(int32_t from, Slice message, Time now) override;
  void OnLoss(int32_t member) override;
  Pass Advance(Time now, bool is_sent) override;

 private:
  Status Gather(std::span<void* const> model, Time deadline, Result result) override;
  void Stir() override { driver_.kick(); }
  bool TrainsDuringFinish(std::span<void* const> model) override;
  bool SeenMean(std::span<void* const> model) override;
  void HearOfLosses() override;
  Seen PeekLocked(int32_t member, std::span<void* const> to);
  bool Copy(int32_t member, std::vector<std::byte>* to);
  void HandIn();
  Status TakeResult(std::span<void* const> model);
  Time Until(Time deadline) const;
  Status Judge(const Status& waited);
  void Divide(const RoundRecord& record, std::span<void* const> sum) const;

  Transport* transport_;
  ChannelDriver driver_;
  std::vector<int32_t> near_;  // by member: its index among those of this host; -1: of another
  uint64_t channel_ = 0;
  RoundsPort* rounds_ = nullptr;
  PrivateAtomics private_words_;
  PrivateBlocks private_blocks_;

  // Protected by mutex_.
  std::unique_ptr<FarPairs> far_;  // never changed once open
  ChannelWaiters waiters_{&mutex_};
  uint64_t version_ = 0;  // that has this rank's model; 0: none of this epoch
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_HOSTS_PORT_H_
