// The transport between processes of one host: mailboxes and words in the job's shared memory,
// futexes to sleep.
//
// Dead peers are noticed through pidfds (a process that is gone cannot say so), left ones through
// their page.
#ifndef COVEY_OPS_TRANSPORTS_SHM_H_
#define COVEY_OPS_TRANSPORTS_SHM_H_

#include <memory>
#include <vector>

#include "core/transport/transport.h"
#include "ops/transports/shm_job.h"
#include "ops/transports/shm_words.h"

namespace covey {

class ShmTransport final : public Transport {
 public:
  // Joins the job behind `fd` as `identity`; waits for all ranks as ShmJob::Join does.
  static Status Open(int fd, ShmJob::Identity identity, const ShmJob::Patience& patience,
                     std::unique_ptr<ShmTransport>* transport);
  // The transport of a job that was joined before; takes over the reference to its arena.
  ShmTransport(ShmJob job, std::unique_ptr<ProcessWatch> watch);
  ~ShmTransport() override;  // leaves the job

  Rank rank() const override { return job_.identity.rank; }
  int size() const override { return job_.identity.size; }

  bool TrySendParts(Rank to, Parts parts) override;
  bool TryReceive(Rank* from, Bytes* message) override;
  bool HasMail() override {
    return own_->mail.load() != mail_taken_.load(std::memory_order_relaxed);
  }
  size_t MaxMessageBytes() const override { return MailRing::kCapacityBytes - 64; }

  bool Shares(Rank) const override { return true; }
  std::byte* Base(Rank r) override { return job_.Region(r); }
  uint64_t AllocShared(size_t length_bytes) override;
  void FreeShared(uint64_t offset) override;
  void* AllocData(size_t length_bytes) override { return job_.arena->AllocData(length_bytes); }
  void BecomePrivate() override { job_.arena->BecomePrivate(); }
  std::byte* PrivateOf(const std::byte* data, size_t length_bytes, size_t* written) override {
    return job_.arena->PrivateOf(data, length_bytes, written);
  }
  uint64_t OffsetOf(const std::byte* data, size_t length_bytes) const override;

  bool CanReadPeers() const override { return can_read_peers_; }
  int ReadPeer(Rank peer, uint64_t address, std::byte* to, size_t length_bytes) override;

  uint64_t LoadAcquire(const uint64_t* word) override;
  void StoreRelease(uint64_t* word, uint64_t value) override;
  void Wake(std::span<const Rank> peers) override;
  std::vector<PeerLoss> PollPeers() override;
  bool IsLost(Rank peer) const override { return lost_[static_cast<size_t>(ToInt(peer))].load(); }
  SharedAtomics* words() override { return &words_; }

  uint32_t Ticket(Sleeper sleeper) override;
  void SetParked(Sleeper sleeper) override;
  Sleeper Parked() const override;
  void Park(Sleeper sleeper, uint32_t ticket, Time until) override;
  void Ring(Sleeper sleeper) override;

 private:
  void ProbeReading();
  struct Lost {
    Time at;  // 0: it has died
    PeerLoss loss;
  };
  bool FindLost(std::vector<Lost>* found);
  enum class Reason { kTick, kMail };
  void RingPeer(Rank peer, Reason reason);

  ShmJob job_;
  RankPage* own_;
  uint64_t region_offset_;  // of the own region in the mapping
  std::atomic<uint64_t> mail_taken_{
      0};  // written by the holder of the progress lock, read by a thread about to park
  int32_t next_mailbox_ = 0;
  std::unique_ptr<ProcessWatch> watch_;
  std::vector<std::atomic<bool>> lost_;  // by rank
  ShmWords words_;
  std::vector<int32_t> pids_;  // by rank
  bool can_read_peers_ = false;
};

}  // namespace covey
#endif  // COVEY_OPS_TRANSPORTS_SHM_H_
