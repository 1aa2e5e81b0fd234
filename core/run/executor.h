// Moves every exchange that has begun, as far as its peers' ticks allow (rule N9).
//
// Called with the progress lock held; never blocks, never calls a framework. It does not decide
// what may begin (that is core/agree) nor which algorithm runs (core/plan/selector.h, a pure
// function handed in).
//
// Invariants:
//  1. User memory is written only after every member's begin is known and all begins agree (rule
//     N4).
//  2. An exchange ends exactly once, and its Outcome is the same on all members, except that after
//     a loss some may be done and others aborted (rule N11).
//  3. An exchange is aborted only when it waits for a tick that a lost rank will never give, or a
//     peer said so; and it ends only when no peer touches this rank's memory any more.
#ifndef COVEY_CORE_RUN_EXECUTOR_H_
#define COVEY_CORE_RUN_EXECUTOR_H_

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "core/device/launch_order.h"
#include "core/device/switchboard.h"
#include "core/run/coder.h"
#include "core/run/exchange.h"
#include "core/run/mover.h"
#include "core/run/store_tuner.h"
#include "core/transport/transport.h"

namespace covey {

class Executor {
 public:
  struct Options {
    const Kernels* kernels = nullptr;
    uint64_t cache_bytes = 0;  // of the last-level cache
    // A longer input in the arena is not staged at its begin: it is likely reduced where it lies.
    uint64_t late_above = 0;
    Clock* clock = nullptr;  // outlives the executor
    // Builds the schedule of a problem: the selector bound to this job's settings.
    Schedule (*plan)(const void* settings, const Problem& problem) = nullptr;
    const void* plan_settings = nullptr;
    uint64_t device_arena_bytes = 0;  // of the arena, for messages of device tensors
    bool device_commons = true;       // devices of a host may reduce each other's memory
    DevicePath device_path = DevicePath::kAuto;
    uint64_t circuit_bytes = 0;      // less than this goes through the host
    Time circuit_patience = kNever;  // with one that was aborted
    Log* log = nullptr;              // outlives the executor; null: nothing is said
  };
  struct Counters {
    uint64_t done = 0, voided = 0, aborted = 0;
    uint64_t moved_bytes = 0;  // payload of done exchanges
    uint64_t wire_bytes = 0;   // the same, encoded where there is a codec
    uint64_t direct = 0;       // done without staging
    uint64_t in_common = 0;    // done by the devices of a host among themselves
    uint64_t by_circuit = 0;   // done by the devices themselves
    uint64_t again = 0;        // begun for a circuit that not all were ready for
    Time wait_begin_ns = 0;    // summed over exchanges: own begin to last member's begin
    Time run_ns = 0;           // summed: last begin to end
  };

  // `transport` outlives the executor.
  Executor(Options options, Transport* transport)
      : options_(std::move(options)),
        transport_(transport),
        mover_(options_.kernels, transport, transport),
        coder_(options_.kernels),
        board_(options_.device_path, options_.circuit_patience, transport->rank(), options_.log),
        order_(transport->rank()),
        shares_with_all_(transport->SharesWithAll()) {}

  // `request` and `channel` are borrowed until the exchange appears in ended(). entry 0 begins
  // void.
  void Begin(Request* request, Channel* channel, uint64_t occurrence, uint32_t entry, void* owner,
             Time now);

  // One pass over all exchanges. True if anything moved.
  bool Progress(Time now);
  bool Idle() const { return active_.empty(); }
  // From now on exchanges may be of tensors on this device, which outlives the executor.
  void AddDevice(DeviceType type, Device* device);
  // As of the last Progress: an exchange waits for a device. Devices ring nobody, so it is for the
  // caller to come again.
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
  const Ferry* ferry(DeviceType type) const { return ferries_[static_cast<size_t>(type)].get(); }

 private:
  // loss.cc: Close, OnLoss, AbortAll, AwaitedPeers, AllHaveLeft, AbortIfInVain, Abort.
  // device_side.cc: AddDevice, Board, HasInput, MayRun, DidRun, Land.
  // commons_side.cc: CommonOf, BoardInCommon, RoomWord, JudgeRooms, FindRooms, ReduceInCommon,
  // HasReduced.
  // circuit_side.cc: Dial, OfferCircuit, JudgeCircuit, RunCircuit, LeaveCircuit.
  bool Advance(Exchange* exchange, Time now);
  void Board(Exchange* exchange);
  bool HasInput(Exchange* exchange);
  bool MayRun(Exchange* exchange, const Step& step);
  bool DidRun(Exchange* exchange, const Step& step);
  bool Land(Exchange* exchange, bool done);
  bool IsHere(Exchange* exchange, size_t end);
  void LoseDevice(Exchange* exchange);
  Status DeviceLoss(const Exchange& exchange) const;
  CommonRooms* CommonOf(const Exchange& exchange) const;
  void BoardInCommon(Exchange* exchange);
  uint64_t RoomWord(const Exchange& exchange) const;
  bool JudgeRooms(Exchange* exchange);
  bool FindRooms(const Exchange& exchange);
  bool ReduceInCommon(Exchange* exchange);
  bool HasReduced(Exchange* exchange);
  void Dial(Exchange* exchange);
  void OfferCircuit(Exchange* exchange);
  bool JudgeCircuit(Exchange* exchange, Time now);
  void Settle(Exchange* exchange);
  bool RunCircuit(Exchange* exchange, Time now);
  bool LooksForLost(Exchange* exchange);
  bool AdvanceLaunch(Exchange* exchange, Time now);
  bool Launch(Exchange* exchange);
  void FailCircuit(Exchange* exchange, Time now);
  bool LeaveCircuit(Exchange* exchange, Rank lost, const std::string& how);
  bool IsLate(const Exchange& exchange, size_t index) const;
  bool StagesInput(const Exchange& exchange) const;
  bool LearnsStores(const Exchange& exchange) const;
  void Publish(Exchange* exchange, Time now);
  void PushBegin(Exchange* exchange);
  std::vector<Rank> ReadersOf(const Exchange& exchange) const;
  void Push(const Exchange& exchange, const Step& step);
  bool JudgeBegins(Exchange* exchange, Time now);
  void ChooseSchedule(Exchange* exchange);
  bool RunSteps(Exchange* exchange, Time now);
  bool Await(Exchange* exchange, uint32_t tick, int peer);
  bool AllHaveLeft(const Exchange& exchange);
  void AbortIfInVain(Exchange* exchange, uint64_t target, size_t index);
  bool Fetch(Exchange* exchange, const Step& step);
  void Signal(const Exchange& exchange, uint32_t tick);
  void End(Exchange* exchange, Outcome outcome, Status why, Time now);
  void Abort(Exchange* exchange, Rank lost, const std::string& how);

  struct ProblemHash {
    size_t operator()(const Problem& p) const;
  };

  Options options_;
  Transport* transport_;
  Mover mover_;
  Coder coder_;
  Switchboard board_;
  LaunchOrder order_;
  Circuits* circuits_ = nullptr;  // of the device of the type
  DeviceType circuits_of_ = DeviceType::kCpu;
  const bool shares_with_all_;
  StoreTuner stores_;
  std::vector<Exchange*> active_;
  bool awaits_device_ = false;
  std::vector<Exchange*> ended_;
  std::vector<Exchange*> free_;
  std::vector<std::unique_ptr<Exchange>> all_;
  std::unordered_map<Problem, std::unique_ptr<Schedule>, ProblemHash> schedules_;
  std::vector<PeerLoss> lost_;
  std::array<std::unique_ptr<Ferry>, 3> ferries_;  // by DeviceType; null: there is no such device
  std::vector<std::byte*> rooms_;                  // of FindRooms
  Counters counters_;
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_EXECUTOR_H_
