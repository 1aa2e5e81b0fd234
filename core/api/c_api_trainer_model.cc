// Trainings by a method: where gradients and models lie, and the models of other ranks.
#include <algorithm>
#include <string>
#include <vector>

#include "core/api/c_api_trainer.h"
#include "core/api/session.h"
#include "core/engine/far_window.h"
#include "core/engine/shared_window.h"

namespace covey {
namespace {

Status FillSpans(const TrainerDriver& trainer, std::byte* base, void** spans) {
  if (spans == nullptr) return Status::InvalidArgument("trainer: spans is NULL");
  const std::vector<size_t>& offsets = trainer.layout().offsets_bytes();
  for (size_t i = 0; i < offsets.size(); ++i)
    spans[i] = base == nullptr ? nullptr : base + offsets[i];
  return Status::Ok();
}

// Each of `spans` that has an element has an address.
template <typename Pointer>
Status CheckAddresses(const TrainerDriver& trainer, const Pointer* spans) {
  const std::vector<TrainerLayout::Parameter>& parameters = trainer.layout().parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    if (spans[i] == nullptr && parameters[i].count > 0)
      return Status::InvalidArgument("trainer: span " + std::to_string(i) + " has no address");
  return Status::Ok();
}

Status PeekOf(TrainerDriver* trainer, int32_t rank, void* const* spans, covey_seen* seen) {
  const size_t count = spans == nullptr ? 0 : trainer->layout().offsets_bytes().size();
  if (seen == nullptr || seen->struct_size != sizeof(*seen))
    return Status::InvalidArgument("seen is NULL, or struct_size is not that of covey_seen");
  if (spans != nullptr) RETURN_IF_ERROR(CheckAddresses(*trainer, spans));
  const std::vector<Rank>& members = trainer->group().members;
  const auto found = std::find(members.begin(), members.end(), Rank{rank});
  if (found == members.end())
    return Status::InvalidArgument("trainer: rank " + std::to_string(rank) +
                                   " is no member of its group");
  TrainerDriver::Seen model;
  RETURN_IF_ERROR(
      trainer->Peek(static_cast<int32_t>(found - members.begin()), {spans, count}, &model));
  seen->state = static_cast<covey_seen_state>(model.state);
  seen->superseded = model.is_superseded ? 1 : 0;
  seen->step = static_cast<int64_t>(model.step);
  seen->version = model.version;
  return Status::Ok();
}

// The model's tensors on a device.
Status PlaceAt(const Use& use, TrainerDriver* trainer, const covey_tensor* tensors, int32_t count) {
  const std::vector<TrainerLayout::Parameter>& parameters = trainer->layout().parameters();
  if (tensors == nullptr || static_cast<size_t>(count) != parameters.size())
    return Status::InvalidArgument("trainer: tensors is NULL, or num_tensors is not " +
                                   std::to_string(parameters.size()));
  std::vector<Tensor> model;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const covey_tensor& from = tensors[i];
    const auto wrong = [i](const std::string& what) {
      return Status::InvalidArgument("trainer: tensor " + std::to_string(i) + " " + what);
    };
    if (from.struct_size != sizeof(from)) return wrong("has another struct_size than covey_tensor");
    const bool has_shape = from.ndim == 1 && from.shape != nullptr;
    const bool has_data = from.data != nullptr || parameters[i].count == 0;
    if (!has_shape || !has_data || static_cast<DType>(from.dtype) != parameters[i].dtype ||
        from.shape[0] != parameters[i].count)
      return wrong("is not its parameter: " + std::to_string(parameters[i].count) +
                   " elements of " + NameOf(parameters[i].dtype) + ", in one dimension");
    Device* device = nullptr;
    if (from.device_type != COVEY_CPU)
      RETURN_IF_ERROR(use->UseDevice(from.device_type, from.device_index, &device));
    model.push_back({.dtype = parameters[i].dtype,
                     .shape = {.ndim = 1, .dims = {from.shape[0]}},
                     .data = static_cast<std::byte*>(from.data),
                     .device = static_cast<DeviceType>(from.device_type),
                     .device_index = from.device_index,
                     .stream = from.stream,
                     .ready_event = from.ready_event});
  }
  return trainer->Place(std::move(model));
}

Status ShowOf(TrainerDriver* trainer, const void* const* spans) {
  const size_t count = trainer->layout().parameters().size();
  if (spans == nullptr) return Status::InvalidArgument("trainer: spans is NULL");
  RETURN_IF_ERROR(CheckAddresses(*trainer, spans));
  return trainer->ShowModel({spans, count});
}

}  // namespace

bool AllocateWindow(const Use& use, const covey_trainer_config& config, size_t length_bytes,
                    const TrainerDriver::Memory& memory, std::unique_ptr<TrainerWindow>* window) {
  const Group* group = use->FindGroup(config.group);
  Transport& transport = use->transport();
  const std::byte* model =
      config.in_place != 0 || config.copies != 0 ? memory.model.get() : nullptr;
  if (group->size() == 1) return true;
  if (transport.words() == nullptr) {
    const ChannelDriver driver = use->Driver();
    *window = std::make_unique<FarWindow>(FarWindow::Options{.group = group,
                                                             .channel = use->NewChannel(),
                                                             .kick = driver.kick,
                                                             .clock = driver.clock,
                                                             .model = model,
                                                             .is_copy = config.in_place == 0,
                                                             .length_bytes = length_bytes,
                                                             .version = config.begin});
    return true;
  }
  const uint64_t offset = use->AllocBlock(SharedWindow::BlockBytes(group->size()));
  if (offset == Transport::kNoOffset) return false;
  const bool is_seen =
      model != nullptr && transport.OffsetOf(model, length_bytes) != Transport::kNoOffset;
  *window = std::make_unique<SharedWindow>(SharedWindow::Options{.transport = &transport,
                                                                 .group = group,
                                                                 .offset = offset,
                                                                 .model = is_seen ? model : nullptr,
                                                                 .is_copy = config.in_place == 0,
                                                                 .length_bytes = length_bytes,
                                                                 .version = config.begin});
  return true;
}

}  // namespace covey

using covey::Status;
using covey::TrainerDriver;
using covey::Use;

extern "C" {

covey_code covey_trainer_gradients(covey_runtime* runtime, covey_trainer trainer, void** spans,
                                   covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    std::byte* base = nullptr;
    const Status status = it->GetMemory(false, &base);
    return status.ok() ? covey::FillSpans(*it, base, spans) : status;
  });
}

covey_code covey_trainer_model(covey_runtime* runtime, covey_trainer trainer, void** spans,
                               covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    std::byte* base = nullptr;
    const Status status = it->GetMemory(true, &base);
    return status.ok() ? covey::FillSpans(*it, base, spans) : status;
  });
}

covey_code covey_trainer_place(covey_runtime* runtime, covey_trainer trainer,
                               const covey_tensor* tensors, int32_t num_tensors,
                               covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use& use, TrainerDriver* it) {
    return covey::PlaceAt(use, it, tensors, num_tensors);
  });
}

covey_code covey_trainer_peek(covey_runtime* runtime, covey_trainer trainer, int32_t rank,
                              void* const* spans, covey_seen* seen, covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    return covey::PeekOf(it, rank, spans, seen);
  });
}

covey_code covey_trainer_show(covey_runtime* runtime, covey_trainer trainer,
                              const void* const* spans, covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    return covey::ShowOf(it, spans);
  });
}

void covey_trainer_hide(covey_runtime* runtime, covey_trainer trainer) {
  const Use use(covey::OrDefault(runtime));
  if (TrainerDriver* found = covey::FindTrainer(use, trainer)) found->Hide();
}

}  // extern "C"
