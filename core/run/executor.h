// Moves every exchange that has begun, as far as its peers' ticks allow (agree-N9).
//
// Called with the progress lock held; never blocks, never calls a framework. It does not decide
// what may begin (that is core/agree) nor which algorithm runs (core/plan/selector.h, a pure
// function handed in).
//
// Invariants:
//  1. User memory is written only after every member's begin is known and all begins agree (rule
//     agree-N4).
//  2. An exchange ends exactly once, and its Outcome is the same on all members, except that after
//     a loss some may be done and others aborted (agree-N11).
//  3. An exchange is aborted only when it waits for a tick that a lost rank will never give, or a
//     peer said so; and it ends only when no peer touches this rank's memory any more.
#ifndef COVEY_CORE_RUN_EXECUTOR_H_
#define COVEY_CORE_RUN_EXECUTOR_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/run/begin_stage.h"
#include "core/run/codec_steps.h"
#include "core/run/communicator_path.h"
#include "core/run/data_path.h"
#include "core/run/data_steps.h"
#include "core/run/device_staging.h"
#include "core/run/exchange.h"
#include "core/transport/transport.h"

namespace covey {

class Executor {
 public:
  struct Options {
    const Kernels* kernels = nullptr;
    uint64_t cache_bytes = 0;  // of the last-level cache
    // A longer input in the arena is not staged at its begin: it is likely reduced where it lies.
    uint64_t unstaged_above = 0;
    bool places_small = true;  // BeginStage::Options, as the next
    bool stages_batches = true;
    Clock* clock = nullptr;  // outlives the executor
    SchedulePlanner planner;
    DeviceStaging::Options staging;
    CommunicatorPath::Options communicators;
  };
  struct Counters {
    uint64_t done = 0, voided = 0, aborted = 0;
    uint64_t moved_bytes = 0;      // payload of done exchanges
    uint64_t wire_bytes = 0;       // the same, encoded where there is a codec
    uint64_t direct = 0;           // done without staging
    uint64_t by_ipc = 0;           // done by the devices of a host among themselves
    uint64_t by_communicator = 0;  // done by the devices themselves
    uint64_t again = 0;            // begun for a communicator that not all were ready for
    Time wait_begin_ns = 0;        // summed over exchanges: own begin to last member's begin
    Time run_ns = 0;               // summed: last begin to end
  };

  // `transport` outlives the executor.
  Executor(const Options& options, Transport* transport);

  // `request` and `channel` are borrowed until the exchange appears in ended(). entry 0 begins
  // void.
  void Begin(Request* request, Channel* channel, uint64_t occurrence, uint32_t entry, void* owner,
             Time now);

  // A small sum that is done may be carried out again without what Begin finds out anew: an equal
  // request, its stream's next, in the same landing space. repeat.cc; run-X6.
  //
  // Whether the exchange, which has ended, may; noted in it.
  bool NoteRepeats(Exchange* exchange);
  // The channel's last exchange, to begin once more, for tensors that may lie elsewhere. Null: it
  // was of another request, or may not.
  Exchange* TakeRepeat(Request* request, Channel* channel, uint64_t occurrence);
  void BeginRepeat(Exchange* exchange);
  // Whether all members have begun.
  bool AllHaveBegun(Exchange* exchange);
  // They have, `waited` after this rank, for the counters: carries it out; to be recycled. False:
  // some begin differs.
  bool FinishRepeat(Exchange* exchange, Time waited);
  // From now on it is one that has begun, like any other.
  void Resume(Exchange* exchange, void* owner, Time now);

  // One pass over all exchanges. True if anything moved.
  bool Progress(Time now);
  bool Idle() const { return active_.empty(); }
  // Whether one exchange runs and waits for a word of a peer that is not there yet: another pass
  // would move nothing.
  bool AwaitsWord() const;
  // From now on exchanges may be of tensors on this device, which outlives the executor.
  void AddDevice(DeviceType type, Device* device);
  // As of the last Progress: an exchange waits for a device. Devices ring no thread, so the caller
  // has to come again.
  bool AwaitsDevice() const { return awaits_device_; }

  // Ended exchanges, to be handled and then given back with Recycle().
  std::vector<Exchange*>& ended() { return ended_; }
  void Recycle(Exchange* exchange);

  void OnLoss(const PeerLoss& loss);
  // Nothing will begin any more over this rank's landing block `block`, because `lost` has gone:
  // members that have begun must not wait for it.
  void Close(const Group& group, uint64_t block, Rank lost);
  void AbortAll(const Status& why);

  // Exchanges under way, oldest first, and the members each waits for (ranks; empty: none, it only
  // runs).
  const std::vector<Exchange*>& active() const { return active_; }
  std::vector<Rank> AwaitedPeers(const Exchange& exchange) const;
  const Counters& counters() const { return counters_; }
  const DeviceTransfers* transfers(DeviceType type) const { return staging_.transfers(type); }

 private:
  bool Advance(Exchange* exchange, Time now);
  bool RunSteps(Exchange* exchange, Time now);
  bool RunStep(Exchange* exchange, const Step& step);
  bool Fetch(Exchange* exchange, const Step& step);
  bool Passes(Exchange* exchange, DataPath::Answer answer);
  void Signal(const Exchange& exchange, uint32_t tick);
  void SignalSome(const Exchange& exchange, const Step& step);
  bool Await(Exchange* exchange, uint32_t tick, int peer);
  void End(Exchange* exchange, Outcome outcome, Status why, Time now);

  // Of exchanges that the devices do.
  bool GoesOnStaged(Exchange* exchange, Time now);
  bool RunCommunicator(Exchange* exchange, Time now);
  bool LooksForLost(Exchange* exchange);
  void FailCommunicator(Exchange* exchange, Time now);

  Exchange*& KeptPlace(const Request& request);

  // loss.cc, as Close, OnLoss, AbortAll and AwaitedPeers.
  bool AllHaveLeft(const Exchange& exchange);
  void AbortIfInVain(Exchange* exchange, uint64_t target, size_t index);
  void Abort(Exchange* exchange, Rank lost, const std::string& how);

  Clock* clock_;
  Transport* transport_;
  DataSteps data_steps_;
  CodecSteps codec_steps_;
  DeviceStaging staging_;
  CommunicatorPath communicators_;
  BeginStage begins_;
  const bool shares_with_all_;
  std::vector<Exchange*> active_;
  bool awaits_device_ = false;
  std::vector<Exchange*> ended_;
  std::vector<Exchange*> free_;
  std::vector<std::unique_ptr<Exchange>> all_;
  std::array<Exchange*, 64> kept_{};  // to be repeated: by Request::place, the later one stays
  std::vector<PeerLoss> lost_;
  std::vector<Rank> told_;  // in SignalSome
  Counters counters_;
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_EXECUTOR_H_
