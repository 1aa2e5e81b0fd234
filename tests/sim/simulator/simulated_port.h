// Rounds over the memory of a simulated network: a rank that waits lets others run.
#ifndef COVEY_TESTS_SIM_SIMULATOR_SIMULATED_PORT_H_
#define COVEY_TESTS_SIM_SIMULATOR_SIMULATED_PORT_H_

#include <functional>
#include <utility>

#include "core/partial/shared_port.h"

namespace covey {

class SimulatedPort final : public SharedPort {
 public:
  // `yield`: other ranks run; called without a lock.
  SimulatedPort(Bundle bundle, const Group* group, Transport* transport, Clock* clock,
                std::function<void()> yield)
      : SharedPort(std::move(bundle), group, transport), yield_(std::move(yield)) {
    clock_ = clock;
  }

 protected:
  Status WaitFor(const Look& look, Time deadline) override {
    for (;;) {
      const Looked looked = look(clock_->Now());
      if (looked.end) return *looked.end;
      if (stop_.load()) return Status::Aborted("the simulation is over");
      if (clock_->Now() >= deadline) return Status::Timeout("the deadline is over");
      if (!looked.moved) yield_();
    }
  }

 private:
  std::function<void()> yield_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_SIMULATED_PORT_H_
