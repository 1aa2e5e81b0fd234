#include "core/agree/bundle.h"

#include <algorithm>

#include "core/agree/message.h"

namespace covey {
namespace {

constexpr uint32_t kBreaksToDissolve = 2;
constexpr Time kLeastPatience = 5 * kMillisecond;
constexpr Time kPatientFills = 4;

// "bundle of 3 tensors (a, b, c)"; a long list is cut.
std::string NameFor(const std::vector<Stream*>& members) {
  constexpr size_t kNamed = 3;
  std::string names;
  for (size_t i = 0; i < std::min(members.size(), kNamed); ++i)
    names += (i > 0 ? ", " : "") + members[i]->name;
  if (members.size() > kNamed) names += ", ...";
  return "bundle of " + std::to_string(members.size()) + " (" + names + ")";
}

}  // namespace

Bundle::Bundle(const Message& freeze, const Group* group, std::vector<Stream*> streams)
    : id(freeze.entry), members(std::move(streams)) {
  carrier.group = group;
  carrier.name = NameFor(members);
  carrier.carries = this;
  carrier.waiting = {&request};
  carrier.entries = {{id, {}}};
  request.group = group;
  request.kind = Kind::kAllreduce;
}

void Bundle::Switch(const Message& plan) {
  // agree-N9: the agreed depth, three at least: a slower member still reads the slot before.
  carrier.channel =
      Channel{.blocks = plan.blocks, .slot_bytes = plan.slot_bytes, .depth = plan.depth};
  carrier.proposed_slot_bytes = 0;
  Time first = kNever;
  Time last = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    Stream* stream = members[i];
    stream->bundle = this;
    stream->base = plan.members[i].occurrence;
    stream->planned_entry = plan.members[i].entry;
    first = std::min(first, stream->last_submitted);
    last = std::max(last, stream->last_submitted);
  }
  longest_fill = std::max<Time>(last - first, 0);
  switched = true;
}

void Bundle::Concatenate() {
  request.inputs.clear();
  request.outputs.clear();
  Time first = kNever;
  Time last = 0;
  for (const Stream* stream : members) {
    const Request& front = *stream->Front();
    request.inputs.insert(request.inputs.end(), front.inputs.begin(), front.inputs.end());
    request.outputs.insert(request.outputs.end(), front.outputs.begin(), front.outputs.end());
    first = std::min(first, front.submitted_at);
    last = std::max(last, front.submitted_at);
  }
  const Request& any = *members[0]->Front();
  request.op = any.op;
  request.average = any.average;
  request.prescale = any.prescale;
  request.postscale = any.postscale;
  request.submitted_at = first;
  longest_fill = std::max(longest_fill, last - first);
}

void Bundle::Next(bool was_void) {
  request.inputs.clear();
  request.outputs.clear();
  carrier.state = StreamState::kIdle;
  ++carrier.occurrence;
  held = 0;
  callback_since = kNever;
  // agree-N7: a bundle that was void twice is dissolved: each void costs all members a round.
  if (was_void && ++broken == kBreaksToDissolve) dissolved = true;
}

void Bundle::Hold(const Request& front) {
  ++held;
  if (front.callback_only) callback_since = std::min(callback_since, front.submitted_at);
}

Time Bundle::Patience() const {
  if (callback_since == kNever || carrier.state != StreamState::kIdle) return kNever;
  return callback_since + std::max(kLeastPatience, kPatientFills * longest_fill);
}

uint64_t NextUnbegun(const Stream& stream) {
  const bool begun = stream.state == StreamState::kAnnounced ||
                     stream.state == StreamState::kRunning || stream.state == StreamState::kMoving;
  return stream.occurrence + (begun ? 1 : 0);
}

}  // namespace covey
