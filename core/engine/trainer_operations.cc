#include "core/engine/trainer_operations.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/neighbor_weights.h"
#include "core/engine/engine.h"
#include "core/engine/tensor_queue.h"

namespace covey {
namespace {

// A coordinator is asked for the missing ranks so long before the limit; it has answered by the
// limit, on a busy machine too, if that is at least kAnswerTime later.
constexpr Time kAskTime = 600 * kMillisecond, kAnswerTime = 500 * kMillisecond;

std::vector<uint64_t> TableOf(const MixingRow& row, const Group& group) {
  const auto size = group.members.size();
  const auto me = static_cast<size_t>(ToInt(group.my_index));
  std::vector<uint64_t> table = NewPeerTable(size, me);
  SetWeight(me, row.own, &table);
  for (const Neighbor& from : row.from)
    SetWeight(static_cast<size_t>(from.rank), from.weight, &table);
  SetReceiver(size, me, &table);  // all that take from this rank
  return table;
}

// The seed of a codec that rounds at random: a training repeated from `step` is rounded alike.
uint64_t DrawOf(int64_t step, size_t piece) {
  return static_cast<uint64_t>(piece) << 40 | static_cast<uint64_t>(step + 1);
}

CodecUse UseOf(Stage stage) {
  if (stage == Stage::kReduce) return CodecUse::kGradients;
  return stage == Stage::kMix ? CodecUse::kNeighbors : CodecUse::kModels;
}

const char* WordOf(Stage stage) {
  if (stage == Stage::kReduce) return "gradients.";
  return stage == Stage::kMix ? "mix." : "model.";
}

}  // namespace

TrainerOperations::~TrainerOperations() {
  for (const Operation* operation : under_way_) options_.queue->Release(operation->handle);
}

Status TrainerOperations::Begin(const Trainer::Exchange& exchange, std::byte* numbers,
                                const Status& fitness) {
  stage_ = exchange.stage;
  failure_ = BeginAll(exchange, numbers, fitness);
  return failure_;
}

Status TrainerOperations::BeginAll(const Trainer::Exchange& exchange, std::byte* numbers,
                                   const Status& fitness) {
  const Stage stage = exchange.stage;
  if (stage == Stage::kAgree) return Agree(exchange);
  if (stage == Stage::kAverageState) return GoOnWithState();
  const bool is_placed = stage != Stage::kReduce && !placed_.empty();
  codec_ = is_placed ? nullptr : CodecOf(exchange.step, UseOf(stage));
  if (codec_ != nullptr) codec_->Begin(numbers, exchange.is_whole);
  const std::vector<TrainerLayout::Piece>& pieces = options_.layout->pieces();
  const std::vector<Tensor> tensors = is_placed ? placed_ : TensorsAt(numbers);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool mixes = stage == Stage::kMix;
    Operation* operation = New(mixes ? Kind::kNeighborAllreduce : Kind::kAllreduce);
    operation->average = stage == Stage::kAverage || (stage == Stage::kReduce && options_.average);
    operation->refusal = fitness;
    if (mixes) operation->peers = TableOf(exchange.row, *options_.group);
    std::string word = WordOf(stage) + std::to_string(i);
    if (codec_ != nullptr && codec_->Encodes(pieces[i])) {
      // A name of its own: its slots are those of what is encoded, and the pieces that a codec
      // rounds at random so the same after a load.
      word += ".encoded";
      operation->codec = codec_->chosen().text;
      operation->form = codec_->chosen().form;
      operation->draw = DrawOf(exchange.step, i);
      operation->feeds_back = codec_->chosen().codec->feeds_back;
    }
    RETURN_IF_ERROR(Add(operation, tensors[i], word));
  }
  averaged_ = tensors;
  return stage == Stage::kAverage ? CountPresent() : Status::Ok();
}

// The tensors to exchange, one for each piece of the layout: gradients or a model at `numbers`, or
// their codec's input.
std::vector<Tensor> TrainerOperations::TensorsAt(std::byte* numbers) const {
  std::vector<Tensor> tensors;
  for (const TrainerLayout::Piece& piece : options_.layout->pieces())
    tensors.push_back(
        {.dtype = piece.dtype,
         .shape = {.ndim = 1, .dims = {piece.count}},
         .data = codec_ != nullptr ? codec_->PlaceOf(piece) : numbers + piece.offset_bytes});
  return tensors;
}

// Ranks join the world alone.
Status TrainerOperations::CountPresent() {
  present_ = 1;
  if (options_.group->key != 0) return Status::Ok();
  const TrainerLayout::Piece one{.dtype = DType::kF64, .count = 1, .offset_bytes = 0};
  return AddPiece(New(Kind::kAllreduce), one, reinterpret_cast<std::byte*>(&present_), "present");
}

// The mean becomes that of the members that have taken part.
void TrainerOperations::ScaleForJoined(bool is_ok, StageResult* result) {
  const double size = options_.group->size();
  const std::vector<Tensor> tensors = std::exchange(averaged_, {});
  if (!is_ok || stage_ != Stage::kAverage || options_.group->key != 0 || present_ >= size) return;
  result->scale = size / present_;
  for (const Tensor& tensor : tensors) {
    if (!placed_.empty()) break;  // the adapter's
    const std::byte* from = tensor.data;
    options_.kernels->reduce({.dtype = tensor.dtype, .op = Op::kSum, .prescale = result->scale},
                             {&from, 1}, {&tensor.data, 1},
                             static_cast<size_t>(tensor.shape.Elems()), Stores::kCached);
  }
}

Status TrainerOperations::Agree(const Trainer::Exchange& exchange) {
  agreed_[0] = exchange.may_differ ? 1 : 0;
  agreed_[1] = exchange.step;
  Operation* operation = New(Kind::kAllreduce);
  operation->op = Op::kMax;
  const TrainerLayout::Piece pair{.dtype = DType::kI64, .count = 2, .offset_bytes = 0};
  return AddPiece(operation, pair, reinterpret_cast<std::byte*>(agreed_), "agree");
}

// None is added: it is over.
Status TrainerOperations::GoOnWithState() {
  std::vector<TrainerState::Allreduce> next;
  RETURN_IF_ERROR(state_.Next(&next));
  for (const TrainerState::Allreduce& it : next) {
    Operation* operation = New(Kind::kAllreduce);
    operation->op = it.op;
    operation->average = it.is_average;
    const TrainerLayout::Piece piece{.dtype = it.dtype, .count = it.count, .offset_bytes = 0};
    RETURN_IF_ERROR(AddPiece(operation, piece, it.data, it.word));
  }
  return Status::Ok();
}

// The queue's operations have the settings of their last use.
Operation* TrainerOperations::New(Kind kind) const {
  Operation* operation = options_.queue->New();
  operation->kind = kind;
  operation->op = Op::kSum;
  operation->average = false;
  operation->root = kNoRank;
  operation->prescale = operation->postscale = 1;
  operation->codec.clear();
  operation->form = {};
  operation->draw = 0;
  operation->feeds_back = false;
  operation->callback_only = false;
  return operation;
}

// In place.
Status TrainerOperations::AddPiece(Operation* operation, const TrainerLayout::Piece& piece,
                                   std::byte* at, const std::string& word) {
  return Add(operation,
             {.dtype = piece.dtype, .shape = {.ndim = 1, .dims = {piece.count}}, .data = at}, word);
}

Status TrainerOperations::Add(Operation* operation, const Tensor& tensor, const std::string& word) {
  operation->group = options_.group;
  operation->name = options_.name + "." + word;
  operation->inputs.push_back(tensor);
  if (tensor.device != DeviceType::kCpu) {
    const Status ordered = options_.order(operation);
    if (!ordered.ok()) options_.queue->Discard(operation);
    RETURN_IF_ERROR(ordered);
  }
  operation->outputs = operation->inputs;
  uint64_t handle = 0;
  RETURN_IF_ERROR(options_.queue->Submit(operation, &handle));
  under_way_.push_back(operation);
  options_.engine->Kick();
  return Status::Ok();
}

bool TrainerOperations::AwaitAll(Time callers, Time limit, Status* status) {
  if (std::exchange(limit_, limit) != limit) {
    const Time left = limit == kNever ? 0 : limit - MonotonicNow();
    asks_at_ = limit == kNever ? kNever : limit - std::min(left / 2, kAskTime);
  }
  for (Operation* operation : under_way_) options_.queue->Await(operation);
  for (Operation* operation : under_way_) {
    if (options_.engine->Wait(*operation, std::min({callers, limit, asks_at_}))) continue;
    if (MonotonicNow() < asks_at_) return false;
    // The answer is there when the limit is over.
    asked_at_ = std::exchange(asks_at_, kNever);
    options_.awaited(*operation);
    if (!options_.engine->Wait(*operation, std::min(callers, limit))) return false;
  }
  for (Operation* operation : under_way_) {
    if (status->ok()) *status = operation->status;
    options_.queue->Release(operation->handle);
  }
  under_way_.clear();
  return true;
}

bool TrainerOperations::Await(Time callers, Time limit, Status* status, StageResult* result) {
  // A later call, with another deadline, goes on with what is under way.
  for (;;) {
    if (!AwaitAll(callers, limit, &failure_)) return false;
    if (stage_ != Stage::kAverageState || !failure_.ok()) break;
    failure_ = GoOnWithState();
    if (under_way_.empty()) break;
  }
  *status = std::exchange(failure_, Status::Ok());
  if (stage_ == Stage::kAverageState && !status->ok()) state_.Clear();
  ScaleForJoined(status->ok(), result);
  if (codec_ != nullptr) std::exchange(codec_, nullptr)->End(status->ok());
  result->may_differ = agreed_[0] != 0;
  result->step = agreed_[1];
  return true;
}

std::vector<int32_t> TrainerOperations::Missing(Time now) const {
  for (const Operation* operation : under_way_) {
    if (operation->ended.load(std::memory_order_acquire)) continue;
    const std::vector<int32_t> ranks = options_.awaited(*operation);
    const bool is_silent = ranks.empty() && now > asked_at_ && now - asked_at_ >= kAnswerTime;
    return is_silent ? std::vector<int32_t>{ToInt(options_.group->Coordinator())} : ranks;
  }
  return {};
}

bool TrainerOperations::CanBeFreed() const {
  return std::all_of(under_way_.begin(), under_way_.end(), [](const Operation* operation) {
    return operation->ended.load(std::memory_order_acquire);
  });
}

// Null: none encodes that at `step`.
TrainerCodec* TrainerOperations::CodecOf(int64_t step, CodecUse use) {
  const MethodChoice& here = options_.method->At(step);
  const CodecUse own = here.method->codecs;
  const bool is_used = use == CodecUse::kGradients ? own != CodecUse::kPairs : own == use;
  if (here.codec.empty() || !is_used) return nullptr;
  std::unique_ptr<TrainerCodec>& codec = codecs_[{here.from, use}];
  if (codec == nullptr) {
    CodecText read;
    ChosenCodec chosen;
    CHECK(ReadCodecText(here.codec, own, &read).ok() && ParseCodec(read.text, &chosen).ok(),
          "the codec of a method was read with it");
    codec =
        std::make_unique<TrainerCodec>(std::move(chosen), use, options_.layout, options_.kernels);
  }
  return codec.get();
}

size_t TrainerOperations::CodecBytes() const {
  size_t bytes = 0;
  for (const auto& [key, codec] : codecs_) bytes += codec->HeldBytes();
  return bytes;
}

std::vector<TrainerCodec*> TrainerOperations::CodecsOf(int64_t step) {
  std::vector<TrainerCodec*> found;
  for (const CodecUse use : {CodecUse::kGradients, CodecUse::kModels}) {
    const bool is_used = use == CodecUse::kModels || !options_.reduces;
    if (TrainerCodec* codec = is_used ? CodecOf(step, use) : nullptr) found.push_back(codec);
  }
  return found;
}

}  // namespace covey
