// covey_submit: from a request to an operation in the queue.
#include "core/api/c_api_submit.h"

#include "core/api/c_api.h"
#include "core/api/covey.h"
#include "core/api/repeats.h"
#include "core/api/runtime_handle.h"
#include "core/api/session.h"
#include "core/api/validate.h"
#include "core/engine/engine.h"

namespace covey {
namespace {

// The caller's callback and its context, owned by the operation until called.
struct UserCallback {
  covey_callback function;
  void* context;
};

void CallBack(void* context, uint64_t handle, const Status& status) {
  const std::unique_ptr<UserCallback> user(static_cast<UserCallback*>(context));
  covey_error error = COVEY_INIT(covey_error);
  Report(status, &error);
  user->function(user->context, handle, &error);
}

// The device of the first tensor; opened if this is the first of all.
Status DeviceOf(Session* session, const covey_request& r, Device** device) {
  const Status used = session->UseDevice(r.inputs[0].device_type, r.inputs[0].device_index, device);
  if (used.ok() || r.name == nullptr) return used;
  return Status::Unsupported("'" + std::string(r.name) + "': " + used.message());
}

// Submits a request that is equal to the last of its name, which was valid, without validating it
// again. `*again`: whether it is; if not, nothing is submitted.
Status SubmitAgain(Session* session, const covey_request& request, covey_handle* handle,
                   bool* again) {
  *again = false;
  const char* name = request.name == nullptr ? "" : request.name;
  Operation* operation = session->queue().TakeRepeatable(request.group, name);
  if (operation == nullptr) return Status::Ok();
  // engine-Q7: it still holds the request of its last submission.
  *again = Repeats(request, session->config().check_nan != 0, operation);
  if (*again) {
    operation->awaited = true;
    return session->engine().SubmitRepeat(operation, handle);
  }
  session->queue().Discard(operation);
  return Status::Ok();
}

Status Submit(Session* session, const covey_request& request, covey_handle* handle) {
  if (request.waits != 0) {
    bool again = false;
    if (Status submitted = SubmitAgain(session, request, handle, &again); again) return submitted;
  }
  ValidationContext context{.group = session->FindGroup(request.group),
                            .self = session->rank(),
                            .check_nan = session->config().check_nan != 0};
  Device* device = nullptr;
  const bool has_tensors = request.num_tensors > 0 && request.inputs != nullptr;
  if (has_tensors && request.inputs[0].device_type != COVEY_CPU) {
    RETURN_IF_ERROR(DeviceOf(session, request, &device));
    context.has_device[COVEY_CUDA] = true;
  }
  Operation* operation = session->queue().New();
  Status valid = Validate(request, context, operation);
  if (valid.ok() && device != nullptr) valid = OrderAfterStreams(session, operation);
  if (!valid.ok()) {
    session->queue().Discard(operation);
    return valid;
  }
  const std::vector<void*> recorded = operation->recorded;  // empty on the CPU
  UserCallback* user = nullptr;
  operation->awaited = request.waits != 0;
  operation->callback_only = request.callback != nullptr;
  if (request.callback != nullptr) {
    user = new UserCallback{request.callback, request.context};
    operation->callback = CallBack;
    operation->context = user;
  }
  if (Status queued = session->queue().Submit(operation, handle); !queued.ok()) {
    delete user;
    for (void* event : recorded) device->GiveBack(event);
    return queued;
  }
  if (request.waits == 0) session->engine().Kick();
  return Status::Ok();
}

}  // namespace

Status OrderAfterStreams(Session* session, Operation* operation) {
  const Tensor& first = operation->inputs.front();
  Device* device = nullptr;
  RETURN_IF_ERROR(
      session->UseDevice(static_cast<int32_t>(first.device), first.device_index, &device));
  const Tensor* last = nullptr;
  for (Tensor& t : operation->inputs) {
    if (t.ready_event != nullptr) continue;
    if (last == nullptr || last->stream != t.stream) {
      operation->recorded.push_back(device->Record(t.stream));
      last = &t;
    }
    t.ready_event = operation->recorded.back();
    if (t.ready_event == nullptr) break;
  }
  if (operation->recorded.empty() || operation->recorded.back() != nullptr) return Status::Ok();
  operation->recorded.pop_back();
  for (void* event : operation->recorded) device->GiveBack(event);
  return Status::Aborted("this rank has lost its device: " + device->Failure());
}

}  // namespace covey

using covey::OrDefault;
using covey::Report;
using covey::Status;
using covey::Use;

extern "C" {

covey_code covey_submit(covey_runtime* runtime, const covey_request* request, covey_handle* handle,
                        covey_error* error) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return Report(use.status(), error);
  if (request == nullptr || handle == nullptr)
    return Report(Status::InvalidArgument("request or handle is NULL"), error);
  if (request->struct_size != sizeof(covey_request))
    return Report(Status::InvalidArgument(
                      "covey_request has another size here: built against another covey.h, or "
                      "struct_size not set"),
                  error);
  return Report(covey::Submit(use.get(), *request, handle), error);
}

}  // extern "C"
