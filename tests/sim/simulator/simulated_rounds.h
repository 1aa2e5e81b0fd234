// The rounds of one part of a simulated rank's training.
#ifndef COVEY_TESTS_SIM_SIMULATOR_SIMULATED_ROUNDS_H_
#define COVEY_TESTS_SIM_SIMULATOR_SIMULATED_ROUNDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/engine/trainer_rounds.h"
#include "core/method/method.h"
#include "core/transport/transport.h"

namespace covey {

struct SimulatedRounds {
  Payload payload{};
  uint64_t last = 0;  // no version follows it; 0: any number do
  std::unique_ptr<RoundsPort> port;
  std::unique_ptr<TrainerRounds> rounds;
  bool is_closed = false;

  void Close() {
    if (!std::exchange(is_closed, true)) port->Close();
  }
};

// Those of a member of the group: `count` float64 in one span.
RoundsPort::Bundle SimulatedBundle(const MethodPlan& plan, const Group& group, size_t count);

// `part->port` is open. The rounds begin at version `from`, of a trainer that ends at `end`. All
// that is named here outlives them.
struct SimulatedMemory {
  std::byte* copies;
  std::byte* model;
  const TrainerLayout* layout;
  Transport* transport;
};
void OpenRounds(const MethodChoice& choice, const MethodView& view, int64_t from, int64_t end,
                const SimulatedMemory& memory, SimulatedRounds* part);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_SIMULATED_ROUNDS_H_
