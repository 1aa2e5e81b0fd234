// One rank of one job, put together: transport, queue, runtime, engine. A covey_runtime holds it
// while open.
//
// Construction order is destruction order reversed: the engine thread stops before what it drives
// goes away.
#ifndef COVEY_CORE_API_SESSION_H_
#define COVEY_CORE_API_SESSION_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/base/config.h"
#include "core/base/handle_table.h"
#include "core/base/log.h"
#include "core/device/device.h"
#include "core/engine/tensor_queue.h"
#include "core/engine/trainer_driver.h"
#include "core/gossip/pairs_port.h"
#include "core/method/method.h"
#include "core/partial/rounds_port.h"
#include "core/replicated/channel_waiters.h"
#include "core/transport/transport.h"

namespace covey {

class ChannelMux;
class Engine;
class Runtime;
class Stall;
class Timeline;
class WitnessDoor;

class Session {
 public:
  // Joins the job; waits until all ranks have (config.start_timeout).
  static Status Open(const Config& config, std::unique_ptr<Session>* session);
  // Ends what is in flight with kAborted, leaves the job.
  ~Session();

  const Config& config() const { return config_; }
  // That of the knob `method`.
  const MethodChoice& method() const { return method_; }
  Rank rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  Transport& transport() { return *transport_; }
  TensorQueue& queue() { return queue_; }
  Engine& engine() { return *engine_; }
  Stall& stall();
  Log& log() { return *log_; }

  // The group of these ranks (see covey_group_of). Any thread.
  Status GroupOf(std::span<const int32_t> ranks, uint64_t* key);
  // The same members as `of` (see covey_group_apart). Any thread.
  Status GroupApart(uint64_t of, std::string_view order, uint64_t* key);
  const Group* FindGroup(uint64_t key);  // null: none

  // The device of this type (not the CPU) and number, opened by the first tensor on it; one per
  // rank. Any thread.
  Status UseDevice(int32_t type, int32_t index, Device** device);

  // Rounds, by number. Room of a block in this rank's region: kNoOffset when there is none. Any
  // thread; CloseRounds while no thread uses them. Blocks go back once no member can touch them.
  uint64_t AllocBlock(size_t length_bytes);
  void FreeBlock(uint64_t offset);
  // Rounds that are not open yet, of the kind that the transport asks for.
  std::unique_ptr<RoundsPort> NewRounds(RoundsPort::Bundle bundle, const Group* group);
  // No other rank has it, nor has this one had it before.
  uint64_t NewChannel();
  WaitPolicy waiting() const;
  HandleTable<RoundsPort>& rounds() { return rounds_; }
  // With the progress lock: ports that are carried join it before they are kept.
  void WithChannels(const std::function<void(ChannelMux*)>& call);
  void CloseRounds(uint64_t number);
  // Their blocks are had and go back like those of rounds.
  HandleTable<PairsPort>& pairs() { return pairs_; }
  // The driver of rounds and pairs of ranks that share no memory.
  ChannelDriver Driver();
  // Trainings by the C API.
  HandleTable<TrainerDriver>& trainers() { return trainers_; }
  void CloseTrainer(uint64_t number);

  Status StartTimeline(const std::string& path);
  void StopTimeline();
  void TraceSpan(const char* name, Time begin, Time end);

  std::string StatsJson();
  std::vector<int32_t> Awaited(const Operation& operation);  // covey_awaited
  // With the progress lock.
  void WithRuntime(const std::function<void(Runtime*)>& call);

  // Threads inside waits return; the first half of closing.
  void Interrupt();

 private:
  explicit Session(const Config& config);
  void AdoptPlace();
  Status KeepGroup(std::unique_ptr<Group> group, uint64_t* key);
  void MakeWorld();
  void SweepRounds();
  void SettleRounds();
  void SwapTimeline(std::unique_ptr<Timeline> timeline);

  Config config_;
  MethodChoice method_;
  MonotonicClock clock_;
  std::unique_ptr<Log> log_;
  std::unique_ptr<Transport> transport_;
  TensorQueue queue_;
  std::mutex device_mutex_;
  std::unique_ptr<Device> device_;      // protected by device_mutex_; once there it stays
  int32_t device_index_ = 0;            // the same
  std::unique_ptr<Timeline> timeline_;  // changed with the progress lock and mutex_ held
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Engine> engine_;

  std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Group>> groups_;  // protected by mutex_; never shrinks
  const Group* world_ = nullptr;                       // of groups_; set once, at the begin
  uint64_t channels_ = 0;                              // protected by mutex_
  // Windows of closed trainers, until no member looks at them; protected by mutex_.
  std::vector<std::unique_ptr<TrainerWindow>> windows_;
  HandleTable<RoundsPort> rounds_;
  HandleTable<PairsPort> pairs_;
  HandleTable<TrainerDriver> trainers_;
  std::unique_ptr<WitnessDoor> witness_;  // null: the job has none
};

}  // namespace covey
#endif  // COVEY_CORE_API_SESSION_H_
