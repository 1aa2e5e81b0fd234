// A covey_runtime: a handle that may hold a session.
//
// The default one is made once and reused, so that a call that races with shutdown finds a closed
// handle, never freed memory. Every C function holds a Use while it runs; closing waits for them.
// Any thread.
#ifndef COVEY_CORE_API_RUNTIME_HANDLE_H_
#define COVEY_CORE_API_RUNTIME_HANDLE_H_

#include <atomic>
#include <mutex>

#include "core/api/covey.h"
#include "core/base/config.h"
#include "core/base/status.h"

namespace covey {
class Session;
}

struct covey_runtime {
  std::atomic<uint32_t>* alive = nullptr;  // on a page that fork wipes: 0 in a child
  std::atomic<covey::Session*> session{nullptr};
  std::atomic<int> calls{0};
  std::atomic<bool> was_open{false};
  std::mutex mutex;      // serialises open and close
  covey::Config config;  // of the open session; protected by mutex
};

namespace covey {

// A session in use by one call; null inside when there is none, with the reason in status().
class Use {
 public:
  explicit Use(covey_runtime* handle);  // null: as one that was never opened
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  Session* operator->() const { return session_; }
  Session* get() const { return session_; }
  bool forked() const { return forked_; }
  Status status() const;

 private:
  covey_runtime* handle_;
  Session* session_ = nullptr;
  bool forked_ = false;
};

covey_runtime* NewRuntimeHandle();  // null: no memory
void DeleteRuntimeHandle(covey_runtime* handle);

// Joins the job `from` and the environment describe. Again with equal arguments: nothing. The
// caller holds a Use.
Status OpenRuntime(covey_runtime* handle, const covey_config* from, const char* const* environment);
// In a child of fork(): pages of the arena that the child writes become its own. Else: nothing.
void AfterFork(covey_runtime* handle);
// Leaves the job. The caller holds a Use.
void CloseRuntime(covey_runtime* handle);

}  // namespace covey
#endif  // COVEY_CORE_API_RUNTIME_HANDLE_H_
