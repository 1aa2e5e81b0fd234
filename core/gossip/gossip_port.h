// Models averaged in pairs by members that share memory: waiting is a sleep at an event count.
#ifndef COVEY_CORE_GOSSIP_GOSSIP_PORT_H_
#define COVEY_CORE_GOSSIP_GOSSIP_PORT_H_

#include <atomic>
#include <functional>
#include <vector>

#include "core/gossip/pairs_port.h"
#include "core/transport/event_count.h"

namespace covey {

class GossipPort : public PairsPort {
 public:
  // `transport` has words and outlives the port, as does `group`, of which this rank is a member.
  GossipPort(Bundle bundle, const Group* group, Transport* transport);

  // `offsets`: where each member's block lies in its region. All members have agreed.
  void Open(const std::vector<uint64_t>& offsets);

  Seen Peek(int32_t member, std::span<void* const> to) override;
  void Interrupt() override;
  void Close() override;
  bool CanBeFreed() override;

 protected:
  using Look = std::function<Looked(Time now)>;

  // Until `look` returns an end, or as WaitForEvent says. The simulator has another.
  virtual Status WaitFor(const Look& look, Time deadline);

  std::atomic<bool> stop_{false};

 private:
  Status Gather(std::span<void* const> model, Time deadline, Result result) override;
  bool TrainsDuringFinish(std::span<void* const> model) override;
  void HearOfLosses() override;
  void Meet();
  Status Await(std::vector<int32_t> (Gossip::*missing)(), Time deadline);
  Looked LookFor(std::vector<int32_t> (Gossip::*missing)(), Time now);

  Transport* transport_;
  SharedAtomics* words_;
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_GOSSIP_PORT_H_
