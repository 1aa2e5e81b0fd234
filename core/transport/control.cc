#include "core/transport/control.h"

namespace covey {
namespace {

// Filled when a plug-in is opened, by the registrations of ops/control; read-only from then on.
std::vector<const ControlKind*>& Catalogue() {
  static std::vector<const ControlKind*> catalogue;  // process-wide: registrations only
  return catalogue;
}

}  // namespace

ControlRegistration::ControlRegistration(const ControlKind& kind) { Catalogue().push_back(&kind); }

const ControlKind* FindControl(std::string_view name) {
  for (const ControlKind* kind : Catalogue())
    if (kind->name == name) return kind;
  return nullptr;
}

}  // namespace covey
