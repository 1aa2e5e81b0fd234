// The counters of a session as JSON: covey_stats, whose keys core/README.md lists.
#include <string>

#include "core/api/session.h"
#include "core/engine/engine.h"

namespace covey {
namespace {

// "name":value, appended to a JSON object under construction.
void Field(std::string* json, const char* name, uint64_t value) {
  *json += (json->size() > 1 ? ",\"" : "\"") + std::string(name) + "\":" + std::to_string(value);
}

}  // namespace

std::string Session::StatsJson() {
  const RoundsPort::Counters rounds = rounds_.Sum();
  std::string json = "{";
  engine_->WithProgressLock([&] {
    const Runtime::Counters& r = runtime_->counters();
    const Executor::Counters& e = runtime_->executor().counters();
    Field(&json, "operations", r.ended);
    Field(&json, "operations_failed", r.failed);
    Field(&json, "coordinator_messages", r.coordinator_messages);
    Field(&json, "malformed_messages", r.malformed_messages);
    Field(&json, "announced", runtime_->negotiator().announced());
    Field(&json, "streams", runtime_->negotiator().streams().all().size());
    Field(&json, "bundles", runtime_->negotiator().bundles().planned());
    Field(&json, "landing_blocks", runtime_->landing_blocks());
    Field(&json, "known_names", queue_.known_names());
    Field(&json, "exchanges", e.done);
    Field(&json, "exchanges_voided", e.voided);
    Field(&json, "exchanges_aborted", e.aborted);
    Field(&json, "exchanges_direct", e.direct);
    Field(&json, "moved_bytes", e.moved_bytes);
    Field(&json, "wire_bytes", e.wire_bytes);
    Field(&json, "wait_for_peers_ns", static_cast<uint64_t>(e.wait_begin_ns));
    Field(&json, "exchange_ns", static_cast<uint64_t>(e.run_ns));
    Field(&json, "passes", r.passes);
    Field(&json, "repeats", r.repeats_done);
    if (const DeviceTransfers* transfers = runtime_->executor().transfers(DeviceType::kCuda)) {
      Field(&json, "device_to_host_bytes", transfers->counters().to_host_bytes);
      Field(&json, "host_to_device_bytes", transfers->counters().to_device_bytes);
      Field(&json, "device_pinned_bytes", transfers->pinned_buffers().pinned_bytes());
      Field(&json, "device_synchronous_calls", transfers->SynchronousCalls());
      Field(&json, "exchanges_nccl", e.by_communicator);
      Field(&json, "exchanges_ipc", e.by_ipc);
    }
  });
  Field(&json, "blocked_ns", static_cast<uint64_t>(engine_->waited_ns()) + rounds.waited_ns);
  Field(&json, "round_versions", rounds.versions);
  Field(&json, "round_fresh", rounds.fresh);
  Field(&json, "round_late", rounds.late);
  Field(&json, "round_overdue", rounds.overdue);
  Field(&json, "round_dropped", rounds.dropped);
  Field(&json, "round_snapshots", rounds.snapshots);
  Field(&json, "round_waited_ns", rounds.waited_ns);
  const QuantizedCounters quantized = pairs_.Sum();
  Field(&json, "pair_decoded", quantized.decoded);
  Field(&json, "pair_repaired", quantized.repaired);
  Field(&json, "pair_bytes", quantized.bytes);
  Field(&json, "in_flight", queue_.in_flight());
  Field(&json, "polls_network", transport_->PollsNetwork() ? 1 : 0);
  return json + "}";
}

}  // namespace covey
