// One rank of a simulation: its runtime, and the process around it that submits, waits, drives and
// sleeps.
//
// Main() is the body of the rank's fiber; everything else is called from outside of it.
#ifndef COVEY_TESTS_SIM_SIMULATOR_RANK_H_
#define COVEY_TESTS_SIM_SIMULATOR_RANK_H_

#include <memory>
#include <string>
#include <vector>

#include "core/engine/runtime.h"
#include "ops/transports/inproc.h"
#include "tests/sim/simulator/fiber.h"
#include "tests/sim/simulator/journal.h"
#include "tests/sim/simulator/late_device.h"
#include "tests/sim/simulator/payload.h"
#include "tests/sim/simulator/program.h"

namespace covey {

// The shared state of all ranks of a simulation.
struct Job {
  uint64_t seed;
  Swarm swarm;
  Program program;
  Rng rng;  // schedules and programs; the network draws its own
  std::unique_ptr<InprocNetwork> network;
  std::unique_ptr<Journal> journal;
  std::vector<Bytes> expected;       // by operation, once it is needed
  std::vector<StatusCode> outcomes;  // by operation: of the first member that ended it
  std::vector<bool> has_outcome;
  std::vector<Bytes> first_result;   // by operation, encoded: of the first member that ended it
  std::vector<int64_t> last_joined;  // by operation, as a join told it first
  bool stop = false;                 // fibers end

  const Bytes& ExpectedOf(size_t op);
  bool AnyLost(const std::vector<int32_t>& members) const;
};

class SimRank {
 public:
  SimRank(Job* job, int32_t rank);

  // Outside of the fiber.
  void Resume() { fiber_->Resume(); }
  bool Ended() const { return fiber_->done(); }
  bool Finished() const;  // with its program
  bool IsRunnable() const;
  Time WakesAt() const { return asleep_ ? until_ : 0; }
  bool IsAtRest() const;
  void OnRing(bool mail);
  void CheckRest();
  Runtime& runtime() { return *runtime_; }

  // Inside: lets others go on.
  void Yield() { fiber_->Yield(); }

 private:
  // An operation handed in and not yet forgotten.
  struct Ticket {
    SimRank* rank = nullptr;
    size_t op = 0;
    size_t index = 0;  // in the group
    Operation* operation = nullptr;
    uint64_t handle = 0;
    void* event = nullptr;  // a device computes the inputs, which lie on it
    std::vector<Tensor> on_device;
    bool by_callback = false;  // no thread waits: the handle is released at once
    int callbacks = 0;
    bool judged = false;
    bool any_ok = false;
    Payload payload;
  };

  void Main();
  void Act();
  bool IsOpen(size_t op);
  void Submit(size_t op);
  bool Pass();
  void Sleep();
  void Collect();
  void Judge(Ticket* ticket, const Status& status);
  void JudgeCoded(const Ticket& ticket);
  void JudgeJoin(const Ticket& ticket);
  void JudgeFailure(const Ticket& ticket, const Status& status);
  Operation* AgainOr(Operation* fresh);
  Status HandIn(Operation* operation, uint64_t* handle);
  void MakeLate(Ticket* ticket);
  void JudgeDevice(const Ticket& ticket, const Status& status);
  void Fail(const Ticket& ticket, const std::string& what);
  const Group* GroupOf(const std::vector<int32_t>& members);
  static void OnCallback(void* ticket, uint64_t handle, const Status& status);

  Job* job_;
  int32_t rank_;
  Log log_;
  std::unique_ptr<Transport> mirrored_;  // over the network's mail; null: its shared memory is used
  Transport* transport_ = nullptr;
  TensorQueue queue_;
  LateDevice device_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<std::unique_ptr<Ticket>> tickets_;  // all ever, by submit
  std::vector<Ticket*> open_;                     // not yet judged
  size_t next_action_ = 0;
  Time thinks_until_ = 0;

  // Sleeping.
  enum class Bell : uint8_t { kAll, kMailOnly, kNone };
  Bell listens_ = Bell::kNone;
  bool rung_ = false;       // since it began to listen
  bool rung_late_ = false;  // since it woke
  bool asleep_ = false;
  Time until_ = 0;

  std::unique_ptr<Fiber> fiber_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_RANK_H_
