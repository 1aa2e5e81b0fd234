// Pairs over the memory of a simulated network: a rank that waits lets others run.
#ifndef COVEY_TESTS_SIM_SIMULATOR_SIMULATED_GOSSIP_H_
#define COVEY_TESTS_SIM_SIMULATOR_SIMULATED_GOSSIP_H_

#include <functional>
#include <utility>

#include "core/gossip/gossip_port.h"

namespace covey {

class SimulatedGossip final : public GossipPort {
 public:
  SimulatedGossip(Bundle bundle, const Group* group, Transport* transport, Clock* clock,
                  std::function<void()> yield)
      : GossipPort(std::move(bundle), group, transport), yield_(std::move(yield)) {
    clock_ = clock;
  }

 protected:
  Status WaitFor(const Look& look, Time deadline) override {
    for (;;) {
      if (stop_.load()) return Status::Aborted("the simulation is over");
      const Looked looked = look(clock_->Now());
      if (looked.end) return *looked.end;
      if (clock_->Now() >= deadline) return Status::Timeout("the deadline is over");
      yield_();
    }
  }

 private:
  std::function<void()> yield_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_SIMULATED_GOSSIP_H_
