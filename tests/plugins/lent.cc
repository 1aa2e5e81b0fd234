// A plug-in whose transports are the shared memory it was linked with, under other names: enough to
// run a job over code that only the plug-in holds.
#include "core/transport/transport.h"

namespace covey {
namespace {

Status OpenLent(const TransportOptions& options, std::unique_ptr<Transport>* transport) {
  return FindTransport("shm")->open(options, transport);
}

constexpr TransportKind kTiny{"tiny", OpenLent, nullptr};
constexpr TransportKind kUcx{"ucx", OpenLent, nullptr};
const TransportRegistration kTinyRegistration(kTiny);
const TransportRegistration kUcxRegistration(kUcx);

}  // namespace
}  // namespace covey
