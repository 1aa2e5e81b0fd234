// The peers that a rank reaches over a link only: mirrors of their regions here, and all that goes
// to them and comes from them.
//
// Words and short pushes travel in one message per peer and Wake. A long push is a put, where the
// network has puts: it is sent from where it lies and written into the peer's mirror, without a
// copy. Bytes that were pushed stay as they are until the peers have answered (plan-S3). Pages of
// mirrors cost memory when first written.
//
// The thread that holds the progress lock; no call blocks.
#ifndef COVEY_CORE_TRANSPORT_FAR_PEERS_H_
#define COVEY_CORE_TRANSPORT_FAR_PEERS_H_

#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/transport/link.h"
#include "core/transport/peer_loss.h"

namespace covey {

class FarPeers {
 public:
  struct Options {
    uint64_t arena_bytes = 0;  // of each rank's region; equal on all ranks
    // A push from this length on is a put: below, its copy costs less than a message of its own.
    // Where the link has a limit for messages that leave at once, from twice that on at least.
    size_t put_bytes = size_t{8} << 10;
  };
  FarPeers(std::unique_ptr<Link> link, const Options& options);
  ~FarPeers();  // closes the link

  Link& link() const { return *link_; }
  // The ranks of this host, ascending, by the link's word; empty: unknown.
  std::vector<Rank> Hosted() const;
  int local_rank() const;  // among them; -1 = unknown
  int local_size() const;  // -1 = unknown

  // Before it only mail travels, to any rank. Maps a mirror of each of `peers` and greets them;
  // `own` is the own region, `host` the lowest rank of those it is one memory with. Error: no
  // address space.
  Status Greet(std::byte* own, Rank host, std::span<const Rank> peers);
  // As SharedRegions::HostOf: what the rank has said in its greeting, before it what the link says.
  Rank HostOf(Rank r) const { return hosts_[Index(r)]; }
  // kNoRank once every peer has greeted; else one that has not.
  Rank Silent() const;
  // A loss of one that will not; null: none. One that has greeted, and left, is lost later.
  const PeerLoss* LostSilent() const;
  // Last words to the peers that are not lost: which rank this one had lost first, if any.
  void SayGoodbye();
  // All that was accepted has left this process.
  bool Flushed();

  bool IsFar(Rank r) const { return MirrorOf(r) != nullptr; }
  std::byte* MirrorOf(Rank r) const { return mirrors_[Index(r)]; }

  // Also to this rank itself.
  bool TrySend(Rank to, Parts parts);
  bool TryReceive(Rank* from, Bytes* message);
  bool HasMail() const { return inbox_count_.load(std::memory_order_relaxed) > 0; }  // any thread
  bool HasUnsent() const;

  // `data` goes to where `place` is in the own region. Peers that are not far are passed over.
  void Push(std::span<const Rank> peers, const std::byte* place, const std::byte* data,
            size_t length_bytes);
  void Store(const uint64_t* word, uint64_t value);
  // What was stored and pushed leaves for these peers. Words leave for all that this Wake names:
  // the next one does not repeat them.
  void Wake(std::span<const Rank> peers);

  // Takes what has arrived, then sends what had to wait.
  void Pump();
  // Takes a message of the link that something else has received.
  void Hear(Rank from, std::span<const std::byte> message);
  // Each lost peer once.
  std::vector<PeerLoss> PollLost() { return std::exchange(losses_, {}); }

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
  // Before the heap of a region in a host's shared memory: its page and its mailboxes.
  static constexpr uint64_t kMostBeforeHeap = uint64_t{512} << 20;
  uint64_t MirrorBytes() const { return options_.arena_bytes + kMostBeforeHeap; }
  static size_t Index(Rank r) { return static_cast<size_t>(ToInt(r)); }

  void SendOpen(Rank to);
  void AppendPush(Rank to, uint64_t offset, std::span<const std::byte> data);
  bool Offer(Rank to, const Parcel& parcel);
  bool Absorb(Rank from, std::span<const std::byte> message);
  bool OnGoodbye(Rank from, std::span<const std::byte> body);
  void Keep(Rank from, std::span<const std::byte> message);
  void Lose(Rank peer, const std::string& how);

  std::unique_ptr<Link> link_;
  const Options options_;
  std::byte* own_ = nullptr;
  std::vector<std::byte*> mirrors_;  // by rank; null: not far
  std::vector<Outgoing> out_;        // by rank
  std::deque<std::pair<Rank, Bytes>> inbox_;
  std::atomic<size_t> inbox_count_{0};
  std::vector<std::pair<uint64_t, uint64_t>> words_;  // offset, value: stored since the last Wake
  std::vector<Rank> hosts_;                           // by rank
  std::vector<bool> heard_;                           // by rank: its greeting
  std::vector<bool> lost_;                            // by rank
  std::vector<PeerLoss> losses_;                      // not yet polled
  Rank cause_ = kNoRank;  // the rank that was lost first, here or at a peer that left after it
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_FAR_PEERS_H_
