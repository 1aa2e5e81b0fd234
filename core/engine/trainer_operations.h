// The exchanges of a training that all members do together (core/train/trainer.h), as operations of
// the tensor queue: gradients or models, encoded by the method's codec, or the agreement of a
// finish().
//
// One thread at a time; it waits inside of Await.
#ifndef COVEY_CORE_ENGINE_TRAINER_OPERATIONS_H_
#define COVEY_CORE_ENGINE_TRAINER_OPERATIONS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/kernels.h"
#include "core/base/tensor.h"
#include "core/engine/trainer_codec.h"
#include "core/engine/trainer_state.h"
#include "core/train/layout.h"
#include "core/train/trainer.h"

namespace covey {

class Engine;
class TensorQueue;
struct Operation;

class TrainerOperations {
 public:
  struct Options {
    std::string name;  // that of each operation begins so
    const Group* group = nullptr;
    const MethodChoice* method = nullptr;
    bool average = true;   // gradients; else their sum
    bool reduces = false;  // the adapter exchanges gradients that all wait for
    const TrainerLayout* layout = nullptr;
    const Kernels* kernels = nullptr;
    TensorQueue* queue = nullptr;
    Engine* engine = nullptr;
    // The ranks that an operation waits for, as far as they are known.
    std::function<std::vector<int32_t>(const Operation&)> awaited;
    // Orders an operation after the present work of its tensors' streams.
    std::function<Status(Operation*)> order;
  };

  explicit TrainerOperations(Options options)
      : options_(std::move(options)), state_(options_.name, options_.group) {}
  ~TrainerOperations();  // REQUIRES: CanBeFreed, or no operation is in flight any more.
  TrainerOperations(const TrainerOperations&) = delete;

  // Begins an exchange, in place: gradients or the model lie at `numbers`, as the layout says,
  // until Await says that it is over. `fitness`: why this rank's must not be mixed with others'.
  // REQUIRES: none is under way.
  Status Begin(const Trainer::Exchange& exchange, std::byte* numbers, const Status& fitness);
  // The model of the exchanges that follow lies there, on a device: a tensor for each parameter, in
  // their order. Empty: where Begin says. Codecs do not encode it.
  void Place(std::vector<Tensor> model) { placed_ = std::move(model); }
  // The arrays of kAverageState: listed before it, read and cleared after it.
  TrainerState* state() { return &state_; }
  // Whether all of it has ended by the earlier of the caller's deadline and the exchange's limit,
  // and how.
  bool Await(Time callers, Time limit, Status* status, StageResult* result);
  // The ranks that have not begun the exchange, as far as they are known. A coordinator that does
  // not answer is missing itself.
  std::vector<int32_t> Missing(Time now) const;
  bool CanBeFreed() const;

  size_t CodecBytes() const;
  // Those whose state belongs to the exchanges of `step`.
  std::vector<TrainerCodec*> CodecsOf(int64_t step);

 private:
  Operation* New(Kind kind) const;
  Status Add(Operation* operation, const Tensor& tensor, const std::string& word);
  Status AddPiece(Operation* operation, const TrainerLayout::Piece& piece, std::byte* at,
                  const std::string& word);
  Status CountPresent();
  void ScaleForJoined(bool is_ok, StageResult* result);
  std::vector<Tensor> TensorsAt(std::byte* numbers) const;
  Status BeginAll(const Trainer::Exchange& exchange, std::byte* numbers, const Status& fitness);
  Status Agree(const Trainer::Exchange& exchange);
  Status GoOnWithState();
  bool AwaitAll(Time callers, Time limit, Status* status);
  TrainerCodec* CodecOf(int64_t step, CodecUse use);

  Options options_;
  std::vector<Operation*> under_way_;
  Stage stage_ = Stage::kAgree;  // of the exchange under way
  Status failure_;               // of what has ended of it, or was not begun
  // The greatest of all members': whether models may differ, and the step.
  int64_t agreed_[2] = {};
  TrainerState state_;
  // By the version at which their method begins, and by what they encode.
  std::map<std::pair<int64_t, CodecUse>, std::unique_ptr<TrainerCodec>> codecs_;
  TrainerCodec* codec_ = nullptr;  // of the exchange under way; null: none
  std::vector<Tensor> placed_;
  // The average of models under way: its tensors, and the number of members that take part. Joined
  // members contribute zeros.
  std::vector<Tensor> averaged_;
  double present_ = 0;
  // The limit of the exchange under way; when to ask for the missing ranks, and when it was asked.
  Time limit_ = kNever, asks_at_ = kNever, asked_at_ = kNever;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_OPERATIONS_H_
