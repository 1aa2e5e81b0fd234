// One rank's part in the versions of one bundle, as its trainer's port sees it
// (core/partial/rounds_port.h): Rounds where ranks share memory, Replica
// (core/replicated/replica.h) where they do not.
//
// Sans-IO: the holder of the lock around it calls, one thread at a time.
#ifndef COVEY_CORE_PARTIAL_VERSIONS_H_
#define COVEY_CORE_PARTIAL_VERSIONS_H_

#include <span>
#include <vector>

#include "core/partial/epoch_end.h"
#include "core/partial/log.h"

namespace covey {

class Versions {
 public:
  virtual ~Versions() = default;

  // The buffer for the next contribution, and its publishing as the next step, whose number is
  // returned: 1, 2, 3, ... A rank that had finished trains on. One that is left behind publishes
  // nothing; returned is the number of the next version.
  virtual std::byte* open() const = 0;
  virtual uint64_t Publish(std::span<const double> hypers) = 0;
  // Gradients: as Publish, with nothing to give at this step; the content of open() does not
  // matter.
  virtual uint64_t Skip() = 0;
  virtual uint64_t step() const = 0;
  // Its number, from the last Read on: a member that skips ahead is at the version it has read, so
  // that it is not late for ever because it was late once (partial-W8, partial-W9).
  virtual uint64_t next_step() const = 0;

  // max_wait is measured by this rank itself; the time for more members, once enough have come, by
  // the member that fires the version.
  virtual void set_max_wait(Time max_wait) = 0;
  virtual void set_grace(Time grace) = 0;
  // How long a step of this rank's own takes; 0: not known.
  virtual void set_step(Time) {}

  // No version is made after that one. The same on all members, before the first publish.
  virtual void EndWith(uint64_t) {}
  // The last version that has ended.
  virtual uint64_t executed() = 0;
  // When it did, about; 0: not known.
  virtual Time ended() { return 0; }
  // The record tells this rank whether it is overdue. Forgets nothing when it is null.
  virtual Found Read(uint64_t version, std::span<void* const> to, RoundRecord* record) = 0;

  // Versions that were decided, and that no living member has: the members with them are gone. None
  // is made in their place, so no version comes any more, and finish() cannot end.
  struct Lack {
    uint64_t first = 0, last = 0;  // 0: none
    std::vector<int32_t> gone;     // not empty, if any; not all of them may have had it
  };
  virtual Lack Lacking() { return {}; }

  // After a flush (epoch_end): it trains on and is waited for again, also before its next step, and
  // that is the one after the last version, as it is for all, or after its last step if that is
  // further.
  virtual void GoOn() = 0;

  // Whether this trainer, which has applied the versions up to `applied`, is to give its state.
  virtual bool IsAsked(uint64_t applied, Time now) = 0;
  // Whether a member is known to need one, which may be of a version that no member has applied
  // yet. A waiting member applies what there is, so that it can be asked.
  virtual bool IsAnyInNeed() const { return false; }
  // Member `index` is dead: it is not waited for. Its published, or sent, contributions count.
  virtual void OnLoss(int32_t index) = 0;

  // From finish() to the next step.
  virtual EpochEnd& epoch_end() = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_VERSIONS_H_
