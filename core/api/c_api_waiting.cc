// Waiting: see core/api/covey_waiting.h.
#include "core/api/c_api.h"
#include "core/api/covey_waiting.h"
#include "core/api/runtime_handle.h"
#include "core/api/session.h"
#include "core/engine/engine.h"
#include "core/engine/tensor_queue.h"

namespace covey {

Time WaitedTime(Session* session) {
  return session->engine().waited_ns() + static_cast<Time>(session->rounds().Sum().waited_ns);
}

}  // namespace covey

using covey::OrDefault;
using covey::Use;

extern "C" {

int covey_awaited(covey_runtime* runtime, covey_handle handle, int32_t* ranks, int32_t capacity) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return -1;
  const covey::HeldOperation operation(&use->queue(), handle);
  if (operation.get() == nullptr) return -1;
  const std::vector<int32_t> awaited = use->Awaited(*operation);
  for (size_t i = 0; i < awaited.size() && static_cast<int32_t>(i) < capacity; ++i)
    ranks[i] = awaited[i];
  return static_cast<int>(awaited.size());
}

int64_t covey_blocked_ns(covey_runtime* runtime) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return 0;
  return covey::WaitedTime(use.get());
}

}  // extern "C"
