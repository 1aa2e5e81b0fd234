// A Transport of ranks on several hosts: the memory of this host for those near, a link for the
// others.
//
// A region is one memory with its mapping here, or a mirror (Shares). Words and bytes of the own
// region reach near peers as soon as they are stored; far ones get them by Push and Wake. So a
// schedule for mirrored memory runs over any mixture: a push to a near peer does nothing.
//
// A sleeper sleeps where near peers ring it. A network that has a descriptor rings it there, too.
#ifndef COVEY_CORE_TRANSPORT_COMPOSITE_H_
#define COVEY_CORE_TRANSPORT_COMPOSITE_H_

#include <memory>
#include <vector>

#include "core/transport/descriptor_bell.h"
#include "core/transport/far_peers.h"
#include "core/transport/transport.h"

namespace covey {

class Composite final : public Transport {
 public:
  // `near` has a rank for each of `hosted`, in that order: the ranks of this host, ascending. Waits
  // for the greeting of each other; start_timeout 0: does not (simulator).
  static Status Open(Time start_timeout, std::unique_ptr<Transport> near, std::vector<Rank> hosted,
                     std::unique_ptr<FarPeers> far, std::unique_ptr<Transport>* transport);
  ~Composite() override;  // says goodbye

  Rank rank() const override { return far_->link().rank(); }
  int size() const override { return far_->link().size(); }
  int local_rank() const override { return ToInt(near_->rank()); }
  int local_size() const override { return near_->size(); }
  bool Shares(Rank peer) const override { return !far_->IsFar(peer); }
  Rank HostOf(Rank r) const override { return far_->IsFar(r) ? far_->HostOf(r) : hosted_[0]; }
  bool PollsNetwork() const override { return far_->link().Descriptor() < 0; }
  bool AnyThread() const override { return far_->link().AnyThread(); }

  bool TrySendParts(Rank to, Parts parts) override;
  bool TryReceive(Rank* from, Bytes* message) override;
  bool HasMail() override { return near_->HasMail() || far_->HasMail(); }
  bool HasUnsent() override { return near_->HasUnsent() || far_->HasUnsent(); }
  size_t MaxMessageBytes() const override { return near_->MaxMessageBytes(); }

  std::byte* Base(Rank r) override;
  uint64_t AllocShared(size_t length_bytes) override { return near_->AllocShared(length_bytes); }
  void FreeShared(uint64_t offset) override;
  void* AllocData(size_t length_bytes) override { return near_->AllocData(length_bytes); }
  void BecomePrivate() override { near_->BecomePrivate(); }
  uint64_t OffsetOf(const std::byte* data, size_t length_bytes) const override {
    return near_->OffsetOf(data, length_bytes);
  }

  bool CanReadPeers() const override { return false; }
  int ReadPeer(Rank peer, uint64_t address, std::byte* to, size_t length_bytes) override;

  uint64_t LoadAcquire(const uint64_t* word) override { return near_->LoadAcquire(word); }
  void StoreRelease(uint64_t* word, uint64_t value) override;
  void PushAs(std::span<const Rank> peers, const std::byte* place, const std::byte* data,
              size_t length_bytes) override {
    far_->Push(peers, place, data, length_bytes);
  }
  bool HasSentAll() override { return far_->Flushed(); }
  void Wake(std::span<const Rank> peers) override;
  std::vector<PeerLoss> PollPeers() override;

  SharedAtomics* near_words() override { return near_->words(); }

  uint32_t Ticket(Sleeper sleeper) override { return near_->Ticket(sleeper); }
  void SetParked(Sleeper sleeper) override;
  Sleeper Parked() const override { return near_->Parked(); }
  void Park(Sleeper sleeper, uint32_t ticket, Time until) override {
    near_->Park(sleeper, ticket, until);
  }
  void Ring(Sleeper sleeper) override { near_->Ring(sleeper); }

 private:
  Composite(Time start_timeout, std::unique_ptr<Transport> near, std::vector<Rank> hosted,
            std::unique_ptr<FarPeers> far);
  Status Join();
  Time NextLook(Time deadline) const;
  void RingParked();
  int32_t NearIndex(Rank r) const { return near_index_[static_cast<size_t>(ToInt(r))]; }

  const Time start_timeout_;
  std::unique_ptr<Transport> near_;
  const std::vector<Rank> hosted_;
  std::vector<int32_t> near_index_;  // by rank: its rank in near_; -1: far
  std::unique_ptr<FarPeers> far_;
  std::unique_ptr<DescriptorBell> bell_;  // null: the network has no descriptor
  std::vector<Rank> woken_;               // in Wake
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_COMPOSITE_H_
