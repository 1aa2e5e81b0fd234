// A bundle: streams whose occurrences travel together, in one exchange over a channel of its own.
//
// Planned by the coordinator (core/agree/planner.h, agree-N7 and agree-N8), filled and broken by
// the Negotiator. Its exchanges are those of its *carrier*, a stream without requests of users:
// when occurrence k runs, member stream s takes part with its occurrence s.base + k, and the
// carrier's request lists the tensors of all members in the order of the plan. Plain state, equal
// on all members but for the submitted operations.
//
//   planned --SWITCH--> filling --all members' fronts held--> moving --done--> filling
//                          | a front is awaited, or fits another entry, or a peer sent BREAK
//                          +--> void --ended--> filling; the second time: dissolved, for good
#ifndef COVEY_CORE_AGREE_BUNDLE_H_
#define COVEY_CORE_AGREE_BUNDLE_H_

#include <string>
#include <vector>

#include "core/agree/stream.h"

namespace covey {

struct Message;

struct Bundle {
  uint32_t id = 0;  // its entry in begin headers
  std::vector<Stream*> members;
  Stream carrier;
  Request request;  // the carrier's

  bool switched = false;               // SWITCH has come
  bool dissolved = false;              // broken twice
  uint32_t broken = 0;                 // times
  uint64_t broken_at = kNoOccurrence;  // a peer runs this occurrence void
  size_t held = 0;                     // members whose front waits for the others
  Time callback_since = kNever;        // the first of them that only a callback ends was submitted
  Time longest_fill = 0;               // from the first submission of an exchange to the last

  // A planned bundle: not to be filled before Switch. `members` are the streams of `freeze`, in its
  // order.
  Bundle(const Message& freeze, const Group* group, std::vector<Stream*> members);

  // Streams of the plan travel together from the given occurrences on.
  void Switch(const Message& plan);
  // Whether the front of this member belongs to the exchange that is being filled.
  bool Takes(const Stream& member) const {
    return switched && !dissolved && member.occurrence == member.base + carrier.occurrence;
  }
  // Whether nothing of it is begun or held on this rank.
  bool IsIdle() const { return switched && carrier.state == StreamState::kIdle && held == 0; }
  bool Full() const { return held == members.size(); }
  // Puts the fronts' tensors together. REQUIRES: Full().
  void Concatenate();
  // The exchange is over: held, callback_since and longest_fill begin anew.
  void Next(bool was_void);
  // Counts one more held front.
  void Hold(const Request& front);
  // When the fronts held have waited long enough (agree-N6); kNever: not by time.
  Time Patience() const;
};

// The next occurrence of the stream that has not begun on this rank.
uint64_t NextUnbegun(const Stream& stream);

}  // namespace covey
#endif  // COVEY_CORE_AGREE_BUNDLE_H_
