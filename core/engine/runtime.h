// The walk of a tensor through one rank: queue, negotiator, executor, completion. Owns every stage;
// the only file that includes all of them.
//
// RunOnce drives negotiated exchanges; Repeat is its shortcut for a small sum that comes again
// while nothing else is in flight. Asynchronous groups (core/partial, core/gossip) are advanced by
// the threads that wait for them, between hosts by RunOnce, through ChannelMux. No thread, no lock,
// no clock of its own: core/engine/engine.h runs it in production, the simulator runs N of them in
// one process under a virtual clock. All functions are the holder of the progress lock's unless
// said otherwise.
#ifndef COVEY_CORE_ENGINE_RUNTIME_H_
#define COVEY_CORE_ENGINE_RUNTIME_H_

#include <memory>
#include <string>
#include <vector>

#include "core/agree/coordinator.h"
#include "core/agree/join.h"
#include "core/agree/negotiator.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/engine/landing_allocator.h"
#include "core/engine/observer.h"
#include "core/engine/stall.h"
#include "core/engine/tensor_queue.h"
#include "core/engine/timeline.h"
#include "core/plan/selector.h"
#include "core/replicated/channel_mux.h"
#include "core/run/executor.h"

namespace covey {

class Runtime {
 public:
  struct Options {
    size_t segment_bytes = 64 * 1024;
    size_t cache_capacity = 4096;
    Time stall_warning = 10 * kSecond;
    Time recheck = kSecond;  // the longest that RunOnce is left alone
    FusionRules fusion;
    RetireRules retire;  // where memory that is given back may be used again
    std::string agreed_text;
    SelectorSettings selector;
    // From `selector` and a problem to this rank's schedule; tests put a verifier in between.
    Schedule (*plan)(const SelectorSettings& settings, const Problem& problem) = Plan;
    uint64_t cache_bytes = uint64_t{32} << 20;  // of the last-level cache
    uint64_t landing_bytes = 0;                 // that a stream's slots take turns over, if it may
    std::array<Device*, 3> devices{};           // by DeviceType; null: none
    uint64_t device_arena_bytes = 0;            // of the arena, for messages of device tensors
    // See Executor::Options.
    uint64_t device_ipc_bytes = 0;
    DevicePath device_path = DevicePath::kAuto;
    uint64_t communicator_bytes = 0;
    Time communicator_patience = kNever;
    const Kernels* kernels = nullptr;
    Clock* clock = nullptr;        // outlives the runtime
    Log* log = nullptr;            // outlives the runtime
    Observer* observer = nullptr;  // null: no observer; outlives the runtime
  };
  struct Counters {
    uint64_t passes = 0;                // RunOnce calls
    uint64_t coordinator_messages = 0;  // sent by this rank (agree-N13)
    uint64_t malformed_messages = 0;
    uint64_t ended = 0, failed = 0;  // operations
    // Of Repeat: begun without a pass; and ended without one.
    uint64_t repeats_begun = 0, repeats_done = 0;
  };

  // `transport` and `queue` outlive the runtime.
  Runtime(Options options, Transport* transport, TensorQueue* queue);
  ~Runtime();

  // One pass. Returns when it wants to run again at the latest (kNever: only when something
  // happens); *moved says whether anything happened.
  Time RunOnce(bool* moved);
  // When the last pass began, by the runtime's clock.
  Time pass_began() const { return pass_began_; }

  // Repeat carries an operation out without a pass where it can, or begins it (runtime_repeat.cc).
  // REQUIRES: MayRepeat, and no other operation is in flight (engine-E6). Returns how long it has
  // waited for peers; waits too short for a look at the clock count as 0. `yields`: with more ranks
  // than cores it lets others run before it looks again, at most so often; 0: there are no more.
  bool MayRepeat();
  Time Repeat(Operation* operation, int yields);

  // See Executor::AwaitsWord.
  bool AwaitsWord() const { return executor_.AwaitsWord(); }
  // Nothing begun and nothing to send: only a submission or a message can make work.
  bool Idle() const { return executor_.Idle() && pending_.empty() && channels_.Idle(); }

  // Ends every operation in flight with `why` (shutdown).
  void AbortAll(const Status& why);

  // Tensors may lie on this device from now on; it outlives the runtime.
  void AddDevice(DeviceType type, Device* device);

  // Any thread may set it before the first RunOnce or under the progress lock; null = off.
  void SetTimeline(Timeline* timeline) { timeline_ = timeline; }

  // Questions of peers ("where are you?") waiting for Tell; see core/engine/stall.h.
  Stall& stall() { return stall_; }

  // The messages of replicas.
  ChannelMux& channels() { return channels_; }

  const Counters& counters() const { return counters_; }
  // The peers that are lost, in the order in which this rank has seen it.
  const std::vector<Rank>& lost() const { return lost_; }
  const Executor& executor() const { return executor_; }
  const Negotiator& negotiator() const { return negotiator_; }
  size_t landing_blocks() const { return blocks_->count(); }
  size_t unsent() const { return pending_.size(); }  // messages that found no room yet
  std::string StatusText();                          // covey_status
  // The ranks that `request`, which is in flight, waits for, as far as is known here:
  // covey_awaited. Where only its coordinator can know, that is asked.
  std::vector<int32_t> Awaited(const Request& request);

 private:
  void NoteAwaited();
  void TakeIdle();
  void TakeSubmitted(Time now, bool* moved);
  void Submit(Request* request);
  void ReceiveAll(Time now, bool* moved);
  void Route(Rank from, Message message, Time now);
  void WatchPeers(Time now);
  void CloseIfLost(const Stream& stream);
  void TakeNow(Operation* operation);
  bool AllBegin(Exchange* exchange, int yields, Time* waited);
  void Drop(const Message& message);
  void StartAndProgress(Time now, bool* moved);
  void HandleEnded(Exchange* exchange, Time now);
  void FinishEnded(bool* moved);
  void SendAll(bool* moved);
  void WatchStalls(Time now);
  const Exchange* ExchangeOf(const Stream& stream) const;

  Options options_;
  Transport* transport_;
  TensorQueue* queue_;
  Timeline* timeline_ = nullptr;
  std::unique_ptr<LandingAllocator> blocks_;
  Negotiator negotiator_;
  Coordinator coordinator_;
  Join join_;
  Executor executor_;
  Stall stall_;
  ChannelMux channels_;
  Counters counters_;
  Time pass_began_ = 0;
  Time next_peer_poll_ = 0;
  Time next_stall_look_ = 0;
  uint32_t repeats_ = 0;     // since the last pass
  uint64_t waits_seen_ = 0;  // of the queue, and
  uint64_t holds_seen_ = 0;  // of the negotiator, when the awaited operations were last noted

  std::vector<Operation*> taken_;
  std::vector<TensorQueue::Ended> finished_;
  Bytes received_;
  std::vector<Envelope> coordinator_outbox_;
  struct Unsent {
    Rank to;
    Bytes bytes;
    bool is_report;
  };
  std::vector<Unsent> pending_;  // no room in the mailbox yet
  std::vector<Rank> lost_;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_RUNTIME_H_
