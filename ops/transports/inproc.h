// The transport between ranks that are objects in one process: what tests and the simulator run on.
//
// Memory is plain memory, time is virtual, and one seed decides how long every message is under
// way. Everything happens on one thread: whoever owns the network decides which rank runs next, so
// a run is repeatable.
#ifndef COVEY_OPS_TRANSPORTS_INPROC_H_
#define COVEY_OPS_TRANSPORTS_INPROC_H_

#include <deque>
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/base/rng.h"
#include "core/run/transport.h"

namespace covey {

class VirtualClock final : public Clock {
 public:
  Time Now() override { return now_; }
  void Advance(Time by) { now_ += by; }

 private:
  Time now_ = kSecond;  // not 0: zero means "never" in places
};

class InprocNetwork {
 public:
  struct Options {
    int32_t size = 1;
    uint64_t seed = 1;
    size_t region_bytes = 8 << 20;
    bool can_read_peers = true;
    Time longest_delay = 100 * kMicrosecond;  // of a message, drawn uniformly
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

 private:
  class Node;
  friend class Node;
  struct Mail {
    Time arrives;
    Bytes bytes;
  };

  std::deque<Mail>& Link(Rank from, Rank to);

  Options options_;
  VirtualClock clock_;
  Rng rng_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::deque<Mail>> links_;  // [from * size + to]
  std::vector<bool> dead_;
  std::vector<std::string> how_;
};

}  // namespace covey
#endif  // COVEY_OPS_TRANSPORTS_INPROC_H_
