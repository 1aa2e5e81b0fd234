// UCX's context and worker of a link: its address, its progress, and a descriptor to sleep on.
//
// One thread at a time. Nothing blocks but the destructor, for a second at most.
#ifndef COVEY_OPS_TRANSPORTS_UCX_WORKER_H_
#define COVEY_OPS_TRANSPORTS_UCX_WORKER_H_

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "ops/transports/ucx/fabric.h"

namespace covey::ucx {

class Worker {
 public:
  // Everything that arrives is an active message `id`, given to `arrive` with `self`. Empty: done;
  // else one sentence.
  static std::string Open(const Fabric& fabric, unsigned id, ucp_am_recv_callback_t arrive,
                          void* self, std::unique_ptr<Worker>* worker);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ucp_worker_h get() const { return worker_; }
  const void* address() const { return address_; }
  size_t address_length() const { return address_length_; }

  // False: there was nothing to do.
  bool Progress() { return ucp_worker_progress(worker_) != 0; }
  // The descriptor becomes readable with the next thing to do. False: there is something already.
  bool Arm() { return ucp_worker_arm(worker_) == UCS_OK; }
  int descriptor() const { return descriptor_; }
  // The descriptor becomes readable at once.
  void Wake() { ucp_worker_signal(worker_); }

 private:
  Worker() = default;
  // Sends what waits. False: that did not end in time.
  bool Flush();

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_address_t* address_ = nullptr;
  size_t address_length_ = 0;
  int descriptor_ = -1;
};

}  // namespace covey::ucx
#endif  // COVEY_OPS_TRANSPORTS_UCX_WORKER_H_
