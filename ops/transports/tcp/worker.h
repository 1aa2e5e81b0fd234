// The threads of a link that move its peers' lanes: one for each place of a lane, begun when the
// first lane of this place opens, ended with the crew.
//
// A worker sleeps until a socket of its lanes is ready or a part has been given. The link's thread
// calls everything but Ring; Remove waits for a step of the worker at most.
#ifndef COVEY_OPS_TRANSPORTS_TCP_WORKER_H_
#define COVEY_OPS_TRANSPORTS_TCP_WORKER_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ops/transports/tcp/lane.h"
#include "ops/transports/tcp/poller.h"

namespace covey::tcp {

// Wakes the link's thread.
class Bell {
 public:
  Bell();
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  int fd() const { return fd_; }  // readable until Hear
  void Ring();
  void Hear();

 private:
  int fd_ = -1;
  std::atomic<bool> rung_{false};
};

class Worker {
 public:
  explicit Worker(Bell* news);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  bool is_sound() const { return poller_.is_sound() && gifts_.fd() >= 0; }
  // The lane stays the caller's. After Remove it is not touched.
  void Add(Lane* lane);
  void Remove(Lane* lane);
  // A lane has been given a part.
  void Kick() { gifts_.Ring(); }

 private:
  static constexpr uint64_t kGift = UINT64_MAX - 1;
  void Run();
  void ServeGifts();
  void Serve(uint64_t key);
  void Send(uint64_t key, Lane* lane);

  Bell* const news_;
  Bell gifts_;
  Poller poller_;
  std::atomic<bool> stops_{false};
  std::mutex busy_;  // of what follows, and of the lanes; held for a step
  std::map<uint64_t, Lane*> lanes_;
  uint64_t next_key_ = 0;
  std::thread thread_;
};

class Crew {
 public:
  Bell& bell() { return bell_; }
  // The worker of this place; null: the system has no descriptors for it.
  Worker* Of(size_t place);

 private:
  Bell bell_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace covey::tcp
#endif  // COVEY_OPS_TRANSPORTS_TCP_WORKER_H_
