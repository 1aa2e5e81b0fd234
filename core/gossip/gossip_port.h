// One rank's part in models averaged in pairs (core/gossip) as the threads of its process meet it:
// a lock, a clock, sleep, and the choice of partners.
//
// Nothing waits but Finish. Any thread; one at a time is meant to train.
#ifndef COVEY_CORE_GOSSIP_GOSSIP_PORT_H_
#define COVEY_CORE_GOSSIP_GOSSIP_PORT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/group_barrier.h"
#include "core/base/status.h"
#include "core/base/tensor.h"
#include "core/gossip/gossip.h"
#include "core/gossip/steps.h"
#include "core/transport/event_count.h"
#include "core/transport/transport.h"

namespace covey {

class GossipPort {
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

  // `transport` has words and outlives the port, as does `group`, of which this rank is a member.
  GossipPort(Bundle bundle, const Group* group, Transport* transport);
  virtual ~GossipPort() = default;

  size_t BlockBytes() const { return memory_.BlockBytes(); }
  // `offsets`: where each member's block lies in its region. All members have agreed.
  void Open(const std::vector<uint64_t>& offsets);

  const RoundLayout& layout() const { return memory_.layout(); }
  const Group& group() const { return *group_; }

  // The model that this rank begins with. Once, before anything else; all begin.
  void Begin(std::span<const void* const> model);
  // `model` has become what it is by one step of this rank. When its local steps are over, hands
  // that in, averages with a partner when it is this rank's turn, and writes what it has then to
  // `model`. After a Finish that has not come to its end the rank trains alone, if all others have
  // finished and one has not read the mean yet, and none of its progress is lost.
  Met Step(std::span<void* const> model) { return CountStep() ? Exchange(model) : Met{}; }
  // The same in two: whether anything is to be done with the model of the step; if so, that.
  bool CountStep();
  Met Exchange(std::span<void* const> model);
  // As Gossip::Peek.
  bool Peek(int32_t member, std::span<void* const> to);
  // As Gossip::SeenMean.
  bool SeenMean(std::span<void* const> model);
  // Waits until all that live have finished; then `model` is the mean of all, the same bits on each
  // rank, and all may train on. kTimeout: the deadline is over, and it goes on when called again;
  // with a peer: max_wait is, the message names the missing ranks, and `model` is this rank's own.
  Status Finish(std::span<void* const> model, Time deadline) {
    return Gather(model, deadline, &Gossip::Mean);
  }
  // The same, but `model` is this rank's own then: all its steps, with what others have made of it.
  Status Settle(std::span<void* const> model, Time deadline) {
    return Gather(model, deadline, &Gossip::OwnModel);
  }

  // Waits in progress and to come end with kAborted.
  void Interrupt();
  // Nothing but CanBeFreed may be called afterwards.
  void Close();
  bool CanBeFreed();
  Gossip::Counters counters();
  using Totals = QuantizedCounters;
  Totals totals();
  uint64_t offset() const { return offset_; }  // of this rank's block in its region

 protected:
  using Look = std::function<Looked(Time now)>;

  // Until `look` returns an end, or as WaitForEvent says. The simulator has another.
  virtual Status WaitFor(const Look& look, Time deadline);

  MonotonicClock monotonic_;
  Clock* clock_ = &monotonic_;
  std::atomic<bool> stop_{false};

 private:
  using Phase = GroupBarrier::Phase;
  using Taking = Gossip::Taking;
  Status Gather(std::span<void* const> model, Time deadline, Taking take);
  bool TrainsDuringFinish(std::span<void* const> model);
  void Meet();
  void GoOn(std::span<void* const> model);
  Status Await(std::vector<int32_t> (Gossip::*missing)(), Time deadline);
  Looked LookFor(std::vector<int32_t> (Gossip::*missing)(), Time now);
  void HearOfLosses();

  Bundle bundle_;
  const Group* group_;
  Transport* transport_;
  SharedAtomics* words_;
  PairMemory memory_;
  uint64_t offset_ = 0;

  std::mutex mutex_;
  // Protected by mutex_.
  std::unique_ptr<Gossip> gossip_;
  std::unique_ptr<GossipSteps> steps_;
  // Of the thread that trains.
  GroupBarrier barrier_;
  Taking take_ = nullptr;    // the function it finishes with
  bool has_learnt_ = false;  // since it has taken that
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_GOSSIP_PORT_H_
