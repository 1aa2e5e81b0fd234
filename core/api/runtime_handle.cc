#include "core/api/runtime_handle.h"
#include "core/api/session.h"

#include <sys/mman.h>

#include <new>
#include <thread>

#include "core/method/method.h"

namespace covey {
namespace {

constexpr size_t kPageBytes = 4096;

Status ReadConfig(const covey_config* from, const char* const* environment, Config* config) {
  // api-A1: another covey.h has another layout: its struct is not read.
  if (from != nullptr && from->struct_size != sizeof(covey_config))
    return Status::InvalidArgument(
        "covey_config has another size here: built against another covey.h, or struct_size not "
        "set");
  std::string settings = from != nullptr && from->settings != nullptr ? from->settings : "";
  if (from != nullptr && from->size > 0) {
    const std::string rank = std::to_string(from->rank);
    const std::string size = std::to_string(from->size);
    settings = "rank=" + rank + "\nsize=" + size + "\n" + settings;
    if (from->shm_fd > 0) settings = "shm_fd=" + std::to_string(from->shm_fd) + "\n" + settings;
  }
  RETURN_IF_ERROR(Config::FromEnvironment(environment, settings, config));
  if (config->started_by == "torchrun")
    return Status::InvalidArgument(
        "this process was started by torchrun as one of several, and nothing has told it where the "
        "job's memory is: use covey.init() of the Python package, which does, or start it with "
        "coveyrun");
  if (config->size > 1 && config->shm_fd < 0 && config->TransportName() == "shm")
    return Status::InvalidArgument(
        "this process was told to be rank " + std::to_string(ToInt(config->rank)) + " of " +
        std::to_string(config->size) +
        ", but not where the job's shared memory is (COVEY_SHM_FD): start it with "
        "coveyrun -np " +
        std::to_string(config->size));
  MethodChoice choice;
  if (const Status known = ParseMethod(config->method, &choice); !known.ok())
    return Status::InvalidArgument("COVEY_METHOD, or the setting method: " + known.message());
  config->method = choice.Text();  // ranks that spell one method differently agree
  return Status::Ok();
}

}  // namespace

Use::Use(covey_runtime* handle) : handle_(handle) {
  if (handle_ == nullptr) return;
  handle_->calls.fetch_add(1);
  // api-A6: a child of fork() has the parent's memory without its threads: its calls are refused.
  forked_ = handle_->alive->load(std::memory_order_relaxed) == 0;
  if (!forked_) session_ = handle_->session.load();
}

Use::~Use() {
  if (handle_ != nullptr) handle_->calls.fetch_sub(1);
}

Status Use::status() const {
  if (session_ != nullptr) return Status::Ok();
  if (forked_)
    return Status::Forked(
        "Covey cannot be used in a child of fork(): the runtime belongs to the parent; "
        "start the process with spawn instead");
  if (handle_ != nullptr && handle_->was_open.load())
    return Status::NotInitialized("Covey has been shut down; call init() again first");
  return Status::NotInitialized("Covey is not initialized; call init() first");
}

covey_runtime* NewRuntimeHandle() {
  auto* handle = new covey_runtime;
  void* page =
      mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    delete handle;
    return nullptr;
  }
  madvise(page, kPageBytes, MADV_WIPEONFORK);
  handle->alive = new (page) std::atomic<uint32_t>(1);
  return handle;
}

void DeleteRuntimeHandle(covey_runtime* handle) {
  munmap(static_cast<void*>(handle->alive), kPageBytes);
  delete handle;
}

Status OpenRuntime(covey_runtime* handle, const covey_config* from,
                   const char* const* environment) {
  Config config;
  RETURN_IF_ERROR(ReadConfig(from, environment, &config));
  const std::lock_guard lock(handle->mutex);
  if (handle->session.load() != nullptr) {
    const std::string difference = config.Difference(handle->config);
    // api-A7: equal arguments only; else the caller would run with those of another.
    if (difference.empty()) return Status::Ok();
    return Status::InvalidArgument("init() was called before with other arguments (" + difference +
                                   "); call shutdown() first");
  }
  std::unique_ptr<Session> session;
  RETURN_IF_ERROR(Session::Open(config, &session));
  handle->config = config;
  handle->was_open.store(true);
  handle->session.store(session.release());
  return Status::Ok();
}

void AfterFork(covey_runtime* handle) {
  if (handle == nullptr || handle->alive->load() != 0) return;
  if (Session* session = handle->session.load()) session->transport().BecomePrivate();
}

void CloseRuntime(covey_runtime* handle) {
  const std::lock_guard lock(handle->mutex);
  Session* session = handle->session.exchange(nullptr);
  if (session == nullptr) return;
  session->Interrupt();
  while (handle->calls.load() > 1) std::this_thread::yield();  // this call itself is one
  delete session;
}

}  // namespace covey
