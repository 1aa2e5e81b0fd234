// How the bytes of an exchange travel between user memory and the memory its schedule works on.
//
// An exchange without a path works on user memory itself. With one, the path says when a part of
// the input is there, and takes the output over as it is written.
//
// Called by the executor, with the progress lock held; nothing here waits. kNotYet: ask again;
// kFailed: the exchange has to be aborted, for what failure() says.
#ifndef COVEY_CORE_RUN_DATA_PATH_H_
#define COVEY_CORE_RUN_DATA_PATH_H_

#include "core/device/device.h"
#include "core/plan/schedule.h"
#include "core/transport/peer_loss.h"

namespace covey {

struct Exchange;

class DataPath {
 public:
  using Answer = Device::Answer;

  virtual ~DataPath() = default;

  // Whether the exchange may begin: the data that goes with its begin is there.
  virtual Answer Stage(Exchange* exchange) = 0;
  // Before and after the step at the cursor.
  virtual Answer MayRun(Exchange* exchange, const Step& step) = 0;
  virtual Answer DidRun(Exchange* exchange, const Step& step) = 0;
  // Whether the path does by itself, with Reduce, the steps that reduce: those from the cursor on,
  // which is left at the last of them.
  virtual bool ReducesItself() const { return false; }
  virtual Answer Reduce(Exchange*) { return Answer::kFailed; }
  // The end of the exchange; `done`: with a result. False: the path has failed.
  virtual bool Finish(Exchange* exchange, bool done) = 0;

  // After kFailed or false: the rank to blame, and a text that completes "rank 3 ...".
  const PeerLoss& failure() const { return failure_; }

 protected:
  PeerLoss failure_;
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_DATA_PATH_H_
