// What the engine must know of a device: when memory may be read, and how to tell a stream that
// results are there. One implementation per DeviceType; the CPU needs none.
//
// A device call never blocks. Called with the baton held.
#ifndef COVEY_CORE_RUN_DEVICE_H_
#define COVEY_CORE_RUN_DEVICE_H_

namespace covey {

class Device {
 public:
  virtual ~Device() = default;
  // Whether the work recorded before `ready_event` has completed, so that tensor memory may be
  // read.
  virtual bool IsReady(void* ready_event) = 0;
  // Orders what was written to tensor memory before whatever `stream` does next.
  virtual void OrderAfter(void* stream) = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_DEVICE_H_
