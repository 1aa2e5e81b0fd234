// A Transport over a network: every rank keeps a mirror of the parts of its peers' regions that it
// reads, and owners push what they write.
//
// The contract of shared memory (core/transport/transport.h, transport-T2) holds for what was
// pushed: bytes given to Push and words stored before Wake(peers) are seen by those peers in that
// order. Schedules built for such a transport name the bytes to push and the receiver
// (StepKind::kPush); everything else, from begin headers to landing slots three deep, is as on one
// host.
//
// How bytes travel: core/transport/far_peers.h. The framework's tensors are never reached by peers:
// data memory is private.
#ifndef COVEY_CORE_TRANSPORT_MIRRORED_H_
#define COVEY_CORE_TRANSPORT_MIRRORED_H_

#include <atomic>
#include <memory>
#include <vector>

#include "core/base/arena.h"
#include "core/transport/far_peers.h"
#include "core/transport/link.h"
#include "core/transport/one_shot.h"
#include "core/transport/transport.h"

namespace covey {

class Mirrored final : public Transport {
 public:
  struct Options {
    uint64_t arena_bytes = 0;  // of each rank's region; equal on all ranks
    Time start_timeout = 0;    // for the first message of all; 0 = do not wait for it (simulator)
    size_t put_bytes = size_t{8} << 10;  // FarPeers
  };
  static Status Open(const Options& options, std::unique_ptr<Link> link,
                     std::unique_ptr<Transport>* transport);
  // Of peers that mail has reached already.
  static Status Open(const Options& options, std::unique_ptr<FarPeers> far,
                     std::unique_ptr<Transport>* transport);
  ~Mirrored() override;  // says goodbye

  Rank rank() const override { return far_->link().rank(); }
  int size() const override { return far_->link().size(); }
  int local_rank() const override { return far_->local_rank(); }
  int local_size() const override { return far_->local_size(); }
  bool Shares(Rank peer) const override { return peer == rank(); }
  Rank HostOf(Rank r) const override { return far_->HostOf(r); }
  bool PollsNetwork() const override { return far_->link().Descriptor() < 0; }
  bool AnyThread() const override { return far_->link().AnyThread(); }

  bool TrySendParts(Rank to, Parts parts) override { return far_->TrySend(to, parts); }
  bool TryReceive(Rank* from, Bytes* message) override { return far_->TryReceive(from, message); }
  bool HasMail() override { return far_->HasMail(); }
  bool HasUnsent() override { return far_->HasUnsent(); }
  size_t MaxMessageBytes() const override { return 256 * 1024; }

  std::byte* Base(Rank r) override { return r == rank() ? arena_->base() : far_->MirrorOf(r); }
  uint64_t AllocShared(size_t length_bytes) override;
  void FreeShared(uint64_t offset) override;
  void* AllocData(size_t length_bytes) override { return arena_->AllocData(length_bytes); }
  void BecomePrivate() override { arena_->BecomePrivate(); }
  uint64_t OffsetOf(const std::byte*, size_t) const override { return kNoOffset; }

  bool CanReadPeers() const override { return false; }
  int ReadPeer(Rank peer, uint64_t address, std::byte* to, size_t length_bytes) override;

  uint64_t LoadAcquire(const uint64_t* word) override { return *word; }
  void StoreRelease(uint64_t* word, uint64_t value) override;
  void PushAs(std::span<const Rank> peers, const std::byte* place, const std::byte* data,
              size_t length_bytes) override {
    far_->Push(peers, place, data, length_bytes);
  }
  bool HasSentAll() override { return far_->Flushed(); }
  void Wake(std::span<const Rank> peers) override { far_->Wake(peers); }
  std::vector<PeerLoss> PollPeers() override { return far_->PollLost(); }

  uint32_t Ticket(Sleeper sleeper) override;
  void SetParked(Sleeper sleeper) override;
  Sleeper Parked() const override;
  void Park(Sleeper sleeper, uint32_t ticket, Time until) override;
  void Ring(Sleeper sleeper) override;

 private:
  Mirrored(const Options& options, std::unique_ptr<FarPeers> far);
  Status Join();
  Time NextLook(Time deadline) const;

  const Options options_;
  std::unique_ptr<FarPeers> far_;
  Arena* arena_ = nullptr;  // the own region
  std::atomic<uint32_t> parked_{0};
  std::atomic<uint32_t> bells_[4] = {};  // by Sleeper: times rung
  int bell_fds_[4];                      // by Sleeper: eventfd
  OneShot network_;                      // open where the network has a descriptor
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_MIRRORED_H_
