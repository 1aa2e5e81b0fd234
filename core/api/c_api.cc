// The C API over core/api/session.h: checks, translates, and keeps the default runtime.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/api/c_api.h"
#include "core/api/covey.h"
#include "core/api/covey_control.h"
#include "core/api/runtime_handle.h"
#include "core/api/session.h"
#include "core/base/arena.h"
#include "core/device/plugin_device.h"
#include "core/engine/engine.h"
#include "core/engine/runtime.h"
#include "core/transport/open_hosts.h"
#include "core/transport/plugin.h"

extern char** environ;

namespace covey {
namespace {

constinit std::atomic<covey_runtime*> g_default{nullptr};  // process-wide: the default runtime

static_assert(static_cast<int>(DType::kBool) == COVEY_BOOL &&
              static_cast<int>(DType::kI64) == COVEY_INT64 &&
              static_cast<int>(DType::kI16) == COVEY_INT16 &&
              static_cast<int>(DType::kU64) == COVEY_UINT64);
static_assert(static_cast<int>(Kind::kAlltoall) == COVEY_ALLTOALL &&
              static_cast<int>(Kind::kJoin) == COVEY_JOIN &&
              static_cast<int>(Kind::kNeighborAllreduce) == COVEY_NEIGHBOR_ALLREDUCE &&
              static_cast<int>(Kind::kGather) == COVEY_GATHER &&
              static_cast<int>(Op::kProduct) == COVEY_PRODUCT);
static_assert(static_cast<int>(StatusCode::kNotFinite) == COVEY_NOT_FINITE &&
              kMaxDims == COVEY_MAX_DIMS);

}  // namespace

covey_code Report(const Status& status, covey_error* error) {
  const auto code = static_cast<covey_code>(status.code());
  if (error == nullptr) return code;
  error->code = code;
  error->peer_rank = ToInt(status.peer());
  error->message[0] = '\0';
  if (status.ok()) return code;
  const std::string& message = status.message();
  const size_t length = std::min(message.size(), sizeof(error->message) - 1);
  std::memcpy(error->message, message.data(), length);
  error->message[length] = '\0';
  return code;
}

size_t Fill(const std::string& text, char* out, size_t capacity) {
  if (capacity > 0 && out != nullptr) {
    const size_t length = std::min(text.size(), capacity - 1);
    std::memcpy(out, text.data(), length);
    out[length] = '\0';
  }
  return text.size();
}

covey_runtime* OrDefault(covey_runtime* runtime) {
  return runtime != nullptr ? runtime : g_default.load();
}

namespace {

covey_runtime* MakeDefault() {
  covey_runtime* handle = g_default.load();
  if (handle != nullptr) return handle;
  covey_runtime* fresh = NewRuntimeHandle();
  if (fresh == nullptr || g_default.compare_exchange_strong(handle, fresh)) return fresh;
  DeleteRuntimeHandle(fresh);
  return handle;
}

Status Ended(const Operation& operation) {
  const bool ended = operation.ended.load(std::memory_order_acquire);
  return ended ? operation.status : Status::Timeout("still in flight");
}

// Describes the result of an ended operation that gathers; the memory stays where it is.
Status Result(Operation* operation, int32_t index, covey_tensor* result, int64_t* rows) {
  if (operation == nullptr) return Status::InvalidArgument("unknown or released handle");
  if (result == nullptr) return Status::InvalidArgument("result is NULL");
  RETURN_IF_ERROR(Ended(*operation));
  const std::string kind = "operation " + std::string(NameOf(operation->kind));
  if (!Gathers(operation->kind))
    return Status::InvalidArgument(kind + " has no result of its own: its outputs hold it");
  if (index != 0)
    return Status::InvalidArgument(kind + " has one result, of index 0, not " +
                                   std::to_string(index));
  // api-A4: the caller owns a result that was taken, and may have freed it.
  if (operation->gathered == nullptr)
    return Status::InvalidArgument("the result of this operation was taken before");
  Tensor& tensor = operation->inputs[0];
  int64_t total = 0;
  for (size_t j = 0; j < operation->rows.size(); ++j) {
    if (rows != nullptr) rows[j] = operation->rows[j];
    total += operation->rows[j];
  }
  tensor.shape.dims[0] = total;
  *result = {.struct_size = sizeof(covey_tensor),
             .dtype = static_cast<covey_dtype>(tensor.dtype),
             .ndim = tensor.shape.ndim,
             .shape = tensor.shape.dims.data(),
             .data = operation->gathered.get(),
             .device_type = COVEY_CPU,
             .device_index = 0,
             .stream = nullptr,
             .ready_event = nullptr};
  return Status::Ok();
}

}  // namespace
}  // namespace covey

using covey::OrDefault;
using covey::Report;
using covey::Status;
using covey::Use;

extern "C" {

covey_code covey_init(const covey_config* config, covey_error* error) {
  covey_runtime* handle = covey::MakeDefault();
  if (handle == nullptr) return Report(Status::Exhausted("no memory for a runtime"), error);
  const Use use(handle);
  if (use.forked()) return Report(use.status(), error);
  return Report(covey::OpenRuntime(handle, config, environ), error);
}

covey_code covey_shutdown(covey_error* error) {
  covey_runtime* handle = covey::g_default.load();
  if (handle == nullptr) return COVEY_OK;
  const Use use(handle);
  if (use.forked()) return Report(use.status(), error);
  covey::CloseRuntime(handle);
  return COVEY_OK;
}

int covey_is_initialized(void) { return Use(OrDefault(nullptr)).get() != nullptr ? 1 : 0; }

covey_code covey_runtime_new(const covey_config* config, covey_runtime** runtime,
                             covey_error* error) {
  // api-A1: an argument that is NULL is refused by name, not written to.
  if (runtime == nullptr) return Report(Status::InvalidArgument("runtime is NULL"), error);
  covey_runtime* handle = covey::NewRuntimeHandle();
  if (handle == nullptr) return Report(Status::Exhausted("no memory for a runtime"), error);
  *runtime = handle;
  Status status = Status::Ok();
  {
    const Use use(handle);
    status = covey::OpenRuntime(handle, config, environ);
  }
  if (!status.ok()) {
    covey_runtime_free(handle);
    *runtime = nullptr;
  }
  return Report(status, error);
}

void covey_runtime_free(covey_runtime* runtime) {
  if (runtime == nullptr) return;
  {
    const Use use(OrDefault(runtime));
    if (use.forked()) return;
    covey::CloseRuntime(runtime);
  }
  covey::DeleteRuntimeHandle(runtime);
}

int covey_rank(covey_runtime* runtime) {
  const Use use(OrDefault(runtime));
  return use.get() == nullptr ? -1 : covey::ToInt(use->rank());
}

int covey_size(covey_runtime* runtime) {
  const Use use(OrDefault(runtime));
  return use.get() == nullptr ? -1 : use->size();
}

int covey_local_rank(covey_runtime* runtime) {
  const Use use(OrDefault(runtime));
  return use.get() == nullptr ? -1 : use->config().local_rank;
}

int covey_local_size(covey_runtime* runtime) {
  const Use use(OrDefault(runtime));
  return use.get() == nullptr ? -1 : use->config().local_size;
}

covey_code covey_group_of(covey_runtime* runtime, const int32_t* ranks, int32_t count,
                          covey_group* group, covey_error* error) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return Report(use.status(), error);
  if (ranks == nullptr || count < 0) return Report(Status::InvalidArgument("ranks is NULL"), error);
  // api-A1: an argument that is NULL is refused by name, not written to.
  if (group == nullptr) return Report(Status::InvalidArgument("group is NULL"), error);
  return Report(use->GroupOf({ranks, static_cast<size_t>(count)}, group), error);
}

covey_code covey_group_apart(covey_runtime* runtime, covey_group group, const char* order,
                             covey_group* apart, covey_error* error) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return Report(use.status(), error);
  if (order == nullptr) return Report(Status::InvalidArgument("order is NULL"), error);
  if (apart == nullptr) return Report(Status::InvalidArgument("apart is NULL"), error);
  return Report(use->GroupApart(group, order, apart), error);
}

int covey_group_ranks(covey_runtime* runtime, covey_group group, int32_t* ranks, int32_t capacity) {
  const Use use(OrDefault(runtime));
  const covey::Group* found = use.get() == nullptr ? nullptr : use->FindGroup(group);
  if (found == nullptr) return -1;
  for (int32_t i = 0; ranks != nullptr && i < std::min(capacity, found->size()); ++i)
    ranks[i] = covey::ToInt(found->members[static_cast<size_t>(i)]);
  return found->size();
}

covey_code covey_wait(covey_runtime* runtime, covey_handle handle, int64_t timeout_ns,
                      covey_error* error) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return Report(use.status(), error);
  if (Status ended; use->queue().See(handle, &ended)) return Report(ended, error);
  // api-A2: held: another thread may release the handle, and its place be reused.
  covey::HeldOperation operation(&use->queue(), handle);
  if (operation.get() == nullptr)
    return Report(Status::InvalidArgument("unknown or released handle"), error);
  use->queue().Await(operation.get());
  const covey::Time deadline = timeout_ns < 0 ? covey::kNever : covey::MonotonicNow() + timeout_ns;
  if (use->engine().Wait(*operation, deadline)) {
    operation.See();
    return Report(operation->status, error);
  }
  // api-A5: a wait without a limit cannot time out: this rank is shutting down.
  const bool closing = timeout_ns < 0;
  return Report(
      closing ? Status::Aborted("this rank is shutting down") : Status::Timeout("still in flight"),
      error);
}

int covey_poll(covey_runtime* runtime, covey_handle handle) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return -1;
  covey::HeldOperation operation(&use->queue(), handle);
  if (operation.get() == nullptr) return -1;
  if (use->queue().Poll(operation.get())) use->engine().Kick();
  if (!operation->ended.load(std::memory_order_acquire)) return 0;
  operation.See();
  return 1;
}

covey_code covey_result(covey_runtime* runtime, covey_handle handle, int32_t index,
                        covey_tensor* result, int64_t* rows, covey_error* error) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return Report(use.status(), error);
  const covey::HeldOperation operation(&use->queue(), handle);
  const bool joined = operation.get() != nullptr && operation->kind == covey::Kind::kJoin &&
                      covey::Ended(*operation).ok();
  if (joined && rows != nullptr) {
    rows[0] = operation->rows[0];
    return COVEY_OK;
  }
  return Report(covey::Result(operation.get(), index, result, rows), error);
}

covey_code covey_result_take(covey_runtime* runtime, covey_handle handle, int32_t index,
                             covey_tensor* result, int64_t* rows, covey_error* error) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return Report(use.status(), error);
  const covey::HeldOperation operation(&use->queue(), handle);
  const Status status = covey::Result(operation.get(), index, result, rows);
  if (status.ok()) result->data = operation->gathered.release();
  return Report(status, error);
}

void covey_free(void* data) { delete[] static_cast<std::byte*>(data); }

void covey_release(covey_runtime* runtime, covey_handle handle) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr || use->queue().ReleaseIfDone(handle)) return;
  // api-A2: held: another thread may release the handle, and its place be reused.
  const covey::HeldOperation operation(&use->queue(), handle);
  if (operation.get() == nullptr) return;
  if (operation->callback == nullptr) {
    // api-A3: the memory is the caller's again after this call, so the operation must have ended.
    use->queue().Await(operation.get());
    use->engine().Wait(*operation, covey::kNever);
  }
  use->queue().Release(handle);
}

int covey_release_if_done(covey_runtime* runtime, covey_handle handle) {
  const Use use(OrDefault(runtime));
  return use.get() != nullptr && use->queue().ReleaseIfDone(handle);
}

covey_code covey_arena_alloc(covey_runtime* runtime, size_t length_bytes, void** data,
                             covey_error* error) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return Report(use.status(), error);
  if (data == nullptr) return Report(Status::InvalidArgument("data is NULL"), error);
  *data = use->transport().AllocData(length_bytes);
  if (*data != nullptr) return COVEY_OK;
  return Report(Status::Exhausted("the arena has no room for " + std::to_string(length_bytes) +
                                  " bytes; raise COVEY_ARENA_BYTES (" +
                                  std::to_string(use->config().arena_bytes) + ")"),
                error);
}

void covey_after_fork(covey_runtime* runtime) { covey::AfterFork(OrDefault(runtime)); }

void covey_arena_free(void* data) {
  if (data != nullptr) covey::Arena::FreeData(data);
}

size_t covey_stats(covey_runtime* runtime, char* json, size_t capacity) {
  const Use use(OrDefault(runtime));
  return covey::Fill(use.get() == nullptr ? "{}" : use->StatsJson(), json, capacity);
}

size_t covey_status(covey_runtime* runtime, char* text, size_t capacity) {
  const Use use(OrDefault(runtime));
  std::string status = use.status().message() + "\n";
  if (use.get() != nullptr) use->WithRuntime([&](covey::Runtime* r) { status = r->StatusText(); });
  return covey::Fill(status, text, capacity);
}

int covey_asked(covey_runtime* runtime, int64_t timeout_ns) {
  const Use use(OrDefault(runtime));
  return use.get() == nullptr ? -1 : use->stall().AwaitQuestion(timeout_ns);
}

void covey_tell(covey_runtime* runtime, const char* where) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr || where == nullptr) return;
  use->stall().Tell(where);
  use->engine().Kick();
}

covey_code covey_timeline_start(covey_runtime* runtime, const char* path, covey_error* error) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return Report(use.status(), error);
  return Report(use->StartTimeline(path == nullptr ? "" : path), error);
}

void covey_timeline_stop(covey_runtime* runtime) {
  const Use use(OrDefault(runtime));
  if (use.get() != nullptr) use->StopTimeline();
}

void covey_timeline_span(covey_runtime* runtime, const char* name, int64_t begin_ns,
                         int64_t end_ns) {
  const Use use(OrDefault(runtime));
  if (use.get() != nullptr && name != nullptr) use->TraceSpan(name, begin_ns, end_ns);
}

int64_t covey_now_ns(void) { return covey::MonotonicNow(); }

size_t covey_knobs(char* json, size_t capacity) {
  const Use use(OrDefault(nullptr));
  const bool is_open = use.get() != nullptr;
  return covey::Fill(is_open ? use->config().KnobsJson() : covey::KnobsJson(), json, capacity);
}

const char* covey_version(void) { return COVEY_VERSION; }

int covey_api_version(void) { return COVEY_API_VERSION; }

const char* covey_dtype_name(covey_dtype dtype) {
  const bool known = dtype >= 0 && dtype < covey::kNumDTypes;
  return known ? covey::NameOf(static_cast<covey::DType>(dtype)) : "unknown";
}

covey_code covey_plugin_check(const char* name, covey_error* error) {
  if (name == nullptr) return Report(Status::InvalidArgument("name is NULL"), error);
  covey::Config config;
  Status status = covey::Config::FromEnvironment(environ, "", &config);
  covey::Plugin plugin;
  if (status.ok()) status = covey::Plugin::Open(name, config.plugin_path, &plugin);
  if (status.ok() && plugin.open_device() != nullptr) status = covey::CheckDevice(name, plugin);
  return Report(status, error);
}

int covey_job_create(int32_t size, covey_error* error) {
  covey::Config config;
  int fd = -1;
  Status status = covey::Config::FromEnvironment(environ, "", &config);
  const covey::TransportKind* asked = nullptr;
  // Whether there are several hosts, and what they have, is known to the ranks.
  if (status.ok() && !covey::IsOfHosts(config.transport))
    status = covey::LoadTransport(config.transport, config.plugin_path, &asked);
  if (status.ok()) status = covey::FindTransport("shm")->create_job(size, config.arena_bytes, &fd);
  Report(status, error);
  return status.ok() ? fd : -1;
}

}  // extern "C"
