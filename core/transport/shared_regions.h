// Memory that the ranks of a job read of each other: one region for each rank.
//
// A peer's region is the same memory here (Shares), or a mirror of it that shows what the peer has
// pushed. Contract: transport-T2, transport-T3 (core/transport/transport.h). The thread that holds
// the progress lock, unless said otherwise; no call blocks.
#ifndef COVEY_CORE_TRANSPORT_SHARED_REGIONS_H_
#define COVEY_CORE_TRANSPORT_SHARED_REGIONS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/types.h"
#include "core/transport/shared_atomics.h"

namespace covey {

class SharedRegions {
 public:
  virtual ~SharedRegions() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // Whether the region of `peer` is one memory with its mapping here. False: a mirror.
  virtual bool Shares(Rank peer) const = 0;
  // The lowest rank of those whose regions are one memory with that of `r`; equal on all ranks.
  virtual Rank HostOf(Rank /*r*/) const { return Rank{0}; }
  // The same for all of `peers`, and for all ranks of the job.
  bool SharesWith(std::span<const Rank> peers) const {
    for (Rank peer : peers)
      if (!Shares(peer)) return false;
    return true;
  }
  bool SharesWithAll() const {
    for (int32_t r = 0; r < size(); ++r)
      if (!Shares(Rank{r})) return false;
    return true;
  }

  // Where the region of `r` is mapped here.
  virtual std::byte* Base(Rank r) = 0;
  // Memory of the own region: 64-byte aligned, zero-filled, as an offset from Base(rank());
  // kNoOffset when the region is full.
  static constexpr uint64_t kNoOffset = ~uint64_t{0};
  virtual uint64_t AllocShared(size_t length_bytes) = 0;
  virtual void FreeShared(uint64_t offset) = 0;
  // The same for memory that outlives the runtime (framework tensors); Arena::FreeData gives it
  // back. Null: the region is full. Any thread.
  virtual void* AllocData(size_t length_bytes) = 0;
  // The offset of `data` in the own region, or kNoOffset when [data, data+length) is not inside it.
  virtual uint64_t OffsetOf(const std::byte* data, size_t length_bytes) const = 0;

  // Any rank's memory, from `data` on, where this process alone sees what it writes: see
  // Arena::PrivateOf. Null: not possible here.
  virtual std::byte* PrivateOf(const std::byte* /*data*/, size_t /*length_bytes*/,
                               size_t* /*written*/) {
    return nullptr;
  }
  // In a child of fork(): pages of the ranks' memory that it writes become its own: see
  // Arena::BecomePrivate.
  virtual void BecomePrivate() = 0;

  // Words of the protocol. `word` is 8-byte aligned in some rank's region.
  virtual uint64_t LoadAcquire(const uint64_t* word) = 0;
  virtual void StoreRelease(uint64_t* word, uint64_t value) = 0;
  // Peers that hold mirrors will see these bytes of the own region with the next Wake of them. They
  // stay as they are until the peers have answered that, or are lost.
  void Push(std::span<const Rank> peers, const std::byte* data, size_t length_bytes) {
    PushAs(peers, data, data, length_bytes);
  }
  // They will see `data`, which lies anywhere, where `place` is in the own region. That stays as it
  // is.
  virtual void PushAs(std::span<const Rank> /*peers*/, const std::byte* /*place*/,
                      const std::byte* /*data*/, size_t /*length_bytes*/) {}
  // Nothing that was pushed is read any more.
  virtual bool HasSentAll() { return true; }
  // Wakes the listed peers if they are parked. Call after the StoreRelease they may be waiting for.
  virtual void Wake(std::span<const Rank> peers) = 0;

  // Words that any rank may change, for core/partial; null unless all regions are one memory. They
  // go with the transport.
  virtual SharedAtomics* words() { return nullptr; }
  // The same among the peers that Shares says; null: there are no others.
  virtual SharedAtomics* near_words() { return words(); }
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_SHARED_REGIONS_H_
