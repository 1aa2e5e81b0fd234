#include "core/transport/transport.h"

#include <algorithm>

namespace covey {
namespace {

// Filled before main() by the registrations of ops/transports, read-only from then on.
std::vector<const TransportKind*>& Catalogue() {
  static std::vector<const TransportKind*> catalogue;  // process-wide: registrations only
  return catalogue;
}

}  // namespace

TransportRegistration::TransportRegistration(const TransportKind& kind) {
  Catalogue().push_back(&kind);
}

const TransportKind* FindTransport(std::string_view name) {
  for (const TransportKind* kind : Catalogue())
    if (kind->name == name) return kind;
  return nullptr;
}

std::vector<int32_t> HostsOf(const SharedRegions& regions, std::span<const Rank> members) {
  std::vector<Rank> known;
  std::vector<int32_t> hosts;
  for (const Rank member : members) {
    const Rank host = regions.HostOf(member);
    const auto found = std::find(known.begin(), known.end(), host);
    hosts.push_back(static_cast<int32_t>(found - known.begin()));
    if (found == known.end()) known.push_back(host);
  }
  if (known.size() == members.size()) hosts.clear();
  return hosts;
}

}  // namespace covey
