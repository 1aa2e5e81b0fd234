#include "ops/transports/ucx/worker.h"

#include <poll.h>

#include "core/base/clock.h"

namespace covey::ucx {
namespace {

constexpr Time kLongestFlush = kSecond;

std::string Failed(const char* call, ucs_status_t status) {
  return std::string(call) + " of UCX: " + ucs_status_string(status);
}

ucs_status_t Initialize(const Fabric& fabric, ucp_context_h* context) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return status;
  status = ucp_config_modify(config, "TLS", fabric.transports.c_str());
  if (status == UCS_OK && !fabric.devices.empty())
    status = ucp_config_modify(config, "NET_DEVICES", fabric.devices.c_str());
  ucp_params_t wanted{};
  wanted.field_mask = UCP_PARAM_FIELD_FEATURES;
  wanted.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (status == UCS_OK) status = ucp_init(&wanted, config, context);
  ucp_config_release(config);
  return status;
}

}  // namespace

std::string Worker::Open(const Fabric& fabric, unsigned id, ucp_am_recv_callback_t arrive,
                         void* self, std::unique_ptr<Worker>* worker) {
  std::unique_ptr<Worker> it(new Worker);
  ucs_status_t status = Initialize(fabric, &it->context_);
  if (status != UCS_OK) return Failed("ucp_init", status);
  ucp_worker_params_t wanted{};
  wanted.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  wanted.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = ucp_worker_create(it->context_, &wanted, &it->worker_);
  if (status != UCS_OK) return Failed("ucp_worker_create", status);
  ucp_worker_attr_t granted{};
  granted.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE;
  ucp_worker_query(it->worker_, &granted);
  if (granted.thread_mode == UCS_THREAD_MODE_SINGLE)
    return "this UCX was built without threads (--enable-mt)";
  status = ucp_worker_get_address(it->worker_, &it->address_, &it->address_length_);
  if (status != UCS_OK) return Failed("ucp_worker_get_address", status);
  status = ucp_worker_get_efd(it->worker_, &it->descriptor_);
  if (status != UCS_OK) return Failed("ucp_worker_get_efd", status);
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = id;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = arrive;
  handler.arg = self;
  status = ucp_worker_set_am_recv_handler(it->worker_, &handler);
  if (status != UCS_OK) return Failed("ucp_worker_set_am_recv_handler", status);
  *worker = std::move(it);
  return {};
}

Worker::~Worker() {
  if (address_ != nullptr) ucp_worker_release_address(worker_, address_);
  // UCX ends a process that destroys a worker amid the answer to a peer's connection. A worker
  // whose answer does not get away in time stays until the process ends.
  if (worker_ != nullptr && !Flush()) return;
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

bool Worker::Flush() {
  const ucp_request_param_t how{};
  const ucs_status_ptr_t flush = ucp_worker_flush_nbx(worker_, &how);
  if (!UCS_PTR_IS_PTR(flush)) return true;
  const Time limit = MonotonicNow() + kLongestFlush;
  bool is_done = false;
  while (!is_done && MonotonicNow() < limit) {
    pollfd wake{descriptor_, POLLIN, 0};
    if (!Progress() && Arm()) poll(&wake, 1, 10);
    is_done = ucp_request_check_status(flush) != UCS_INPROGRESS;
  }
  if (is_done) ucp_request_free(flush);
  return is_done;
}

}  // namespace covey::ucx
