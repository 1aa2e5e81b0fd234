// One rank's part in models averaged in pairs (core/gossip) as the threads of its process meet it:
// a lock, a clock, waiting, and the choice of partners.
//
// Two kinds: GossipPort, where all members share memory (core/gossip/gossip_port.h), and
// HostsPort, where they lie on several hosts (core/gossip/hosts_port.h). The trainer's view is the
// same for both, and is here.
//
// Nothing waits but Finish. Any thread; one at a time is meant to train.
#ifndef COVEY_CORE_GOSSIP_PAIRS_PORT_H_
#define COVEY_CORE_GOSSIP_PAIRS_PORT_H_

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/group_barrier.h"
#include "core/base/status.h"
#include "core/base/tensor.h"
#include "core/gossip/gossip.h"
#include "core/gossip/steps.h"
#include "core/transport/transport.h"
#include "core/transport/window.h"

namespace covey {

class ChannelMux;

class PairsPort {
 public:
  struct Bundle {
    std::string name;
    RoundLayout layout;
    int32_t self = 0;
    PairRule rule;
    PairCodec codec = {};
    Time max_wait = 60 * kSecond;  // in Finish
    Time longest_sleep = kSecond;  // news of a death rings no event count
    const Kernels* kernels = nullptr;
  };
  using Met = GossipSteps::Met;
  // A member's model as this rank sees it.
  struct Seen {
    // kWhole: it is copied, or was not wanted. kAsked: on another host, or of no shared memory.
    WindowState state = WindowState::kWhole;
    int64_t version = 0;     // of its trainer; of those that share no memory with all members
    bool is_behind = false;  // likewise: it has not taken up the mean that this rank has
  };

  virtual ~PairsPort() = default;

  size_t BlockBytes() const { return memory_.BlockBytes(); }
  const RoundLayout& layout() const { return memory_.layout(); }
  const Group& group() const { return *group_; }
  // With the progress lock: its messages are carried from now on, or no longer.
  virtual void Join(ChannelMux*) {}
  virtual void Part(ChannelMux*) {}

  // The model that this rank begins with. Once, before anything else; all begin.
  virtual void Begin(std::span<const void* const> model);
  // `model` has become what it is by one step of this rank. When its local steps are over, hands
  // that in, averages with a partner when it is this rank's turn, and writes what it has then to
  // `model`. After a Finish that has not come to its end the rank trains alone, if all others have
  // finished and one has not read the mean yet, and none of its progress is lost.
  Met Step(std::span<void* const> model) { return CountStep() ? Exchange(model) : Met{}; }
  // The same in two: whether anything is to be done with the model of the step; if so, that.
  bool CountStep();
  Met Exchange(std::span<void* const> model);
  // The trainer's version, for those that look at this rank.
  virtual void Tell(int64_t) {}
  // The model that `member` has given last, with the changes by others; `to` empty: its state
  // alone. Waits for no rank.
  virtual Seen Peek(int32_t member, std::span<void* const> to) = 0;
  // This rank goes on from a Finish in vain, with the mean of Gossip::SeenMean. Members that share
  // no memory with it are asked, and have a while to answer.
  bool GoOnWithout(std::span<void* const> model);
  // Waits until all that live have finished as often (gossip-P18); then `model` is the mean of all,
  // the same bits on each rank, and all may train on. kTimeout: the deadline is over, and it goes
  // on when called again; with a peer: max_wait is, the message names the missing ranks, and
  // `model` is this rank's own. `is_last`: this rank leaves afterwards; all that live have come to
  // their last one then.
  Status Finish(std::span<void* const> model, Time deadline, bool is_last = false);
  // The same, but `model` is this rank's own then: all its steps, with what others have made of it.
  // A Finish of others lasts until a later epoch ends (gossip-P19).
  Status Settle(std::span<void* const> model, Time deadline) {
    return Gather(model, deadline, Result::kOwn);
  }

  // Waits in progress and to come end with kAborted.
  virtual void Interrupt() = 0;
  // Nothing but CanBeFreed and Part may be called afterwards.
  virtual void Close() = 0;
  virtual bool CanBeFreed() = 0;
  Gossip::Counters counters();
  using Totals = QuantizedCounters;
  virtual Totals totals();
  // The place of this rank's block in its region; kNoOffset: it has none.
  uint64_t offset() const { return offset_; }

 protected:
  using Phase = GroupBarrier::Phase;
  enum class Result : uint8_t { kMean, kOwn };

  // `near` members share memory. `group` outlives the port; this rank is a member of it.
  PairsPort(Bundle bundle, const Group* group, int32_t near);

  virtual Status Gather(std::span<void* const> model, Time deadline, Result result) = 0;
  virtual bool SeenMean(std::span<void* const> model);
  // There is something new for members on other hosts. Without the lock.
  virtual void Stir() {}
  // ---- With the lock held.
  // With which it finishes.
  uint64_t Number() const { return FinishNumber::Of(times_, result_ == Result::kOwn); }
  // After a Finish that has not come to its end: takes it up again, without waiting. False: `model`
  // is trained on with the others.
  virtual bool TrainsDuringFinish(std::span<void* const> model) = 0;
  virtual void HearOfLosses() {}
  void GoOn(std::span<void* const> model);
  // ---- The thread that trains calls these.
  void EnterFinish() { is_in_finish_ = true; }
  // It has come to its end, or this rank goes on without that.
  void LeaveFinish() { times_ += std::exchange(is_in_finish_, false) ? 1 : 0; }

  Bundle bundle_;
  const Group* group_;
  PairMemory memory_;
  uint64_t offset_ = Transport::kNoOffset;
  MonotonicClock monotonic_;
  Clock* clock_ = &monotonic_;

  std::mutex mutex_;
  // Protected by mutex_.
  std::unique_ptr<Gossip> gossip_;
  std::unique_ptr<GossipSteps> steps_;
  // Only the thread that trains uses these.
  GroupBarrier barrier_;
  Result result_ = Result::kMean;  // of the last call that finishes
  bool has_learnt_ = false;        // since it has taken that, or handed its model in
  bool is_in_finish_ = false;      // has called Finish, and has not left that
  uint64_t times_ = 1;             // its finishes, with this one or the next
  uint64_t fewest_ = 0;            // the lowest FinishNumber at the end of the last epoch

 private:
  Met ExchangeLocked(std::span<void* const> model);
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_PAIRS_PORT_H_
