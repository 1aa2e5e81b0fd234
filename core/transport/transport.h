// The connection of a rank to its peers: a mailbox, memory they share, news of their deaths, and a
// place to sleep.
//
// A transport moves bytes and knows nothing of collectives. It is four interfaces, a header each:
// Mailbox, SharedRegions, PeerReader, Parking. Unless said otherwise a call comes from the thread
// that holds the progress lock (see core/engine/engine.h); none of them blocks except Park().
//
// Contract:
//  transport-T1. Mailbox: per ordered pair once, whole, in order; between pairs any order.
//  transport-T2. Shared memory: every rank owns one region; Base(r) is where r's region is mapped
//      here. A rank that LoadAcquires a stored value sees all that was written before its
//      StoreRelease; of a mirror (Shares is false), only what it gave to Push for that peer, and
//      only after Wake of it.
//  transport-T3. After Wake(peers) every listed peer that was parked runs again; a peer that is
//      about to park re-checks.
//  transport-T4. PollPeers reports each lost peer once; its stores are all visible by then.
#ifndef COVEY_CORE_TRANSPORT_TRANSPORT_H_
#define COVEY_CORE_TRANSPORT_TRANSPORT_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/types.h"
#include "core/transport/mailbox.h"
#include "core/transport/parking.h"
#include "core/transport/peer_loss.h"
#include "core/transport/peer_reader.h"
#include "core/transport/shared_regions.h"

namespace covey {

// A user of one concern takes its interface. SharedRegions comes first: a call of it through a
// Transport costs no adjustment of the pointer.
class Transport : public SharedRegions, public Mailbox, public PeerReader, public Parking {
 public:
  // Among the ranks of this host; -1 = as the launcher said.
  virtual int local_rank() const { return -1; }
  virtual int local_size() const { return -1; }

  // False: only the thread that opened it may drive (core/engine/engine.h).
  virtual bool AnyThread() const { return true; }
  // Whether nothing wakes a sleeper that waits for the network: it has to look again by itself.
  virtual bool PollsNetwork() const { return false; }

  // Each peer that is lost, once.
  virtual std::vector<PeerLoss> PollPeers() = 0;
  // Where there are words: whether PollPeers has reported the peer. Any thread.
  virtual bool IsLost(Rank) const { return false; }
};

// A kind of transport, found by name.
struct TransportOptions {
  Rank rank = kNoRank;
  int32_t size = 0;
  int shm_fd = -1;            // the job's shared memory; -1 = none: only a job of one
  int book_fd = -1;           // of a network: the book of the job's ranks (peer_book.h); -1 = none
  int listen_fd = -1;         // of a network: listens at this rank's address of the book; -1 = none
  Time lease = 0;             // of a network: a peer out of reach for so long is lost
  std::string trust_network;  // of a network: those without strangers (trusted_networks.h)
  int32_t tcp_streams = 0;    // of tcp: connections of a pair for large puts; 0: by the cores
  int launcher_pid = 0;  // where to find it when the descriptor was closed on the way; 0 = nowhere
  uint64_t arena_bytes = 0;
  bool shares_host = true;   // of a network: ranks of one host share its memory where they can
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

// By member, the host it lies on, numbered from 0 in the order of their first members: equal on all
// ranks. Empty: each has a host of its own.
std::vector<int32_t> HostsOf(const SharedRegions& regions, std::span<const Rank> members);

struct TransportRegistration {
  explicit TransportRegistration(const TransportKind& kind);
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_TRANSPORT_H_
