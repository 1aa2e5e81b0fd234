// What a rank of the simulator sees of its host under a Composite: of an inproc transport only the
// ranks of the host, and of its mail only theirs.
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_VIEW_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_VIEW_H_

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "ops/transports/inproc.h"

namespace covey {

// The mail of one rank, sorted: of its host, and of the network.
class SortedMail {
 public:
  SortedMail(Transport* mail, std::vector<Rank> hosted) : mail_(mail), hosted_(std::move(hosted)) {}

  Transport& transport() { return *mail_; }
  const std::vector<Rank>& hosted() const { return hosted_; }
  // The rank's number on this host; -1: it is on another.
  int32_t NearIndex(Rank r) const {
    const auto found = std::find(hosted_.begin(), hosted_.end(), r);
    return found == hosted_.end() ? -1 : static_cast<int32_t>(found - hosted_.begin());
  }
  bool Receive(bool near, Rank* from, Bytes* message) {
    std::deque<std::pair<Rank, Bytes>>& wanted = kept_[near ? 1 : 0];
    for (Rank sender = kNoRank; wanted.empty() && mail_->TryReceive(&sender, message);)
      kept_[NearIndex(sender) >= 0 ? 1 : 0].emplace_back(sender, std::move(*message));
    if (wanted.empty()) return false;
    *from = wanted.front().first;
    *message = std::move(wanted.front().second);
    wanted.pop_front();
    return true;
  }
  bool HasKept(bool near) const { return !kept_[near ? 1 : 0].empty(); }
  // Losses of peers, on each side once.
  std::vector<PeerLoss> PollLost(bool near) {
    for (PeerLoss& loss : mail_->PollPeers())
      lost_[NearIndex(loss.rank) >= 0 ? 1 : 0].push_back(std::move(loss));
    return std::exchange(lost_[near ? 1 : 0], {});
  }

 private:
  Transport* mail_;
  const std::vector<Rank> hosted_;
  std::deque<std::pair<Rank, Bytes>> kept_[2];
  std::vector<PeerLoss> lost_[2];
};

// Ranks 0, 1 and so on of a HostView are those of the host, ascending.
class HostView final : public Transport {
 public:
  explicit HostView(std::shared_ptr<SortedMail> mail)
      : mail_(std::move(mail)), node_(&mail_->transport()) {}

  Rank rank() const override { return Rank{mail_->NearIndex(node_->rank())}; }
  int size() const override { return static_cast<int>(mail_->hosted().size()); }

  bool TrySend(Rank to, std::span<const std::byte> message) override {
    return node_->TrySend(Of(to), message);
  }
  bool TryReceive(Rank* from, Bytes* message) override {
    if (!mail_->Receive(true, from, message)) return false;
    *from = Rank{mail_->NearIndex(*from)};
    return true;
  }
  bool HasMail() override { return mail_->HasKept(true) || node_->HasMail(); }
  size_t MaxMessageBytes() const override { return node_->MaxMessageBytes(); }

  bool Shares(Rank) const override { return true; }
  std::byte* Base(Rank r) override { return node_->Base(Of(r)); }
  uint64_t AllocShared(size_t length_bytes) override { return node_->AllocShared(length_bytes); }
  void FreeShared(uint64_t offset) override { node_->FreeShared(offset); }
  void* AllocData(size_t length_bytes) override { return node_->AllocData(length_bytes); }
  void BecomePrivate() override {}
  uint64_t OffsetOf(const std::byte* data, size_t length_bytes) const override {
    return node_->OffsetOf(data, length_bytes);
  }

  bool CanReadPeers() const override { return node_->CanReadPeers(); }
  int ReadPeer(Rank peer, uint64_t address, std::byte* to, size_t length_bytes) override {
    return node_->ReadPeer(Of(peer), address, to, length_bytes);
  }

  uint64_t LoadAcquire(const uint64_t* word) override { return node_->LoadAcquire(word); }
  void StoreRelease(uint64_t* word, uint64_t value) override { node_->StoreRelease(word, value); }
  void Wake(std::span<const Rank> peers) override {
    std::vector<Rank> woken;
    for (Rank peer : peers) woken.push_back(Of(peer));
    node_->Wake(woken);
  }
  std::vector<PeerLoss> PollPeers() override {
    std::vector<PeerLoss> losses = mail_->PollLost(true);
    for (PeerLoss& loss : losses) loss.rank = Rank{mail_->NearIndex(loss.rank)};
    return losses;
  }
  bool IsLost(Rank peer) const override { return node_->IsLost(Of(peer)); }

  SharedAtomics* words() override { return node_->words(); }

  uint32_t Ticket(Sleeper sleeper) override { return node_->Ticket(sleeper); }
  void SetParked(Sleeper sleeper) override { node_->SetParked(sleeper); }
  Sleeper Parked() const override { return node_->Parked(); }
  void Park(Sleeper sleeper, uint32_t ticket, Time until) override {
    node_->Park(sleeper, ticket, until);
  }
  void Ring(Sleeper sleeper) override { node_->Ring(sleeper); }

 private:
  Rank Of(Rank near) const { return mail_->hosted()[static_cast<size_t>(ToInt(near))]; }

  std::shared_ptr<SortedMail> mail_;
  Transport* node_;
};

// The ranks that lie on the host of `rank` when each host but the last has `per_host`.
inline std::vector<Rank> HostedWith(Rank rank, int32_t per_host, int32_t size) {
  std::vector<Rank> hosted;
  const int32_t first = ToInt(rank) / per_host * per_host;
  for (int32_t r = first; r < std::min(first + per_host, size); ++r) hosted.push_back(Rank{r});
  return hosted;
}

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_VIEW_H_
