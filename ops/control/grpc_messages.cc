#include "ops/control/grpc_messages.h"

#include <iterator>

namespace covey {
namespace {

// The enums of both sides, in the order of the proto from 1 on.
constexpr ControlEvent::Kind kEvents[] = {
    ControlEvent::Kind::kWaiting, ControlEvent::Kind::kView, ControlEvent::Kind::kMemory,
    ControlEvent::Kind::kFailed,  ControlEvent::Kind::kLost, ControlEvent::Kind::kEnded,
    ControlEvent::Kind::kRefused,
};
static_assert(control::Event::WAITING == 1 && control::Event::REFUSED == std::size(kEvents));

constexpr ControlReport::Kind kReports[] = {
    ControlReport::Kind::kBeat,   ControlReport::Kind::kMemory, ControlReport::Kind::kReady,
    ControlReport::Kind::kFailed, ControlReport::Kind::kLeft,
};
static_assert(control::ReportRequest::BEAT == 1 &&
              control::ReportRequest::LEFT == std::size(kReports));

template <class Kind, size_t kCount>
int NumberOf(const Kind (&table)[kCount], Kind kind) {
  for (size_t i = 0; i < kCount; ++i)
    if (table[i] == kind) return static_cast<int>(i) + 1;
  return 0;
}

template <class Kind, size_t kCount>
bool KindOf(const Kind (&table)[kCount], int number, Kind* kind) {
  if (number < 1 || number > static_cast<int>(kCount)) return false;
  *kind = table[number - 1];
  return true;
}

}  // namespace

control::Node ToMessage(const Node& node) {
  control::Node message;
  message.set_node(node.node);
  message.set_slots(node.slots);
  message.set_first_rank(node.first_rank);
  message.set_host(node.host);
  message.set_host_id(node.host_id);
  message.set_process(node.process);
  message.set_serves(node.serves);
  return message;
}

control::Event ToMessage(const ControlEvent& event) {
  control::Event message;
  message.set_kind(static_cast<control::Event::Kind>(NumberOf(kEvents, event.kind)));
  message.set_node(event.node);
  message.set_text(event.text);
  for (const Node& node : event.nodes) *message.add_nodes() = ToMessage(node);
  return message;
}

control::ReportRequest ToMessage(const ControlReport& report) {
  control::ReportRequest message;
  message.set_kind(static_cast<control::ReportRequest::Kind>(NumberOf(kReports, report.kind)));
  message.set_text(report.text);
  return message;
}

bool FromMessage(const control::Node& message, Node* node) {
  *node = {.node = message.node(),
           .slots = message.slots(),
           .first_rank = message.first_rank(),
           .host = message.host(),
           .host_id = message.host_id(),
           .process = message.process(),
           .serves = message.serves()};
  return node->host.size() <= kMaxHostBytes && node->host_id.size() <= kMaxHostBytes;
}

bool FromMessage(const control::Event& message, ControlEvent* event) {
  *event = {.node = message.node(), .text = message.text()};
  if (!KindOf(kEvents, message.kind(), &event->kind)) return false;
  if (message.nodes_size() > kMaxNodes) return false;
  for (const control::Node& node : message.nodes())
    if (!FromMessage(node, &event->nodes.emplace_back())) return false;
  return true;
}

bool FromMessage(const control::ReportRequest& message, ControlReport* report) {
  report->text = message.text();
  return KindOf(kReports, message.kind(), &report->kind) &&
         report->text.size() <= kMaxControlTextBytes;
}

}  // namespace covey
