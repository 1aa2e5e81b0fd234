#include "ops/control/grpc_messages.h"

#include <algorithm>
#include <iterator>

namespace covey {
namespace {

// A value of both sides.
template <class Kind, class Number>
struct Pair {
  Kind kind;
  Number number;
};

using EventMessage = control::Event;
constexpr Pair<ControlEvent::Kind, EventMessage::Kind> kEvents[] = {
    {ControlEvent::Kind::kWaiting, EventMessage::WAITING},
    {ControlEvent::Kind::kView, EventMessage::VIEW},
    {ControlEvent::Kind::kShared, EventMessage::SHARED},
    {ControlEvent::Kind::kFailed, EventMessage::FAILED},
    {ControlEvent::Kind::kLost, EventMessage::LOST},
    {ControlEvent::Kind::kEnded, EventMessage::ENDED},
    {ControlEvent::Kind::kRefused, EventMessage::REFUSED},
};

using ReportMessage = control::ReportRequest;
constexpr Pair<ControlReport::Kind, ReportMessage::Kind> kReports[] = {
    {ControlReport::Kind::kBeat, ReportMessage::BEAT},
    {ControlReport::Kind::kShare, ReportMessage::SHARE},
    {ControlReport::Kind::kReady, ReportMessage::READY},
    {ControlReport::Kind::kFailed, ReportMessage::FAILED},
    {ControlReport::Kind::kLeft, ReportMessage::LEFT},
};

template <class Kind, class Number, size_t kCount>
Number NumberOf(const Pair<Kind, Number> (&table)[kCount], Kind kind) {
  const auto* found = std::find_if(std::begin(table), std::end(table),
                                   [kind](const auto& pair) { return pair.kind == kind; });
  return found->number;
}

template <class Kind, class Number, size_t kCount>
bool KindOf(const Pair<Kind, Number> (&table)[kCount], Number number, Kind* kind) {
  const auto* found = std::find_if(std::begin(table), std::end(table),
                                   [number](const auto& pair) { return pair.number == number; });
  if (found == std::end(table)) return false;
  *kind = found->kind;
  return true;
}

size_t BytesOf(const google::protobuf::RepeatedPtrField<std::string>& texts) {
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  return bytes;
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
  message.set_kind(NumberOf(kEvents, event.kind));
  message.set_node(event.node);
  message.set_text(event.text);
  for (const Node& node : event.nodes) *message.add_nodes() = ToMessage(node);
  for (const std::string& text : event.texts) message.add_texts(text);
  return message;
}

control::ReportRequest ToMessage(const ControlReport& report) {
  control::ReportRequest message;
  message.set_kind(NumberOf(kReports, report.kind));
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
  if (message.nodes_size() > kMaxNodes || message.texts_size() > kMaxNodes) return false;
  if (BytesOf(message.texts()) > kMaxSharedBytes) return false;
  for (const control::Node& node : message.nodes())
    if (!FromMessage(node, &event->nodes.emplace_back())) return false;
  event->texts.assign(message.texts().begin(), message.texts().end());
  return true;
}

bool FromMessage(const control::ReportRequest& message, ControlReport* report) {
  report->text = message.text();
  return KindOf(kReports, message.kind(), &report->kind) &&
         report->text.size() <= kMaxControlTextBytes;
}

}  // namespace covey
