#include "core/engine/trainer_driver.h"

#include <utility>

#include "core/base/finite.h"
#include "core/engine/trainer_driver_lock.h"
#include "core/engine/trainer_pairs.h"
#include "core/engine/trainer_rounds.h"
#include "core/engine/trainer_window.h"
#include "core/train/clip_norm.h"

namespace covey {
namespace {

// Whether updates are with this rank's own gradients.
bool IsOwn(const TrainerRounds& rounds) { return rounds.outer() != nullptr || rounds.has_models(); }

// Whether the adapter changes its model, or what belongs to it.
bool IsChange(Stage stage) {
  return stage == Stage::kUpdate || stage == Stage::kLoadModel || stage == Stage::kUnpack ||
         stage == Stage::kLoadState;
}

// Whether the adapter hands over what is exchanged.
bool IsCollected(Stage stage) {
  return stage == Stage::kCollectGradients || stage == Stage::kCollectModel;
}

// Whether the model is exchanged where it lies.
bool IsOnModel(Stage stage) { return stage == Stage::kAverage || stage == Stage::kMix; }

bool IsDue(const Trainer::Ready& ready, Stage action) {
  return ready.action.has_value() && ready.action->stage == action;
}

// The exchange in which members meet in a step by the plan of version `planned`; `rounds`: those of
// that plan, if they go on after it.
TrainerSteps::Exchange MeetingOf(const TrainerDriver::Options& options, int64_t planned,
                                 const TrainerRounds* rounds) {
  const MethodView view = ViewOf(*options.group);
  const MethodChoice& here = options.method.At(planned);
  const MethodPlan plan = here.method->plan(here.settings, view, 0);
  if (plan.admission == Admission::kPairs) return {};
  if (plan.admission != Admission::kRounds) return {.number = planned, .needed = view.size};
  if (rounds == nullptr) return {};
  // Apart from those of other parts.
  const int64_t number = ((planned + 1) << 32) + static_cast<int64_t>(rounds->published());
  const bool is_of_all = rounds->waited_for_all();
  return {.number = number, .needed = is_of_all ? view.size : plan.rounds.admit.Needed(view.size)};
}

// The number of the action that copies a model for others; the trainer counts from 1.
constexpr uint64_t kShown = ~uint64_t{0};

// An adapter that was interrupted has not been given the action that is due; `given`: the last one
// that it was. The call is taken up as if the action had not been done.
bool IsUngiven(const Trainer::Ready& ready, uint64_t given) {
  return ready.action.has_value() && ready.action->number != given;
}

}  // namespace

TrainerDriver::TrainerDriver(Options options, TrainerLayout layout, Memory memory,
                             std::unique_ptr<TrainerWindow> window, TensorQueue* queue,
                             Engine* engine)
    : options_(std::move(options)),
      layout_(std::move(layout)),
      memory_(std::move(memory)),
      operations_({.name = options_.name,
                   .group = options_.group,
                   .method = &options_.method,
                   .average = options_.average,
                   .reduces = options_.reduces,
                   .layout = &layout_,
                   .kernels = options_.kernels,
                   .queue = queue,
                   .engine = engine,
                   .awaited = options_.awaited,
                   .order = options_.order}),
      trainer_(options_.method, ViewOf(*options_.group), options_.step, options_.has_state,
               options_.end, options_.reduces, options_.vacates),
      window_(std::move(window)),
      hypers_(static_cast<size_t>(options_.hypers)) {}

void TrainerDriver::AddRounds(int64_t from, std::unique_ptr<TrainerRounds> rounds) {
  if (window_ != nullptr && rounds->has_models()) window_->AddRounds(from, rounds->Published());
  rounds_.emplace(from, std::move(rounds));
}

void TrainerDriver::AddPairs(int64_t from, std::unique_ptr<TrainerPairs> pairs) {
  pairs_.emplace(from, std::move(pairs));
}

TrainerDriver::~TrainerDriver() = default;

Status TrainerDriver::Submit(const std::string& unfit, std::span<const double> hypers) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  if (IsUngiven(ready_, given_) && trainer_.position().in_step)
    ready_ = trainer_.OnAck(ready_.action->number, false, clock_.Now());
  const Trainer::Position before = trainer_.position();
  RETURN_IF_ERROR(Take(trainer_.OnStep(unfit, clock_.Now())));
  if (before.takes_gradients) hypers_.assign(hypers.begin(), hypers.end());
  if (!before.in_step) planned_ = before.planned;
  steps_.Begin();
  return Status::Ok();
}

Status TrainerDriver::Finish(bool strict) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  if (IsUngiven(ready_, given_) && trainer_.position().in_finish)
    ready_ = trainer_.OnAck(ready_.action->number, false, clock_.Now());
  return Take(trainer_.OnFinish(strict, clock_.Now()));
}

Status TrainerDriver::Call(Trainer::Ready (Trainer::*call)(Time)) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  return Take((trainer_.*call)(clock_.Now()));
}

// A refused call has changed nothing: what was due stays so.
Status TrainerDriver::Take(Trainer::Ready ready) {
  if (ready.end.has_value() && ready.end->code() == StatusCode::kInvalidArgument) return *ready.end;
  // train-T1: the exchange under way has not been begun yet where Next was not called since.
  const bool waits_on = !ready.exchange.has_value() && !ready.action.has_value() && !ready.end;
  if (waits_on) ready.exchange = std::move(ready_.exchange);
  ready_ = std::move(ready);
  is_shown_ = false;
  // train-T23: the call may write where the copy lies.
  if (window_ != nullptr) window_->HideCopy();
  const bool is_new = std::exchange(is_idle_, trainer_.IsIdle());
  if (is_new && window_ != nullptr && trainer_.part() == Trainer::kNoPart)
    window_->Show(trainer_.version());
  return Status::Ok();
}

Status TrainerDriver::Next(Time deadline, Due* due) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  for (;;) {
    if (ready_.end.has_value()) {
      // train-T23: another member has asked for the model.
      if (ready_.end->ok() && window_ != nullptr && window_->IsWanted() && IsOfAll(trainer_)) {
        is_shown_ = true;
        due->action = {.number = kShown, .stage = Stage::kCollectModel};
        return Status::Ok();
      }
      due->has_ended = true;
      is_idle_ = trainer_.IsIdle();
      if (window_ != nullptr)
        window_->Tell(trainer_.version(), trainer_.part() == Trainer::kNoPart);
      if (steps_.is_open() && !trainer_.position().in_step) {
        const bool goes_on = trainer_.part() == planned_;
        steps_.End(options_.moment(),
                   MeetingOf(options_, planned_, goes_on ? RoundsOf(planned_) : nullptr));
      }
      return *std::exchange(ready_.end, std::nullopt);
    }
    if (ready_.action.has_value()) {
      const Trainer::Action& action = *ready_.action;
      if (action.stage == Stage::kCollectGradients && action.is_own && options_.keeps_gradients) {
        ready_ = trainer_.OnAck(action.number, true, clock_.Now());
        continue;
      }
      if (!options_.prepares && action.clip_norm > 0 && !std::exchange(is_clipped_, true))
        ClipNorm(layout_, action.clip_norm, *options_.kernels, Gradients());
      const TrainerRounds* rounds = RoundsOf(action.part);
      due->action = action;
      if (IsCollected(action.stage)) steps_.Come(clock_.Now());
      given_ = action.number;
      due->hypers = rounds == nullptr || IsOwn(*rounds) ? hypers_ : rounds->hypers();
      if (action.stage == Stage::kUnpack) due->image = rounds->image();
      // train-T19: it is not seen while it is changed.
      if (IsChange(action.stage) && window_ != nullptr) window_->Begin();
      return Status::Ok();
    }
    if (trainer_.IsIdle())
      return Status::InvalidArgument("nothing is under way: submit a step, or finish, first");
    Status status = Status::Ok();
    if (ready_.exchange.has_value()) status = Begin(*std::exchange(ready_.exchange, std::nullopt));
    StageResult result;
    if (!status.ok()) {
      Status others = Status::Ok();  // The other members have submitted those, too.
      StageResult unused;
      operations_.Await(kNever, kNever, &others, &unused);
    }
    if (!status.ok() || EndExchange(deadline, &status, &result)) {
      if (window_ != nullptr) window_->EndWait(status.ok());
      ready_ = trainer_.OnExchangeEnd(status, result, clock_.Now());
      continue;
    }
    const Time now = clock_.Now();
    if (now >= ready_.deadline) {
      ready_ = trainer_.OnTick(operations_.Missing(now), now);
    } else if (deadline == kNever) {
      return Status::Aborted("this rank is shutting down");
    } else {
      return Status::Timeout("an exchange of '" + options_.name + "' is under way");
    }
  }
}

Status TrainerDriver::Acknowledge(uint64_t number, bool done) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  if (number == kShown && std::exchange(is_shown_, false)) {
    window_->ClearWanted();
    if (done) window_->ShowCopy(trainer_.version());
    return Status::Ok();
  }
  const bool is_update = IsDue(ready_, Stage::kUpdate), is_load = IsDue(ready_, Stage::kLoadState);
  const bool is_model = IsDue(ready_, Stage::kCollectModel);
  const bool is_loaded = IsDue(ready_, Stage::kLoadModel);
  const bool is_change = ready_.action.has_value() && IsChange(ready_.action->stage);
  RETURN_IF_ERROR(Take(trainer_.OnAck(number, done, clock_.Now())));
  if (is_change && window_ != nullptr) window_->End(trainer_.version());
  if (done && is_loaded && window_ != nullptr && std::exchange(has_mean_, false))
    window_->CountMean();
  if (done) is_clipped_ = false;
  if (done && is_load) operations_.state()->Clear();
  if (is_model && !std::exchange(is_placed_, false)) operations_.Place({});
  updates_ += done && is_update ? 1 : 0;
  return Status::Ok();
}

Status TrainerDriver::Give(std::span<const std::span<const std::byte>> parts) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  if (!IsDue(ready_, Stage::kPack))
    return Status::InvalidArgument(
        "this rank's state is not asked for now: give it between COVEY_PACK and its "
        "acknowledgement");
  return RoundsOf(ready_.action->part)->Give(ready_.action->applied, parts);
}

Status TrainerDriver::Place(std::vector<Tensor> model) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  if (!IsDue(ready_, Stage::kCollectModel))
    return Status::InvalidArgument(
        "the model is not asked for now: place it between COVEY_COLLECT_MODEL and its "
        "acknowledgement");
  if (trainer_.part() != Trainer::kNoPart)
    return Status::Unsupported(
        "rounds and pairs exchange models in memory of the host: copy it to covey_trainer_model");
  operations_.Place(std::move(model));
  is_placed_ = true;
  return Status::Ok();
}

Status TrainerDriver::ListState(std::vector<TrainerState::Array> arrays) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  if (!IsDue(ready_, Stage::kListState))
    return Status::InvalidArgument(
        "the optimizer's state is not asked for now: list it between COVEY_LIST_STATE and its "
        "acknowledgement");
  operations_.state()->List(std::move(arrays));
  return Status::Ok();
}

Status TrainerDriver::GetListed(const std::vector<TrainerState::Array>** arrays) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  if (!IsDue(ready_, Stage::kLoadState))
    return Status::InvalidArgument(
        "the optimizers' state is read between COVEY_LOAD_STATE and its acknowledgement");
  *arrays = &operations_.state()->arrays();
  return Status::Ok();
}

Status TrainerDriver::GetMemory(bool of_model, std::byte** memory) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  const TrainerRounds* rounds = RoundsOf(trainer_.part());
  const bool is_of_rounds = rounds != nullptr && rounds->has_models();
  *memory = !of_model ? Gradients() : is_of_rounds ? rounds->open() : model();
  return Status::Ok();
}

// Those of rounds are written where they are published from, and read where a version lies.
std::byte* TrainerDriver::Gradients() {
  const bool is_update = IsDue(ready_, Stage::kUpdate);
  TrainerRounds* rounds =
      RoundsOf(ready_.action.has_value() ? ready_.action->part : trainer_.part());
  if (rounds == nullptr || IsOwn(*rounds)) return gradients();
  return is_update ? rounds->gradients() : rounds->open();
}

// Null: no rounds.
TrainerRounds* TrainerDriver::RoundsOf(int64_t part) {
  const auto found = rounds_.find(part);
  return found == rounds_.end() ? nullptr : found->second.get();
}

// ---- Exchanges ----------------------------------------------------------------------------------

Status TrainerDriver::Begin(const Trainer::Exchange& exchange) {
  if (IsOfRounds(exchange.stage) || IsOfPairs(exchange.stage)) {
    exchange_ = exchange;
    return Status::Ok();
  }
  const bool has_numbers =
      exchange.stage != Stage::kAgree && exchange.stage != Stage::kAverageState;
  const bool waits = IsOnModel(exchange.stage) && window_ != nullptr;
  if (waits) window_->Begin();  // a codec may add to the model
  const Status begun =
      operations_.Begin(exchange, exchange.stage == Stage::kReduce ? gradients() : model(),
                        has_numbers ? FitnessOf(exchange) : Status::Ok());
  if (waits) window_->Wait();
  return begun;
}

// Waits for the exchange under way. False: the caller's deadline is over, or the exchange's.
bool TrainerDriver::EndExchange(Time callers, Status* status, StageResult* result) {
  if (!exchange_.has_value()) return operations_.Await(callers, ready_.deadline, status, result);
  const Time deadline = std::min(callers, ready_.deadline);
  if (IsOfPairs(exchange_->stage)) {
    if (!pairs_.at(exchange_->part)->Perform(*exchange_, deadline, status, result)) return false;
    has_mean_ = exchange_->stage == Stage::kMean && status->ok();
    exchange_.reset();
    return true;
  }
  const bool leaves = exchange_->stage == Stage::kLeave || exchange_->stage == Stage::kHandOver;
  // The rounds that follow at once wait no longer at first than later.
  TrainerRounds* next = leaves ? RoundsOf(options_.method.Until(exchange_->part)) : nullptr;
  if (next != nullptr) next->Assume(RoundsOf(exchange_->part)->step_time());
  const bool publishes = exchange_->stage == Stage::kPublish;
  const Status fitness = publishes ? FitnessOf(*exchange_) : Status::Ok();
  TrainerRounds* rounds = RoundsOf(exchange_->part);
  const auto hypers = IsOwn(*rounds) ? std::span<const double>() : std::span<const double>(hypers_);
  if (exchange_->stage == Stage::kLeave && window_ != nullptr) window_->DropRounds(exchange_->part);
  if (!rounds->Perform(*exchange_, fitness, hypers, deadline, status, result)) return false;
  exchange_.reset();
  return true;
}

// Why this rank's gradients must not be mixed with those of others.
Status TrainerDriver::FitnessOf(const Trainer::Exchange& exchange) {
  const Group& group = *options_.group;
  const Rank self = group.members[static_cast<size_t>(ToInt(group.my_index))];
  std::string why = exchange.unfit;
  const std::byte* base = exchange.stage == Stage::kReduce ? gradients() : model();
  if (exchange.stage == Stage::kPublish) base = RoundsOf(exchange.part)->open();
  for (const TrainerLayout::Piece& piece : layout_.pieces()) {
    if (!options_.check_nan || options_.prepares || !why.empty()) break;
    const size_t found =
        CountNotFinite(piece.dtype, base + piece.offset_bytes, static_cast<size_t>(piece.count));
    if (found > 0) why = std::to_string(found) + " NaN or infinite numbers";
  }
  if (why.empty()) return Status::Ok();
  return Status(StatusCode::kNotFinite, "rank " + std::to_string(ToInt(self)) + " has " + why,
                self);
}

bool TrainerDriver::CanBeFreed() {
  const std::lock_guard lock(mutex_);
  return operations_.CanBeFreed();
}

}  // namespace covey
