// The exports of every plug-in: linked into it, never into libcovey.so. See
// core/transport/plugin.h.
#include "core/transport/plugin.h"

extern "C" {

[[gnu::visibility("default")]] const char* covey_plugin_abi() { return covey::kPluginAbi; }

[[gnu::visibility("default")]] const covey::TransportKind* covey_plugin_find_transport(
    const char* name) {
  return covey::FindTransport(name);
}

[[gnu::visibility("default")]] const covey::ControlKind* covey_plugin_find_control(
    const char* name) {
  return covey::FindControl(name);
}

}  // extern "C"
