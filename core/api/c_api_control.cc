// The C API over core/transport/control.h: for launchers.
#include <unistd.h>

#include <iterator>
#include <memory>

#include "core/api/c_api.h"
#include "core/api/covey_control.h"
#include "core/base/config.h"
#include "core/base/json.h"
#include "core/transport/plugin.h"

extern char** environ;

struct covey_control {
  std::unique_ptr<covey::Control> control;
  std::string address;
  std::string event;  // the last that was taken, as JSON
};

namespace covey {
namespace {

constexpr const char* kEvents[] = {"waiting", "view",  "shared", "failed",
                                   "lost",    "ended", "refused"};
static_assert(std::size(kEvents) == static_cast<size_t>(ControlEvent::Kind::kRefused) + 1);

struct ReportName {
  std::string_view name;
  ControlReport::Kind kind;
};
constexpr ReportName kReports[] = {{"share", ControlReport::Kind::kShare},
                                   {"ready", ControlReport::Kind::kReady},
                                   {"failed", ControlReport::Kind::kFailed},
                                   {"left", ControlReport::Kind::kLeft}};

std::string Text(const char* text) { return text == nullptr ? "" : text; }

void AppendField(std::string_view name, std::string_view text, std::string* json) {
  *json += ",\"" + std::string(name) + "\":";
  AppendJsonString(text, json);
}

std::string ToJson(const Node& node) {
  std::string json = "{\"node\":" + std::to_string(node.node) +
                     ",\"slots\":" + std::to_string(node.slots) +
                     ",\"first_rank\":" + std::to_string(node.first_rank) +
                     ",\"process\":" + std::to_string(node.process) +
                     ",\"serves\":" + (node.serves ? "true" : "false");
  AppendField("host", node.host, &json);
  AppendField("host_id", node.host_id, &json);
  return json + "}";
}

std::string ToJson(const ControlEvent& event) {
  std::string json = "{\"node\":" + std::to_string(event.node);
  AppendField("kind", kEvents[static_cast<size_t>(event.kind)], &json);
  AppendField("text", event.text, &json);
  json += ",\"nodes\":[";
  for (const Node& node : event.nodes) json += (json.ends_with('[') ? "" : ",") + ToJson(node);
  json += "],\"texts\":[";
  for (const std::string& text : event.texts) {
    if (!json.ends_with('[')) json += ',';
    AppendJsonString(text, &json);
  }
  return json + "]}";
}

Status Open(const covey_control_config& from, std::unique_ptr<Control>* control) {
  if (from.struct_size != sizeof(covey_control_config))
    return Status::InvalidArgument(
        "covey_control_config has another size here: built against another covey_control.h, or "
        "struct_size not set");
  Config config;
  RETURN_IF_ERROR(Config::FromEnvironment(environ, "", &config));
  const ControlKind* kind = nullptr;
  RETURN_IF_ERROR(LoadControl("grpc", config.plugin_path, &kind));
  const auto* secret = static_cast<const char*>(from.secret);
  return kind->open({.address = Text(from.address),
                     .secret = secret == nullptr ? "" : std::string(secret, from.secret_bytes),
                     .serve = from.serve != 0,
                     .nodes = from.nodes,
                     .offer = {.node = from.node,
                               .slots = from.slots,
                               .host = Text(from.host),
                               .host_id = Text(from.host_id),
                               .process = getpid()},
                     .build = kPluginAbi,
                     .lease = config.lease},
                    control);
}

Status Tell(Control* control, std::string_view name, const char* text) {
  for (const ReportName& report : kReports)
    if (report.name == name) return control->Report({.kind = report.kind, .text = Text(text)});
  return Status::InvalidArgument("there is no report \"" + std::string(name) + "\"");
}

}  // namespace
}  // namespace covey

using covey::Report;

extern "C" {

covey_code covey_control_open(const covey_control_config* config, covey_control** control,
                              covey_error* error) {
  if (config == nullptr || control == nullptr)
    return Report(covey::Status::InvalidArgument("config or control is NULL"), error);
  auto made = std::make_unique<covey_control>();
  const covey::Status status = covey::Open(*config, &made->control);
  *control = nullptr;
  if (status.ok()) {
    made->address = made->control->address();
    *control = made.release();
  }
  return Report(status, error);
}

const char* covey_control_address(covey_control* control) { return control->address.c_str(); }

int covey_control_fd(covey_control* control) { return control->control->event_fd(); }

int covey_control_next(covey_control* control) {
  covey::ControlEvent event;
  if (!control->control->Next(&event)) return 0;
  control->event = covey::ToJson(event);
  return 1;
}

size_t covey_control_event(covey_control* control, char* json, size_t capacity) {
  return covey::Fill(control->event, json, capacity);
}

covey_code covey_control_report(covey_control* control, const char* kind, const char* text,
                                covey_error* error) {
  return Report(covey::Tell(control->control.get(), kind, text), error);
}

void covey_control_close(covey_control* control) { delete control; }

}  // extern "C"
