// The transport of a simulated rank over mail: on a host of its own, or on one with other ranks.
#ifndef COVEY_TESTS_SIM_SIMULATOR_MAILED_TRANSPORT_H_
#define COVEY_TESTS_SIM_SIMULATOR_MAILED_TRANSPORT_H_

#include <memory>
#include <utility>
#include <vector>

#include "core/transport/composite.h"
#include "core/transport/mirrored.h"
#include "tests/sim/simulator/host_view.h"
#include "tests/sim/simulator/mail_link.h"

namespace covey {

// Each host but the last has `per_host` ranks.
inline Status OpenMailedTransport(InprocNetwork* network, Rank rank, int32_t per_host,
                                  const FarPeers::Options& options,
                                  std::unique_ptr<Transport>* transport) {
  if (per_host == 1)
    return Mirrored::Open({.arena_bytes = options.arena_bytes, .put_bytes = options.put_bytes},
                          std::make_unique<MailLink>(network, rank), transport);
  Transport& node = network->transport(rank);
  std::vector<Rank> hosted = HostedWith(rank, per_host, node.size());
  auto mail = std::make_shared<SortedMail>(&node, hosted);
  auto far =
      std::make_unique<FarPeers>(std::make_unique<MailLink>(network, mail, per_host), options);
  return Composite::Open(0, std::make_unique<HostView>(mail), std::move(hosted), std::move(far),
                         transport);
}

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_MAILED_TRANSPORT_H_
