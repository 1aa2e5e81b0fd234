// Waiting: see core/api/covey_waiting.h.
#include <algorithm>

#include "core/api/c_api.h"
#include "core/api/covey_waiting.h"
#include "core/api/runtime_handle.h"
#include "core/api/session.h"
#include "core/engine/engine.h"
#include "core/engine/runtime.h"
#include "core/engine/tensor_queue.h"

namespace covey {

Time WaitedTime(Session* session) {
  return session->engine().waited_ns() + static_cast<Time>(session->rounds().Sum().waited_ns);
}

}  // namespace covey

using covey::OrDefault;
using covey::Use;

namespace {

// As many of `all` as there is room for; returns how many there are.
int Tell(const std::vector<int32_t>& all, int32_t* ranks, int32_t capacity) {
  for (size_t i = 0; i < all.size() && static_cast<int32_t>(i) < capacity; ++i) ranks[i] = all[i];
  return static_cast<int>(all.size());
}

}  // namespace

extern "C" {

int covey_awaited(covey_runtime* runtime, covey_handle handle, int32_t* ranks, int32_t capacity) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return -1;
  const covey::HeldOperation operation(&use->queue(), handle);
  if (operation.get() == nullptr) return -1;
  return Tell(use->Awaited(*operation), ranks, capacity);
}

int covey_lost(covey_runtime* runtime, int32_t* ranks, int32_t capacity) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return -1;
  std::vector<int32_t> lost;
  use->WithRuntime([&](covey::Runtime* r) {
    for (const covey::Rank rank : r->lost()) lost.push_back(covey::ToInt(rank));
  });
  std::sort(lost.begin(), lost.end());
  return Tell(lost, ranks, capacity);
}

int64_t covey_blocked_ns(covey_runtime* runtime) {
  const Use use(OrDefault(runtime));
  if (use.get() == nullptr) return 0;
  return covey::WaitedTime(use.get());
}

}  // extern "C"
