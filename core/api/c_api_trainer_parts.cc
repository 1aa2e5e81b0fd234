// The parts of a training that go in rounds or in pairs.
#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/api/c_api_methods.h"
#include "core/api/c_api_pairs_open.h"
#include "core/api/c_api_rounds.h"
#include "core/api/c_api_trainer.h"
#include "core/api/session.h"
#include "core/base/arena.h"
#include "core/engine/trainer_pairs.h"
#include "core/engine/trainer_rounds.h"

namespace covey {
namespace {

constexpr size_t kReserveBytes = size_t{4} << 20;  // of the arena, for other exchanges

// The spans of a part: one for each piece of the layout.
struct Spans {
  std::vector<covey_dtype> dtypes;
  std::vector<int64_t> counts;

  explicit Spans(const TrainerLayout& layout) {
    for (const TrainerLayout::Piece& piece : layout.pieces()) {
      dtypes.push_back(static_cast<covey_dtype>(piece.dtype));
      counts.push_back(piece.count);
    }
  }
  int32_t count() const { return static_cast<int32_t>(counts.size()); }
};

// Zeroed. In the arena; or, where that would leave no room there and it need not be shared,
// outside: that costs each operation a copy. Null: there is no room, or `length_bytes` is 0.
TrainerDriver::Buffer Allocate(const Use& use, size_t length_bytes, bool is_shared) {
  const auto alloc = [&](size_t bytes) {
    return TrainerDriver::Buffer(static_cast<std::byte*>(use->transport().AllocData(bytes)),
                                 [](std::byte* data) { Arena::FreeData(data); });
  };
  if (length_bytes == 0) return nullptr;
  TrainerDriver::Buffer buffer = alloc(length_bytes);
  if (is_shared || (buffer != nullptr && alloc(kReserveBytes) != nullptr)) return buffer;
  use->log().Write(LogLevel::kWarn,
                   "a model lies outside of the arena, which costs a copy: there is no room for " +
                       std::to_string(length_bytes >> 20) +
                       " MiB beside what else travels; raise COVEY_ARENA_BYTES");
  void* memory = mmap(nullptr, length_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  return {static_cast<std::byte*>(memory),
          [length_bytes](std::byte* data) { munmap(data, length_bytes); }};
}

std::string PartName(const covey_trainer_config& config, int64_t from) {
  return std::string(config.name) + ".from" + std::to_string(from);
}

Status OpenRoundsOf(const Use& use, covey_runtime* runtime, const covey_trainer_config& config,
                    int64_t from, TrainerDriver* driver) {
  const Spans spans(driver->layout());
  const MethodChoice& choice = ChoiceOf(use, config.method);
  const MethodView view = ViewOf(driver->group());
  const MethodPlan plan = choice.Plan(view, from);
  const Payload payload = plan.payload;
  const bool has_deltas = payload == Payload::kDelta;
  const bool travels = payload == Payload::kGradients;  // what updates need, with the gradients
  const covey_op of_local = has_deltas ? COVEY_SUM : COVEY_AVERAGE;
  constexpr int32_t kOfLocal = 1;  // how many steps a rank has done
  const std::string name = PartName(config, from);
  const covey_rounds_config rounds{.struct_size = sizeof(rounds),
                                   .group = config.group,
                                   .name = name.c_str(),
                                   .method = config.method,
                                   // A version of deltas is divided by their number.
                                   .op = travels ? config.op : of_local,
                                   .num_spans = spans.count(),
                                   .dtypes = spans.dtypes.data(),
                                   .counts = spans.counts.data(),
                                   .num_hypers = travels ? config.num_hypers : kOfLocal,
                                   .begin = from};
  uint64_t number = 0;
  RETURN_IF_ERROR(OpenRounds(use, runtime, &rounds, &number));
  Session* session = use.get();
  driver->AddRounds(
      from,
      std::make_unique<TrainerRounds>(TrainerRounds::Options{
          .port = session->rounds().Find(number),
          .copies = driver->gradients(),
          .model = driver->model(),
          .outer = has_deltas ? std::make_unique<OuterModel>(choice.At(from), &driver->layout())
                              : nullptr,
          .leave = [session, number] { session->CloseRounds(number); },
          .log = &session->log(),
          .last = RoundPart::LastVersion(choice, view, from, EndOf(config)),
          .local_steps = std::max<int64_t>(1, plan.rounds.local_steps),
          .alloc_block = [session](size_t bytes) { return session->AllocBlock(bytes); },
          .free_block = [session](uint64_t offset) { session->FreeBlock(offset); }}));
  return Status::Ok();
}

Status OpenPairsOf(const Use& use, covey_runtime* runtime, const covey_trainer_config& config,
                   int64_t from, TrainerDriver* driver) {
  const Spans spans(driver->layout());
  const PairsConfig pairs{
      .name = PartName(config, from),
      .group = config.group,
      .method = config.method,
      .from = from,
      .spans = {spans.count(), spans.dtypes.data(), spans.counts.data()},
  };
  OpenedPairs opened;
  RETURN_IF_ERROR(OpenPairs(use, runtime, pairs, &opened));
  Session* session = use.get();
  driver->AddPairs(from, std::make_unique<TrainerPairs>(
                             TrainerPairs::Options{.port = session->pairs().Find(opened.pairs),
                                                   .layout = &driver->layout(),
                                                   .model = driver->model(),
                                                   .kernels = &BestKernels(),
                                                   .leave =
                                                       [session, opened] {
                                                         session->pairs().Close(opened.pairs);
                                                         if (opened.mean != 0)
                                                           session->CloseRounds(opened.mean);
                                                       },
                                                   .log = &session->log()}));
  return Status::Ok();
}

}  // namespace

int64_t EndOf(const covey_trainer_config& config) {
  return config.end == 0 ? kForever : config.end;
}

Status CheckParts(const Use& use, const covey_trainer_config& config, const TrainerLayout& layout) {
  const MethodChoice& choice = ChoiceOf(use, config.method);
  const MethodView view = ViewOf(*use->FindGroup(config.group));
  const int64_t until = EndOf(config);
  for (const int64_t from : Trainer::PartsOf(Admission::kRounds, choice, view, config.begin, until))
    if (choice.Plan(view, from).payload == Payload::kDelta)
      RETURN_IF_ERROR(OuterModel::Check(*choice.At(from).method, layout));
  const auto* end = config.dtypes + config.num_spans;
  if (view.size == 1 || std::find(config.dtypes, end, COVEY_FLOAT32) != end) return Status::Ok();
  for (int64_t from = config.begin; from < until; from = choice.Until(from))
    if (!choice.At(from).codec.empty()) return NothingToEncode(choice.At(from).OwnText());
  return Status::Ok();
}

bool AllocateMemory(const Use& use, const covey_trainer_config& config, size_t length_bytes,
                    TrainerDriver::Memory* memory) {
  const MethodChoice& choice = ChoiceOf(use, config.method);
  const MethodView view = ViewOf(*use->FindGroup(config.group));
  bool has_gradients = false, has_model = false;
  bool is_shared = false;  // operations take memory of whatever kind
  for (int64_t from = config.begin; from < EndOf(config); from = choice.Until(from)) {
    const MethodPlan plan = choice.Plan(view, from);
    const bool is_of_models = plan.payload == Payload::kModel;
    const bool is_of_all = plan.admission == Admission::kAll;
    has_gradients |= plan.payload == Payload::kGradients ? config.reduces == 0 || !is_of_all
                                                         : config.keeps_gradients == 0;
    // Versions of deltas are read where they lie, or copied where no memory is shared.
    has_gradients |= plan.payload == Payload::kDelta && use->transport().words() == nullptr;
    is_shared |= !is_of_all && plan.admission != Admission::kNeighbors;
    // Rounds of models have memory of their own for them.
    has_model |= plan.payload == Payload::kDelta || plan.payload == Payload::kNone ||
                 (is_of_models && plan.admission != Admission::kRounds);
  }
  *memory = {.gradients = Allocate(use, has_gradients ? length_bytes : 0, is_shared),
             .model = Allocate(use, has_model ? length_bytes : 0, is_shared)};
  return (memory->gradients != nullptr || !has_gradients) &&
         (memory->model != nullptr || !has_model);
}

Status OpenParts(const Use& use, covey_runtime* runtime, const covey_trainer_config& config,
                 TrainerDriver* driver) {
  const MethodChoice& choice = ChoiceOf(use, config.method);
  const MethodView view = ViewOf(driver->group());
  const int64_t begin = config.begin, end = EndOf(config);
  for (const int64_t from : Trainer::PartsOf(Admission::kRounds, choice, view, begin, end))
    RETURN_IF_ERROR(OpenRoundsOf(use, runtime, config, from, driver));
  for (const int64_t from : Trainer::PartsOf(Admission::kPairs, choice, view, begin, end))
    RETURN_IF_ERROR(OpenPairsOf(use, runtime, config, from, driver));
  return Status::Ok();
}

}  // namespace covey
