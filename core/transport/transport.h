// What joins a rank to its peers: a mailbox, memory they share, news of their deaths, and a place
// to sleep.
//
// A transport moves bytes and knows nothing of collectives. Unless said otherwise a call comes from
// the thread that holds the progress lock (see core/engine/engine.h); none of them blocks except
// Park().
//
// Contract:
//  T1. Mailbox: per ordered pair once, whole, in order; between pairs any order.
//  T2. Shared memory: every rank owns one region; Base(r) is where r's region is mapped here. What
//      a rank wrote before StoreRelease of a word is seen by whoever LoadAcquires the stored value;
//      without SharesMemory, only what it gave to Push for that peer, and only after Wake of it.
//  T3. After Wake(peers) every listed peer that was parked runs again; a peer that is about to park
//      re-checks.
//  T4. PollPeers reports each lost peer once; its stores are all visible by then.
#ifndef COVEY_CORE_TRANSPORT_TRANSPORT_H_
#define COVEY_CORE_TRANSPORT_TRANSPORT_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/types.h"
#include "core/base/wire.h"
#include "core/transport/words.h"

namespace covey {

// A peer that will take no further part: `how` completes the sentence "rank 3 ..." ("has left (shut
// down)").
struct PeerLoss {
  Rank rank = kNoRank;
  std::string how;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // Among the ranks of this host; -1 = as the launcher said.
  virtual int local_rank() const { return -1; }
  virtual int local_size() const { return -1; }

  // Mailbox. TrySend returns false when there is no room now (try again after progress). The
  // longest message a mailbox takes is MaxMessageBytes().
  virtual bool TrySend(Rank to, std::span<const std::byte> message) = 0;
  virtual bool TryReceive(Rank* from, Bytes* message) = 0;
  virtual bool HasMail() = 0;
  // Something accepted waits for room in the network; TryReceive sees to it.
  virtual bool HasUnsent() { return false; }
  virtual size_t MaxMessageBytes() const = 0;

  // Shared memory. AllocShared takes from this rank's own region: 64-byte aligned, zero-filled, an
  // offset from Base(rank()); kNoOffset when the region is full.
  static constexpr uint64_t kNoOffset = ~uint64_t{0};
  virtual std::byte* Base(Rank r) = 0;
  virtual uint64_t AllocShared(size_t length_bytes) = 0;
  virtual void FreeShared(uint64_t offset) = 0;
  // The same for memory that outlives the runtime (framework tensors); Arena::FreeData gives it
  // back. Any thread.
  virtual void* AllocData(size_t length_bytes) = 0;  // null: the region is full
  // The offset of `data` in this rank's own region, or kNoOffset when [data, data+length) is not
  // inside it.
  virtual uint64_t OffsetOf(const std::byte* data, size_t length_bytes) const = 0;

  // Any rank's shared memory, from `data` on, where this process alone sees what it writes: see
  // Arena::PrivateOf. Null: not possible here.
  virtual std::byte* PrivateOf(const std::byte* /*data*/, size_t /*length_bytes*/,
                               size_t* /*written*/) {
    return nullptr;
  }

  // In a child of fork(): what it writes to the ranks' memory is its own: see Arena::BecomePrivate.
  virtual void BecomePrivate() = 0;

  // Reading a peer's private memory. CanReadPeers was probed when the job began and is this rank's
  // own answer. ReadPeer copies from `address` in the address space of `peer`; 0 or an errno.
  virtual bool CanReadPeers() const = 0;
  virtual int ReadPeer(Rank peer, uint64_t address, std::byte* to, size_t length_bytes) = 0;

  // Whether regions are one memory. False: peers hold mirrors of them (core/transport/mirrored.h).
  virtual bool SharesMemory() const { return true; }
  // Peers will see these bytes of the own region with the next Wake of them.
  virtual void Push(std::span<const Rank> peers, const std::byte* data, size_t length_bytes);
  // False: only the thread that opened it may drive (core/engine/engine.h).
  virtual bool AnyThread() const { return true; }

  // Shared words. `word` is 8-byte aligned in some rank's region.
  virtual uint64_t LoadAcquire(const uint64_t* word) = 0;
  virtual void StoreRelease(uint64_t* word, uint64_t value) = 0;
  // Wakes the listed peers if they are parked. Call after the StoreRelease they may be waiting for.
  virtual void Wake(std::span<const Rank> peers) = 0;

  virtual std::vector<PeerLoss> PollPeers() = 0;

  // Words that any rank may change, for core/partial; null where ranks share no memory. They go
  // with the transport.
  virtual SharedWords* words() { return nullptr; }
  // Where there are words: whether PollPeers has reported the peer. Any thread.
  virtual bool IsLost(Rank) const { return false; }

  // Parking, for core/engine/engine.h. A process has two sleepers: its engine thread, and the
  // waiter that holds the progress lock. A sleeper takes a ticket, calls SetParked, looks for work
  // once more, and only then Park, which returns when rung since the ticket was taken, or at
  // `until`. SetParked says whom peers must ring: kNobody: somebody is awake; kMailOnly: the engine
  // thread, but only for messages, because no exchange waits for a tick. Ring wakes kEngine or
  // kWaiter of this process. Any thread.
  enum class Sleeper : uint32_t { kNobody = 0, kEngine = 1, kWaiter = 2, kMailOnly = 3 };
  virtual uint32_t Ticket(Sleeper sleeper) = 0;
  virtual void SetParked(Sleeper sleeper) = 0;
  virtual Sleeper Parked() const = 0;
  virtual void Park(Sleeper sleeper, uint32_t ticket, Time until) = 0;
  virtual void Ring(Sleeper sleeper) = 0;
};

// A kind of transport, found by name.
struct TransportOptions {
  Rank rank = kNoRank;
  int32_t size = 0;
  int shm_fd = -1;       // the job's shared memory; -1 = none: only a job of one
  int launcher_pid = 0;  // where to find it when the descriptor was closed on the way; 0 = nowhere
  uint64_t arena_bytes = 0;
  bool reads_peers = false;  // CanReadPeers may be true; every rank lets the others read its memory
  Time start_timeout = 0;
  Time start_warning = kNever;  // after this long the log says which ranks are missing
  Log* log = nullptr;           // outlives the transport; null: nothing is said
};
struct TransportKind {
  const char* name;
  // Joins the job; waits until all ranks have.
  Status (*open)(const TransportOptions& options, std::unique_ptr<Transport>* transport);
  // Makes what ranks of a job share; null when a job of this kind needs nothing made.
  Status (*create_job)(int32_t size, uint64_t arena_bytes, int* fd);
};
const TransportKind* FindTransport(std::string_view name);  // null: not linked in

struct TransportRegistration {
  explicit TransportRegistration(const TransportKind& kind);
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_TRANSPORT_H_
