// Rounds of members that share memory: a lock, a clock and sleep around Rounds.
//
// A thread that waits here does the work; the engine thread has no part in it. Waiting spins,
// yields and then sleeps on the rounds' event count, for a bounded time: a peer that was to ring
// may have been stopped. Memory that peers may still read is given back only when all members have
// left.
#ifndef COVEY_CORE_PARTIAL_SHARED_PORT_H_
#define COVEY_CORE_PARTIAL_SHARED_PORT_H_

#include <memory>
#include <vector>

#include "core/partial/rounds_port.h"
#include "core/transport/event_count.h"

namespace covey {

class SharedPort : public RoundsPort {
 public:
  // `transport` has words and outlives the port, as does `group`.
  SharedPort(Bundle bundle, const Group* group, Transport* transport);

  size_t BlockBytes() const override { return memory_.BlockBytes(bundle_.options.self); }
  std::vector<size_t> MemberBytes() const override;
  void Open(const std::vector<uint64_t>& places) override;

  void RegisterOutput(std::span<void* const> to) override;
  Status Hold(uint64_t version, std::vector<std::byte*>* spans, size_t* written) override;
  Status Retract(const std::byte** content) override;
  Status Begin() override;
  uint64_t OfferAgain(std::span<const double> hypers) override;
  Status Merge(uint64_t version, std::span<void* const> to, Merged* merged) override;
  Status Peek(int32_t member, std::span<void* const> to, Seen* seen) override;
  bool IsAsked(uint64_t applied, uint64_t* unused) override;
  bool GivesInBlocks() const override { return true; }
  void Give(uint64_t version, uint64_t offset, std::span<const Snapshots::Part> parts,
            uint64_t* unused) override;
  bool Take(const Offer& offer, std::byte* to) override;
  void Interrupt() override;
  bool CanBeFreed() override;
  std::vector<uint64_t> Blocks() const override;

 protected:
  using Look = std::function<Looked(Time)>;
  // Until `look` returns an end, or as WaitForEvent says. The simulator has another.
  virtual Status WaitFor(const Look& look, Time deadline);

 private:
  Status DriveOn(const Done& done, Time deadline) override;
  Looked Pass(const Done& done, Time now);
  Versions& versions() override { return *rounds_; }
  void Forget() override { rounds_->Forget(); }
  Offer FindOffer(uint64_t applied) override;
  void HearOfLosses();

  Transport* transport_;
  SharedAtomics* words_;
  uint64_t offset_ = 0;
  uint64_t snapshot_offset_ = Transport::kNoOffset;
  std::unique_ptr<Rounds> rounds_;  // protected by mutex_
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_SHARED_PORT_H_
