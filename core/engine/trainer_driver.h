// Performs what a Trainer (core/train/trainer.h) asks for: its exchanges are operations of the
// tensor queue, or of rounds (core/engine/trainer_rounds.h), waited for by the thread that calls
// Next.
//
// One caller at a time, of whatever thread; a call beside another one is refused.
#ifndef COVEY_CORE_ENGINE_TRAINER_DRIVER_H_
#define COVEY_CORE_ENGINE_TRAINER_DRIVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/kernels.h"
#include "core/base/tensor.h"
#include "core/engine/trainer_operations.h"
#include "core/engine/trainer_steps.h"
#include "core/train/layout.h"
#include "core/train/trainer.h"

namespace covey {

class TrainerPairs;
class TrainerRounds;
class TrainerWindow;
struct TrainerCounts;
enum class WindowState : uint8_t;

class TrainerDriver {
 public:
  struct Options {
    std::string name;  // that of its operations begins so
    const Group* group = nullptr;
    MethodChoice method;
    bool average = true;  // gradients; else their sum
    int64_t step = 0;
    int64_t end = kForever;  // see Trainer
    bool check_nan = false;
    int32_t hypers = 0;            // hyper-parameters that travel with gradients
    bool has_state = false;        // of the adapter's optimizer
    bool keeps_gradients = false;  // the adapter: those of this rank's own updates
    bool prepares = false;         // the adapter clips gradients, and looks for NaN
    bool reduces = false;          // the adapter exchanges gradients that all wait for
    bool vacates = false;          // the adapter's tensors lie in memory of rounds
    const Kernels* kernels = nullptr;
    // The ranks that an operation waits for, as far as they are known.
    std::function<std::vector<int32_t>(const Operation&)> awaited;
    // The clocks of this process.
    std::function<TrainerSteps::Moment()> moment;
    // Orders an operation after the present work of its tensors' streams.
    std::function<Status(Operation*)> order;
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
    // kUpdate: those of the gradients. kUnpack: the state. Valid until it is acknowledged.
    std::span<const double> hypers;
    std::span<const std::byte> image;
  };
  // Where gradients and the model are exchanged from: layout.length_bytes() each, zeroed. Null:
  // nothing is.
  using Buffer = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;
  struct Memory {
    Buffer gradients, model;
  };
  // `window`: by what the members see one another, once they have met; null: by nothing. The queue
  // and the engine outlive the driver.
  TrainerDriver(Options options, TrainerLayout layout, Memory memory,
                std::unique_ptr<TrainerWindow> window, TensorQueue* queue, Engine* engine);
  // Before the first step: the rounds, or the pairs, of the part that begins at version `from`, for
  // each of Trainer::PartsOf; gradients() is room for copies of rounds.
  void AddRounds(int64_t from, std::unique_ptr<TrainerRounds> rounds);
  void AddPairs(int64_t from, std::unique_ptr<TrainerPairs> pairs);
  // Before it is closed, or dropped. The window, which has been left, too: to be destroyed once its
  // block can go back. Null: there is none.
  std::unique_ptr<TrainerWindow> LeaveAll();

  // To be destroyed when CanBeFreed, or no operation is in flight any more.
  ~TrainerDriver();
  TrainerDriver(const TrainerDriver&) = delete;

  const TrainerLayout& layout() const { return layout_; }
  int32_t hypers() const { return options_.hypers; }
  const Group& group() const { return *options_.group; }
  std::byte* gradients() const { return memory_.gradients.get(); }
  std::byte* model() const { return memory_.model.get(); }
  // Where those of the action under way lie, or are to lie; without one: of the next step.
  Status GetMemory(bool of_model, std::byte** memory);

  // `hypers`: as many as the options say.
  Status Submit(const std::string& unfit, std::span<const double> hypers);
  Status Finish(bool strict);
  // OnSettle, OnPass or OnServe of the trainer.
  Status Call(Trainer::Ready (Trainer::*call)(Time));
  // The model of a member as others see it, and how far it is.
  struct Seen {
    WindowState state{};  // core/transport/window.h
    int64_t version = 0;
    // Rounds: the step that it was published as, and whether an average of all has come after it.
    uint64_t step = 0;
    bool is_superseded = false;
  };
  // Copies it to where parameters lie, in a part of pairs, of rounds of models, or of exchanges of
  // models by operations; `parameters` empty: only looks, in any part. Within a call or not; never
  // waits.
  Status Peek(int32_t member, std::span<void* const> parameters, Seen* seen);
  // Between two calls: others can read the model of this rank, which is trained elsewhere, by
  // parameter. Until the next call.
  Status ShowModel(std::span<const void* const> parameters);
  // Others see nothing of this rank any more. Any thread, within a call or not.
  void Hide();
  // The next action, or the end. kTimeout without either: the deadline is over, and it goes on when
  // called again.
  Status Next(Time deadline, Due* due);
  Status Acknowledge(uint64_t number, bool done);
  // Within kCollectModel of an exchange by operations: the model lies there, on a device, until
  // kLoadModel: a tensor for each parameter.
  Status Place(std::vector<Tensor> model);
  // Within kListState: what the optimizer keeps, as TrainerState::List has it.
  Status ListState(std::vector<TrainerState::Array> arrays);
  // Within kLoadState: what the optimizers of all members keep, until it is acknowledged as done.
  Status GetListed(const std::vector<TrainerState::Array>** arrays);
  // Within kPack: this rank's state, which is copied.
  Status Give(std::span<const std::span<const std::byte>> parts);
  Status GetPosition(Trainer::Position* position);
  Status Restore(const Trainer::Position& position);
  // Between two steps, with their names: the replicated arrays of a method of deltas, and what a
  // codec keeps, in the part of the next step. Empty: there are none.
  struct StateArray {
    const char* name = nullptr;
    std::span<std::byte> bytes;
  };
  Status GetState(std::vector<StateArray>* arrays);
  // The sums over all parts of the training, and its steps in time.
  Status GetCounts(TrainerCounts* counts, std::string* steps);
  // As TrainerSteps::TakeArrivals.
  Status TakeArrivals(size_t most, std::vector<TrainerSteps::Arrival>* arrivals);

  // For core/base/handle_table.h. Waits end with the engine.
  void Interrupt() {}
  void Close() {}
  bool CanBeFreed();
  Totals totals() const { return {.updates = updates_.load()}; }

 private:
  Status Take(Trainer::Ready ready);
  Status Begin(const Trainer::Exchange& exchange);
  bool EndExchange(Time callers, Status* status, StageResult* result);
  TrainerRounds* RoundsOf(int64_t part);
  Status PeekModel(int32_t member, std::span<std::byte> model, Seen* seen);
  std::byte* Gradients();
  Status FitnessOf(const Trainer::Exchange& exchange);

  Options options_;
  TrainerLayout layout_;
  Memory memory_;
  MonotonicClock clock_;
  std::atomic<uint64_t> updates_{0};
  std::mutex mutex_;
  // Protected by mutex_.
  TrainerOperations operations_;
  Trainer trainer_;
  // By the version that their part begins at.
  std::map<int64_t, std::unique_ptr<TrainerRounds>> rounds_;
  std::map<int64_t, std::unique_ptr<TrainerPairs>> pairs_;
  std::unique_ptr<TrainerWindow> window_;  // null: there is none
  Trainer::Ready ready_;
  uint64_t given_ = 0;                         // the action that the adapter was given last
  std::optional<Trainer::Exchange> exchange_;  // of rounds or pairs, under way
  std::vector<double> hypers_;                 // of the step
  TrainerSteps steps_;
  int64_t planned_ = 0;      // the version whose plan the step goes by
  bool is_shown_ = false;    // the action under way: a model for others, between two calls
  bool is_clipped_ = false;  // the gradients of the action under way
  bool is_placed_ = false;   // the model, in the action under way
  bool has_mean_ = false;    // of pairs that have met, not loaded yet
  bool is_idle_ = true;      // the trainer, before the call under way
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_DRIVER_H_
