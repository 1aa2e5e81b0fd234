// Waits for a condition of shared words: looks, and sleeps at an event count between two looks.
//
// Any thread; `look` guards its own data.
#ifndef COVEY_CORE_TRANSPORT_EVENT_COUNT_H_
#define COVEY_CORE_TRANSPORT_EVENT_COUNT_H_

#include <algorithm>
#include <atomic>
#include <optional>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/base/waiter.h"
#include "core/transport/shared_atomics.h"

namespace covey {

// The outcome of one look.
struct Looked {
  std::optional<Status> end;  // of the wait
  bool moved = false;         // it has done something: look again at once
  Time until = kNever;        // look again then, whether or not the event count rings
};

// Waits until `look(now)` returns an end. kAborted: `stop` is set. kTimeout: `deadline` is over.
// REQUIRES: a thread that changes what `look` sees, or sets `stop`, rings the event count
// afterwards.
template <typename Look>
Status WaitForEvent(SharedAtomics* words, uint64_t* event_count, const WaitPolicy& policy,
                    Clock* clock, const std::atomic<bool>& stop, Time deadline, Look look) {
  Waiter waiter(policy);
  for (;;) {
    const uint32_t ticket = words->Ticket(event_count);
    const Time now = clock->Now();
    const Looked looked = look(now);
    if (looked.end) return *looked.end;
    if (stop.load()) return Status::Aborted("this rank is shutting down");
    if (now >= deadline) return Status::Timeout("the deadline is over");
    if (waiter.LooksAgain(looked.moved, now)) continue;
    words->Sleep(event_count, ticket,
                 std::min({looked.until, deadline, now + policy.longest_sleep}));
  }
}

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_EVENT_COUNT_H_
