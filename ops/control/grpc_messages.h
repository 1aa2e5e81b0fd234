// Between the messages of proto/control.proto and the values of core/transport/control.h. Incoming
// messages are bounded and checked here. Pure functions.
#ifndef COVEY_OPS_CONTROL_GRPC_MESSAGES_H_
#define COVEY_OPS_CONTROL_GRPC_MESSAGES_H_

#include "core/transport/control.h"
#include "proto/control.pb.h"

namespace covey {

inline constexpr int kMaxControlMessageBytes = 4 * 1024 * 1024;  // of a view: 1024 nodes
inline constexpr size_t kMaxHostBytes = 512;                     // of a name or an id

control::Node ToMessage(const Node& node);
control::Event ToMessage(const ControlEvent& event);
control::ReportRequest ToMessage(const ControlReport& report);

// False: not what a node of this version says.
bool FromMessage(const control::Node& message, Node* node);
bool FromMessage(const control::Event& message, ControlEvent* event);
bool FromMessage(const control::ReportRequest& message, ControlReport* report);

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_GRPC_MESSAGES_H_
