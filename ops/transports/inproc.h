// The transport between ranks that are objects in one process, for tests and the simulator.
//
// Memory is plain memory, time is virtual, and one seed decides how long every message is under
// way. Everything happens on one thread: the owner of the network decides which rank runs next, so
// a run is repeatable. An InprocWatcher may run other ranks in the middle of one's pass.
//
// Within the contract of core/transport/transport.h it does what machines do rarely: senders are
// heard in any order, a mailbox says it is full, a stored word is seen late (but no later than any
// message sent after it, and by all ranks at once), freed memory is handed out again at once, the
// news of a loss comes to each rank at its own time.
#ifndef COVEY_OPS_TRANSPORTS_INPROC_H_
#define COVEY_OPS_TRANSPORTS_INPROC_H_

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/base/rng.h"
#include "core/transport/transport.h"

namespace covey {

class VirtualClock final : public Clock {
 public:
  Time Now() override { return now_; }
  void Advance(Time by) { now_ += by; }

 private:
  Time now_ = kSecond;  // not 0: zero means "never" in places
};

// The events that the owner of a network learns of its ranks while they run.
class InprocWatcher {
 public:
  virtual ~InprocWatcher() = default;
  // Rank r is about to use its transport: a point where the owner may run other ranks.
  virtual void OnPoint(Rank r) = 0;
  // A peer has rung for rank r: because of a message, or of a tick.
  virtual void OnRing(Rank r, bool mail) = 0;
};

class InprocNetwork {
 public:
  struct Options {
    int32_t size = 1;
    uint64_t seed = 1;
    size_t region_bytes = 8 << 20;
    bool in_rank_order = false;  // senders are heard so, instead of as drawn
    bool can_read_peers = true;
    uint64_t blind_ranks = 0;                 // bit r: rank r cannot read its peers all the same
    Time longest_delay = 100 * kMicrosecond;  // of a message, drawn uniformly
    size_t mailbox_messages = 4;              // small, so that "no room now" happens
    uint64_t refusal_percent = 0;             // of TrySends that find no room though there is some
    uint64_t clog_percent = 0;                // of messages that hold up their link
    Time longest_clog = 0;                    // for so long at most
    Time longest_store_delay = 0;             // of a StoreRelease, and of the Wake after it
    Time longest_news_delay = 0;              // from Kill to PollPeers
    InprocWatcher* watcher = nullptr;         // null = none; outlives the network
  };
  explicit InprocNetwork(Options options);
  ~InprocNetwork();

  VirtualClock& clock() { return clock_; }
  Rng& rng() { return rng_; }
  Transport& transport(Rank r);

  // The rank is gone: peers learn it from PollPeers. Its memory stays, as that of a killed process
  // does.
  void Kill(Rank r, const std::string& how);
  bool IsDead(Rank r) const { return dead_[static_cast<size_t>(ToInt(r))]; }

  // For transcripts: messages from -> to stay under way until released.
  void Hold(Rank from, Rank to, bool held);

  // For an owner that lets ranks sleep: whether a message lies before rank r, and when the next
  // thing under way arrives anywhere (kNever: nothing is).
  bool HasArrived(Rank r);
  Time NextArrival();
  // Stores whose time has come are seen from now on. LoadAcquire does it by itself.
  void Settle();

  // For checkers.
  bool IsBeingRung(Rank r) const;       // a Wake for rank r is under way
  size_t shared_pieces(Rank r) const;   // pieces of AllocShared in use
  size_t messages_under_way() const;    // to ranks that live
  bool IsUnderWay(Rank from, Rank to);  // any message
  uint64_t accepted(Rank r) const;      // messages taken from rank r, ever
  uint64_t received(Rank r) const;      // messages given to rank r, ever

 private:
  class Node;
  class Words;
  friend class Node;
  struct Mail {
    Time arrives;
    Bytes bytes;
  };
  struct Link {
    std::deque<Mail> mail;
    Time clogged_until = 0;
    bool held = false;
  };

  Link& LinkOf(Rank from, Rank to);
  bool Arrived(const Link& link);
  Time Draw(Time longest);

  Options options_;
  VirtualClock clock_;
  Rng rng_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Link> links_;  // [from * size + to]
  std::vector<bool> dead_;
  std::vector<std::string> how_;
};

}  // namespace covey
#endif  // COVEY_OPS_TRANSPORTS_INPROC_H_
