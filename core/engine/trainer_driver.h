// Performs what a Trainer (core/train/trainer.h) asks for: its exchanges are operations of the
// tensor queue, waited for by the thread that calls Next.
//
// One caller at a time, of whatever thread; a call beside another one is refused.
#ifndef COVEY_CORE_ENGINE_TRAINER_DRIVER_H_
#define COVEY_CORE_ENGINE_TRAINER_DRIVER_H_

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/kernels.h"
#include "core/base/tensor.h"
#include "core/train/layout.h"
#include "core/train/trainer.h"

namespace covey {

class Engine;
class TensorQueue;
struct Operation;

class TrainerDriver {
 public:
  struct Options {
    std::string name;  // that of its operations begins so
    const Group* group = nullptr;
    MethodChoice method;
    bool average = true;  // gradients; else their sum
    int64_t step = 0;
    bool check_nan = false;
    const Kernels* kernels = nullptr;
    // The ranks that an operation waits for, as far as they are known.
    std::function<std::vector<int32_t>(const Operation&)> awaited;
  };
  // Statistics of a trainer, which add up over trainers.
  struct Totals {
    uint64_t updates = 0;

    Totals& operator+=(const Totals& more) {
      updates += more.updates;
      return *this;
    }
  };
  // The result of Next: an action, the end, or neither.
  struct Due {
    std::optional<Trainer::Action> action;
    bool has_ended = false;  // the step or finish(), as the status says
  };
  struct Position {
    int64_t version = 0, step = 0;
    bool may_differ = false;
  };

  // `memory` is the arena's, twice layout.length_bytes(), zeroed, and the driver's from now on:
  // gradients first, then the model. The queue and the engine outlive the driver.
  TrainerDriver(Options options, TrainerLayout layout, std::byte* memory, TensorQueue* queue,
                Engine* engine);

  ~TrainerDriver();  // REQUIRES: CanBeFreed, or no operation is in flight any more.
  TrainerDriver(const TrainerDriver&) = delete;

  const TrainerLayout& layout() const { return layout_; }
  std::byte* gradients() const { return memory_; }
  std::byte* model() const { return memory_ + layout_.length_bytes(); }

  Status Submit(const std::string& unfit);
  Status Finish();
  // The next action, or the end. kTimeout without either: the deadline is over, and it goes on when
  // called again.
  Status Next(Time deadline, Due* due);
  Status Acknowledge(uint64_t number, bool done);
  Status GetPosition(Position* position);
  Status Restore(const Position& position);

  // For core/base/handle_table.h. Waits end with the engine.
  void Interrupt() {}
  void Close() {}
  bool CanBeFreed();
  Totals totals();

 private:
  Status Take(Trainer::Ready ready);
  Status Begin(const Trainer::Exchange& exchange);
  Operation* NewOperation(Kind kind);
  Status Add(Operation* operation, const TrainerLayout::Piece& piece, std::byte* base,
             const std::string& word);
  // Whether all operations of the exchange have ended, and how, by the deadline.
  bool Await(Time deadline, Status* status);
  Status FitnessOf(const Trainer::Exchange& exchange) const;
  std::string Missing() const;

  Options options_;
  TrainerLayout layout_;
  std::byte* memory_;
  TensorQueue* queue_;
  Engine* engine_;
  MonotonicClock clock_;
  std::mutex mutex_;
  // Protected by mutex_.
  Trainer trainer_;
  Trainer::Ready ready_;
  std::vector<Operation*> under_way_;  // of the exchange
  int64_t agreed_[2] = {};             // kAgree: whether models may differ, and the step
  bool is_clipped_ = false;            // the gradients of the action under way
  Totals totals_;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_DRIVER_H_
