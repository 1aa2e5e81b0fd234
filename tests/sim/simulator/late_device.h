// A device that computes inputs late: its events complete in the order of their times, whatever the
// order in which they were recorded, and until then the memory holds something else.
#ifndef COVEY_TESTS_SIM_SIMULATOR_LATE_DEVICE_H_
#define COVEY_TESTS_SIM_SIMULATOR_LATE_DEVICE_H_

#include <deque>
#include <set>
#include <string>

#include "core/base/clock.h"
#include "core/run/device.h"
#include "tests/sim/simulator/payload.h"

namespace covey {

class LateDevice final : public Device {
 public:
  explicit LateDevice(Clock* clock) : clock_(clock) {}

  // The event of the inputs of `payload`, which the device has computed at `at`. It outlives this.
  void* Record(Payload* payload, Time at) {
    payload->Hide();
    events_.push_back({payload, at});
    return &events_.back();
  }

  bool IsReady(void* recorded) override {
    auto* event = static_cast<Event*>(recorded);
    if (!event->completed && event->at <= clock_->Now()) Complete(event);
    return event->completed;
  }
  void OrderAfter(void* stream) override { ordered_.insert(stream); }

  // Before an operation is judged that ended without its inputs.
  void Finish(void* event) {
    if (!static_cast<Event*>(event)->completed) Complete(static_cast<Event*>(event));
  }

  bool IsOrdered(void* stream) const { return ordered_.count(stream) > 0; }
  const std::string& failure() const { return failure_; }

 private:
  struct Event {
    Payload* payload = nullptr;
    Time at = 0;
    bool completed = false;
  };

  void Complete(Event* event) {
    event->completed = true;
    if (!event->payload->Show()) failure_ = "an input was written before the device had made it";
  }

  Clock* clock_;
  std::deque<Event> events_;
  std::set<void*> ordered_;
  std::string failure_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_LATE_DEVICE_H_
