// A Transport over a network: every rank keeps a mirror of the parts of its peers' regions that it
// reads, and owners push what they write.
//
// The contract of shared memory (core/transport/transport.h, transport-T2) holds for what was
// pushed: bytes given to Push and words stored before Wake(peers) are seen by those peers in that
// order. Schedules built for such a transport name the bytes to push and the receiver
// (StepKind::kPush); everything else, from begin headers to landing slots three deep, is as on one
// host.
//
// Words and short pushes travel in one message per peer and Wake. A long push is a put, where the
// network has puts: it is sent from this rank's region and written into the peer's mirror, without
// a copy. Bytes that were pushed stay as they are until the peers have answered (plan-S3). Pages of
// mirrors cost memory when first written. The framework's tensors are never reached by peers: data
// memory is private.
#ifndef COVEY_CORE_TRANSPORT_MIRRORED_H_
#define COVEY_CORE_TRANSPORT_MIRRORED_H_

#include <atomic>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/arena.h"
#include "core/transport/link.h"
#include "core/transport/transport.h"

namespace covey {

class Mirrored final : public Transport {
 public:
  struct Options {
    uint64_t arena_bytes = 0;  // of each rank's region; equal on all ranks
    Time start_timeout = 0;    // for the first message of all; 0 = do not wait for it (simulator)
    // A push from this length on is a put: below, its copy costs less than a message of its own.
    size_t put_bytes = size_t{8} << 10;
  };
  static Status Open(const Options& options, std::unique_ptr<Link> link,
                     std::unique_ptr<Transport>* transport);
  ~Mirrored() override;  // says goodbye

  Rank rank() const override { return link_->rank(); }
  int size() const override { return link_->size(); }
  int local_rank() const override { return link_->local_rank(); }
  int local_size() const override { return link_->local_size(); }
  bool Shares(Rank peer) const override { return peer == rank(); }
  bool PollsNetwork() const override { return link_->Descriptor() < 0; }
  bool AnyThread() const override { return link_->AnyThread(); }

  bool TrySend(Rank to, std::span<const std::byte> message) override;
  bool TryReceive(Rank* from, Bytes* message) override;
  bool HasMail() override { return inbox_count_.load(std::memory_order_relaxed) > 0; }
  bool HasUnsent() override;
  size_t MaxMessageBytes() const override { return 256 * 1024; }

  std::byte* Base(Rank r) override { return bases_[static_cast<size_t>(ToInt(r))]; }
  uint64_t AllocShared(size_t length_bytes) override;
  void FreeShared(uint64_t offset) override;
  void* AllocData(size_t length_bytes) override { return arena_->AllocData(length_bytes); }
  void BecomePrivate() override { arena_->BecomePrivate(); }
  uint64_t OffsetOf(const std::byte*, size_t) const override { return kNoOffset; }

  bool CanReadPeers() const override { return false; }
  int ReadPeer(Rank peer, uint64_t address, std::byte* to, size_t length_bytes) override;

  uint64_t LoadAcquire(const uint64_t* word) override { return *word; }
  void StoreRelease(uint64_t* word, uint64_t value) override;
  void Push(std::span<const Rank> peers, const std::byte* data, size_t length_bytes) override;
  void Wake(std::span<const Rank> peers) override;
  std::vector<PeerLoss> PollPeers() override;

  uint32_t Ticket(Sleeper sleeper) override;
  void SetParked(Sleeper sleeper) override;
  Sleeper Parked() const override;
  void Park(Sleeper sleeper, uint32_t ticket, Time until) override;
  void Ring(Sleeper sleeper) override;

 private:
  struct Parcel {
    Bytes message;                    // empty: a put
    uint64_t offset = 0;              // of a put, in the own region
    std::span<const std::byte> data;  // of a put
  };
  struct Outgoing {
    Bytes open;                 // a message being put together
    std::deque<Parcel> unsent;  // complete, the link had no room
  };

  Mirrored(const Options& options, std::unique_ptr<Link> link);
  Status Join();
  void SayGoodbye();
  void SendOpen(Rank to);
  bool Offer(Rank to, const Parcel& parcel);
  void Pump();
  bool Absorb(Rank from, std::span<const std::byte> message);
  void Lose(Rank peer, const std::string& how);

  Options options_;
  std::unique_ptr<Link> link_;
  Arena* arena_ = nullptr;         // the own region
  std::vector<std::byte*> bases_;  // by rank: the own region, or its mirror
  std::vector<Outgoing> out_;      // by rank
  std::deque<std::pair<Rank, Bytes>> inbox_;
  std::atomic<size_t> inbox_count_{0};
  std::vector<std::pair<uint64_t, uint64_t>> words_;  // offset, value: stored since the last Wake
  std::vector<bool> heard_;                           // by rank: its first message
  std::vector<bool> lost_;                            // by rank
  std::vector<PeerLoss> losses_;                      // not yet polled
  std::atomic<uint32_t> parked_{0};
  std::atomic<uint32_t> bells_[4] = {};  // by Sleeper: times rung
  int bell_fds_[4];                      // by Sleeper: eventfd
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_MIRRORED_H_
