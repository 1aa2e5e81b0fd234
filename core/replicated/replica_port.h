// Rounds of members that share no memory: a lock and waiting around a Replica
// (core/replicated/replica.h).
//
// The thread that drives the process's runtime runs the replica and carries its messages
// (core/replicated/channel_mux.h): its engine thread while the trainer computes, and a trainer that
// waits. Where no majority of members answers, no member goes on, for longer than max_wait; a
// waiting member logs it, with the silent ranks.
//
// Any thread, but for ChannelPort's functions: the holder of the progress lock.
#ifndef COVEY_CORE_REPLICATED_REPLICA_PORT_H_
#define COVEY_CORE_REPLICATED_REPLICA_PORT_H_

#include <memory>
#include <string>
#include <vector>

#include "core/partial/rounds_port.h"
#include "core/replicated/channel_mux.h"
#include "core/replicated/channel_waiters.h"
#include "core/replicated/replica.h"

namespace covey {

class ReplicaPort final : public RoundsPort, public ChannelPort {
 public:
  using Driver = ChannelDriver;
  // `hosts`: by member, a number of its host; members of one host sum first.
  ReplicaPort(Bundle bundle, const Group* group, std::vector<int32_t> hosts, Driver driver);

  size_t BlockBytes() const override { return 0; }
  // As much for each: any may come to lead.
  std::vector<size_t> MemberBytes() const override;
  // The first member's place is the number of the channel.
  void Open(const std::vector<uint64_t>& places) override;
  void Join(ChannelMux* box) override { box->Open(channel_, group_, this); }
  void Part(ChannelMux* box) override { box->Close(channel_); }

  void RegisterOutput(std::span<void* const>) override {}
  Status Hold(uint64_t version, std::vector<std::byte*>* spans, size_t* written) override;
  Status Retract(const std::byte** content) override;
  Status Merge(uint64_t version, std::span<void* const> to, Merged* merged) override;
  Status Begin() override;
  uint64_t OfferAgain(std::span<const double> hypers) override;
  Status Peek(int32_t member, std::span<void* const> to, Seen* seen) override;
  bool IsAsked(uint64_t applied, uint64_t* unused) override;
  bool GivesInBlocks() const override { return false; }
  void Give(uint64_t version, uint64_t offset, std::span<const Snapshots::Part> parts,
            uint64_t* unused) override;
  bool Take(const Offer& offer, std::byte* to) override;
  void Interrupt() override;
  bool CanBeFreed() override;
  void Settle(Time deadline) override;
  std::vector<uint64_t> Blocks() const override { return {}; }

  size_t LongestMessageBytes() override;
  void OnMessage(int32_t from, Slice message, Time now) override;
  void OnLoss(int32_t member) override;
  Pass Advance(Time now, bool is_sent) override;

 private:
  Status DriveOn(const Done& done, Time deadline) override {
    return waiters_.Await(driver_, done, deadline);
  }
  void Stir() override { driver_.kick(); }
  Versions& versions() override { return *replica_; }
  Offer FindOffer(uint64_t applied) override;
  void HearWitness(Time now);
  void AskWitness();
  void WatchSilence(Time now);
  void WatchWitness(Time now);
  std::string NamesOf(const std::vector<int32_t>& members) const;

  Driver driver_;
  std::vector<int32_t> hosts_;
  uint64_t channel_ = 0;

  // Protected by mutex_.
  std::unique_ptr<Replica> replica_;
  ChannelWaiters waiters_{&mutex_};
  Replica::Snapshot snapshot_;  // that is offered; of version 0: none
  bool is_sent_ = true;         // everything that was queued
  Time no_quorum_since_ = 0;    // no majority answers; 0: one does
  Time next_warning_ = 0;
  bool has_missed_witness_ = false;  // said already
  uint64_t told_lost_ = 0;           // the last version that was lost, as told
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_REPLICA_PORT_H_
