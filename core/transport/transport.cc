#include "core/transport/transport.h"

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

}  // namespace covey
