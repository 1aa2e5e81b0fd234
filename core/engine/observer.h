// The events that a runtime reports to an observer: every message, begin and end, as it happens.
// For the simulator's checkers and the transcripts; production has none.
//
// Called with the progress lock held, in the order in which things happen on that rank. An observer
// only looks: it calls nothing of the runtime, and its arguments are valid during the call.
//
// `id` is the operation a stream runs. An exchange of a bundle is told once for each operation it
// moves, with the bundle's entry; begun void, with the bundle's own name and number. It ends under
// the names under which it began, also if it has become void in between.
#ifndef COVEY_CORE_ENGINE_OBSERVER_H_
#define COVEY_CORE_ENGINE_OBSERVER_H_

#include "core/agree/message.h"
#include "core/run/exchange.h"

namespace covey {

class Observer {
 public:
  virtual ~Observer() = default;

  // Once per message: queued for the mailbox of `to`, or taken from that of `rank`.
  virtual void OnSend(Rank rank, Rank to, const Message& message) = 0;
  virtual void OnReceive(Rank rank, Rank from, const Message& message) = 0;
  // The exchange of `id` begins on this rank; entry 0 = void.
  virtual void OnBegin(Rank rank, const OperationId& id, uint32_t entry) = 0;
  // It is over. A void one leaves its request unfinished.
  virtual void OnExchangeEnd(Rank rank, const OperationId& id, Outcome outcome) = 0;
  // The operation behind `request` has ended; the handle's owner sees it right after.
  virtual void OnEnd(Rank rank, const Request& request, const Status& status) = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_OBSERVER_H_
