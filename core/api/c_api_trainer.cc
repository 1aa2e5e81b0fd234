// Trainings by a method: see core/api/covey_trainer.h and core/engine/trainer_driver.h.
#include "core/api/c_api_trainer.h"

#include <algorithm>

#include "core/api/c_api.h"
#include "core/api/c_api_methods.h"
#include "core/api/c_api_offers.h"
#include "core/api/c_api_submit.h"
#include "core/api/covey_trainer.h"
#include "core/api/runtime_handle.h"
#include "core/api/session.h"
#include "core/base/clock.h"
#include "core/engine/trainer_counts.h"
#include "core/engine/trainer_window.h"

namespace covey {
namespace {

constexpr const char kKind[] = "trainer";
constexpr int32_t kMostHypers = 4096;

covey_verb VerbOf(Stage stage) {
  switch (stage) {
    case Stage::kCollectGradients:
      return COVEY_COLLECT_GRADIENTS;
    case Stage::kCollectModel:
      return COVEY_COLLECT_MODEL;
    case Stage::kLoadModel:
      return COVEY_LOAD_MODEL;
    case Stage::kPack:
      return COVEY_PACK;
    case Stage::kUnpack:
      return COVEY_UNPACK;
    case Stage::kListState:
      return COVEY_LIST_STATE;
    case Stage::kLoadState:
      return COVEY_LOAD_STATE;
    case Stage::kVacate:
      return COVEY_VACATE;
    default:
      return COVEY_UPDATE;
  }
}

Status CheckConfig(const covey_trainer_config& config) {
  const auto wrong = [](const std::string& what) {
    return Status::InvalidArgument("trainer: " + what);
  };
  if (config.name == nullptr || config.name[0] == '\0') return wrong("it needs a name");
  if (config.op != COVEY_SUM && config.op != COVEY_AVERAGE)
    return wrong("op is COVEY_SUM or COVEY_AVERAGE");
  if (config.reduces != 0 && config.prepares == 0)
    return wrong("a caller that reduces gradients also prepares them");
  if (config.begin < 0 || config.end < 0) return wrong("begin or end is negative");
  if (config.num_hypers < 0 || config.num_hypers > kMostHypers)
    return wrong("num_hypers is " + std::to_string(config.num_hypers) + ", which is not 0 to " +
                 std::to_string(kMostHypers));
  RETURN_IF_ERROR(CheckSpans(kKind, {config.num_spans, config.dtypes, config.counts}));
  for (int32_t i = 0; i < config.num_spans; ++i) {
    const auto dtype = static_cast<DType>(config.dtypes[i]);
    if (!IsFloating(dtype))
      return Status::Unsupported("trainer: span " + std::to_string(i) + " is of " + NameOf(dtype) +
                                 ": parameters are floating-point numbers");
  }
  return Status::Ok();
}

std::vector<TrainerLayout::Parameter> ParametersOf(const covey_trainer_config& config) {
  std::vector<TrainerLayout::Parameter> parameters;
  for (int32_t i = 0; i < config.num_spans; ++i)
    parameters.push_back({static_cast<DType>(config.dtypes[i]), config.counts[i]});
  return parameters;
}

// All that must agree.
std::string TermsOf(const covey_trainer_config& config, const MethodChoice& method) {
  return "method " + method.Text() + ", op " + NameOf(static_cast<Op>(config.op)) + ", begin " +
         std::to_string(config.begin) + ", end " + std::to_string(config.end) + ", " +
         std::to_string(config.num_hypers) + " hyper-parameters, " +
         std::to_string(config.num_state) + " arrays of state, " +
         TextOf({config.num_spans, config.dtypes, config.counts});
}

TrainerSteps::Moment MomentOf(Session* session) {
  return {.now = MonotonicNow(), .processor = ProcessorTime(), .waited = WaitedTime(session)};
}

Status Open(const Use& use, covey_runtime* runtime, const covey_trainer_config* config,
            covey_trainer* number) {
  if (config == nullptr || number == nullptr || config->struct_size != sizeof(*config))
    return Status::InvalidArgument(
        "config or trainer is NULL, or struct_size is not that of covey_trainer_config");
  if (use.get() == nullptr) return use.status();
  RETURN_IF_ERROR(CheckConfig(*config));
  const Group* group = nullptr;
  RETURN_IF_ERROR(FindOwnGroup(use, config->group, &group));
  const MethodChoice& method = ChoiceOf(use, config->method);
  const MethodView view = ViewOf(*group);
  RETURN_IF_ERROR(Trainer::Check(method, view, config->begin, EndOf(*config)));
  TrainerLayout layout(ParametersOf(*config));
  RETURN_IF_ERROR(CheckParts(use, *config, layout));
  TrainerDriver::Memory memory;
  std::unique_ptr<TrainerWindow> window;
  const bool has_room = AllocateMemory(use, *config, layout.length_bytes(), &memory) &&
                        AllocateWindow(use, *config, layout.length_bytes(), memory, &window);
  TrainerWindow* shown = window.get();
  const uint64_t offset = shown == nullptr ? 0 : shown->place();
  const Proposal mine{.kind = kKind,
                      .name = config->name,
                      .group = config->group,
                      .text = TermsOf(*config, method),
                      .enough = Status::Ok(),
                      .has_block = shown != nullptr && !shown->IsFar(),
                      .offset = has_room ? offset : Transport::kNoOffset};
  auto driver = std::make_unique<TrainerDriver>(
      TrainerDriver::Options{
          .name = std::string("covey.trainer.") + config->name,
          .group = group,
          .method = method,
          .average = config->op == COVEY_AVERAGE,
          .step = config->begin,
          .end = EndOf(*config),
          .check_nan = use->config().check_nan != 0,
          .hypers = config->num_hypers,
          .has_state = config->num_state != 0,
          .keeps_gradients = config->keeps_gradients != 0,
          .prepares = config->prepares != 0,
          .reduces = config->reduces != 0,
          .vacates = config->vacates != 0,
          .kernels = &BestKernels(),
          .awaited = [session = use.get()](const Operation& it) { return session->Awaited(it); },
          .moment = [session = use.get()] { return MomentOf(session); },
          .order = [session = use.get()](Operation* it) { return OrderAfterStreams(session, it); }},
      std::move(layout), std::move(memory), std::move(window), &use->queue(), &use->engine());
  std::vector<uint64_t> offsets;
  RETURN_IF_ERROR(Agree(use, runtime, mine, &offsets));
  if (shown != nullptr) {
    shown->Meet(std::move(offsets));
    use->WithChannels([&](ChannelMux* box) { shown->Join(box); });
  }
  TrainerDriver* opened = driver.get();
  const covey_trainer kept = use->trainers().Keep(std::move(driver), MonotonicNow());
  const Status status = OpenParts(use, runtime, *config, opened);
  if (status.ok())
    *number = kept;
  else
    use->CloseTrainer(kept);
  return status;
}

Status NextOf(TrainerDriver* trainer, int64_t timeout_ns, covey_action* action) {
  if (action == nullptr || action->struct_size != sizeof(*action))
    return Status::InvalidArgument("action is NULL, or struct_size is not that of covey_action");
  const Time deadline = timeout_ns < 0 ? kNever : MonotonicNow() + timeout_ns;
  TrainerDriver::Due due;
  const Status status = trainer->Next(deadline, &due);
  *action = COVEY_INIT(covey_action);
  action->verb = due.has_ended ? COVEY_DONE : COVEY_PENDING;
  if (!due.action.has_value()) return status;
  action->verb = VerbOf(due.action->stage);
  action->number = due.action->number;
  action->hypers = due.hypers.data();
  action->image = due.image.data();
  action->length_bytes = static_cast<int64_t>(due.image.size());
  action->own = due.action->is_own ? 1 : 0;
  action->scale = due.action->scale;
  return status;
}

Status SubmitTo(TrainerDriver* trainer, const covey_step* step) {
  if (step != nullptr && step->struct_size != sizeof(*step))
    return Status::InvalidArgument("struct_size is not that of covey_step");
  const auto hypers = static_cast<size_t>(trainer->hypers());
  if (hypers > 0 && (step == nullptr || step->hypers == nullptr))
    return Status::InvalidArgument("trainer: hypers is NULL, but " + std::to_string(hypers) +
                                   " were agreed");
  const bool is_unfit = step != nullptr && step->unfit != nullptr;
  return trainer->Submit(is_unfit ? step->unfit : "",
                         {hypers > 0 ? step->hypers : nullptr, hypers});
}

Status GiveTo(TrainerDriver* trainer, const void* const* parts, const int64_t* lengths,
              int32_t num_parts) {
  if (num_parts < 1 || parts == nullptr || lengths == nullptr)
    return Status::InvalidArgument("trainer: parts or lengths is NULL, or there are none");
  std::vector<std::span<const std::byte>> all;
  for (int32_t i = 0; i < num_parts; ++i) {
    if (lengths[i] < 0 || (lengths[i] > 0 && parts[i] == nullptr))
      return Status::InvalidArgument("trainer: part " + std::to_string(i) +
                                     " has no address, or a negative length");
    all.push_back({static_cast<const std::byte*>(parts[i]), static_cast<size_t>(lengths[i])});
  }
  return trainer->Give(all);
}

Status PositionOf(TrainerDriver* trainer, covey_position* position) {
  if (position == nullptr || position->struct_size != sizeof(*position))
    return Status::InvalidArgument(
        "position is NULL, or struct_size is not that of covey_position");
  Trainer::Position found;
  RETURN_IF_ERROR(trainer->GetPosition(&found));
  *position = {.struct_size = sizeof(*position),
               .may_differ = found.may_differ ? 1 : 0,
               .version = found.version,
               .step = found.step,
               .begin = found.begin,
               .local = found.local,
               .has_state = found.is_anchored ? 1 : 0,
               .step_ns = found.step_time,
               .published = found.published,
               .of_all = found.waited_for_all ? 1 : 0,
               .payload = static_cast<int32_t>(found.payload),
               .catches_up = found.catches_up ? 1 : 0,
               .is_over = found.is_over ? 1 : 0,
               .planned = found.planned,
               .is_open = found.in_step     ? 1
                          : found.in_finish ? 2
                                            : 0};
  return Status::Ok();
}

Status RestoreTo(TrainerDriver* trainer, const covey_position* position) {
  if (position == nullptr || position->struct_size != sizeof(*position))
    return Status::InvalidArgument(
        "position is NULL, or struct_size is not that of covey_position");
  return trainer->Restore({.version = position->version,
                           .step = position->step,
                           .may_differ = position->may_differ != 0,
                           .begin = position->begin,
                           .local = position->local,
                           .is_anchored = position->has_state != 0,
                           .step_time = position->step_ns});
}

}  // namespace

TrainerDriver* FindTrainer(const Use& use, covey_trainer number) {
  return use.get() == nullptr ? nullptr : use->trainers().Find(number);
}

Status NoSuchTrainer(const Use& use) {
  if (use.get() == nullptr) return use.status();
  return Status::InvalidArgument(
      "there is no such trainer: it was closed, ended with its runtime, or was never opened");
}

}  // namespace covey

using covey::OrDefault;
using covey::Report;
using covey::Status;
using covey::TrainerDriver;
using covey::Use;

extern "C" {

covey_code covey_trainer_open(covey_runtime* runtime, const covey_trainer_config* config,
                              covey_trainer* trainer, covey_error* error) {
  const Use use(OrDefault(runtime));
  return Report(covey::Open(use, runtime, config, trainer), error);
}

covey_code covey_trainer_submit(covey_runtime* runtime, covey_trainer trainer,
                                const covey_step* step, covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    return covey::SubmitTo(it, step);
  });
}

covey_code covey_trainer_finish(covey_runtime* runtime, covey_trainer trainer, int32_t strict,
                                covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error,
                            [&](const Use&, TrainerDriver* it) { return it->Finish(strict != 0); });
}

covey_code covey_trainer_settle(covey_runtime* runtime, covey_trainer trainer, covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    return it->Call(&covey::Trainer::OnSettle);
  });
}

covey_code covey_trainer_begin_pass(covey_runtime* runtime, covey_trainer trainer,
                                    covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    return it->Call(&covey::Trainer::OnPass);
  });
}

covey_code covey_trainer_serve(covey_runtime* runtime, covey_trainer trainer, covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    return it->Call(&covey::Trainer::OnServe);
  });
}

covey_code covey_trainer_next(covey_runtime* runtime, covey_trainer trainer, int64_t timeout_ns,
                              covey_action* action, covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    return covey::NextOf(it, timeout_ns, action);
  });
}

covey_code covey_trainer_ack(covey_runtime* runtime, covey_trainer trainer, uint64_t number,
                             int32_t done, covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    return it->Acknowledge(number, done != 0);
  });
}

covey_code covey_trainer_give(covey_runtime* runtime, covey_trainer trainer,
                              const void* const* parts, const int64_t* lengths, int32_t num_parts,
                              covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    return covey::GiveTo(it, parts, lengths, num_parts);
  });
}

covey_code covey_trainer_position(covey_runtime* runtime, covey_trainer trainer,
                                  covey_position* position, covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    return covey::PositionOf(it, position);
  });
}

covey_code covey_trainer_restore(covey_runtime* runtime, covey_trainer trainer,
                                 const covey_position* position, covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    return covey::RestoreTo(it, position);
  });
}

size_t covey_trainer_stats(covey_runtime* runtime, covey_trainer trainer, char* json,
                           size_t capacity) {
  const Use use(OrDefault(runtime));
  TrainerDriver* found = covey::FindTrainer(use, trainer);
  if (found == nullptr) return covey::Fill("{}", json, capacity);
  covey::TrainerCounts counts(static_cast<size_t>(found->group().size()));
  std::string steps;
  const bool is_known = found->GetCounts(&counts, &steps).ok();
  return covey::Fill(is_known ? counts.Json(steps) : "{}", json, capacity);
}

int64_t covey_trainer_arrivals(covey_runtime* runtime, covey_trainer trainer,
                               covey_arrival* arrivals, int64_t capacity) {
  const Use use(OrDefault(runtime));
  TrainerDriver* found = covey::FindTrainer(use, trainer);
  std::vector<covey::TrainerSteps::Arrival> taken;
  if (found == nullptr || arrivals == nullptr || capacity < 1) return 0;
  if (!found->TakeArrivals(static_cast<size_t>(capacity), &taken).ok()) return 0;
  for (size_t i = 0; i < taken.size(); ++i)
    arrivals[i] = {.exchange = taken[i].exchange.number,
                   .at_ns = taken[i].at,
                   .needed = taken[i].exchange.needed};
  return static_cast<int64_t>(taken.size());
}

void covey_trainer_close(covey_runtime* runtime, covey_trainer trainer) {
  const Use use(OrDefault(runtime));
  if (use.get() != nullptr) use->CloseTrainer(trainer);
}

}  // extern "C"
