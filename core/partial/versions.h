// One rank's part in the versions of one bundle, as its trainer's port sees it
// (core/partial/rounds_port.h): Rounds where ranks share memory, Replica
// (core/replicated/replica.h) where they do not.
//
// Sans-IO: the holder of the lock around it calls, one thread at a time.
#ifndef COVEY_CORE_PARTIAL_VERSIONS_H_
#define COVEY_CORE_PARTIAL_VERSIONS_H_

#include <span>
#include <vector>

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

  // The last version that has ended.
  virtual uint64_t executed() = 0;
  // When it did, about; 0: not known.
  virtual Time ended() { return 0; }
  // The record tells this rank whether it is overdue. Forgets nothing when it is null.
  virtual Found Read(uint64_t version, std::span<void* const> to, RoundRecord* record) = 0;

  // This rank has no more contributions for now: it is not waited for. Its contributions still go
  // into versions; IsFlushed once that is so for all members, all of which have finished. Called
  // again it waits on; after it has given up, anew. Models: what has been published last are those
  // that the final version is the mean of.
  virtual void Finish() = 0;
  virtual bool IsFlushed() = 0;
  // After Finish: this rank has waited for max_wait; the contributions of finished members are in
  // versions, and Unfinished() are missing.
  virtual bool HasGivenUp() const = 0;
  // Members that are awaited by a rank that has finished: those that live and have not.
  virtual std::vector<int32_t> Unfinished() = 0;
  // Versions that were decided, and that no living member has: the members with them are gone. None
  // is made in their place, so no version comes any more, and finish() cannot end.
  struct Lack {
    uint64_t first = 0, last = 0;  // 0: none
    std::vector<int32_t> gone;     // not empty, if any; not all of them may have had it
  };
  virtual Lack Lacking() { return {}; }

  // After it has given up: this rank goes on with the last version, which is settled: a member that
  // finishes later ends with that version too. Steps of such a member are dropped until another one
  // trains on. Gradients: a snapshot is asked for, of any member that is here, for members that
  // will have fallen out of the log. Later members do not wait for this rank in Meet. False: a
  // version is under way, which is to end first.
  virtual bool GoOnWithout() {
    Meet();
    return true;
  }
  // To be asked while it waits for a version: others have ended finish() without this rank, which
  // trains, and for max_wait none of them has trained on. Publish then publishes nothing.
  virtual bool IsLeftBehind() { return false; }
  // So many steps of this rank were dropped for that.
  virtual uint64_t dropped() const { return 0; }

  // After a flush: it trains on and is waited for again, also before its next step, and that is the
  // one after the last version, as it is for all, or after its last step if that is further.
  virtual void GoOn() = 0;

  // Whether this trainer, which has applied the versions up to `applied`, is to give its state.
  virtual bool IsAsked(uint64_t applied, Time now) = 0;
  // Whether a member is known to need one, which may be of a version that no member has applied
  // yet. A waiting member applies what there is, so that it can be asked.
  virtual bool IsAnyInNeed() const { return false; }
  // Members that could still give a snapshot: those that live, have not left, and need none. To be
  // asked after each look for one: that there are none shows at a later time.
  struct Donors {
    bool any = false;
    bool any_unfinished = false;
  };
  virtual Donors FindDonors() = 0;

  // After a flush, with everything applied: no member leaves, or trains on, before all that live
  // are so far, because until then one may need a snapshot.
  virtual void Meet() = 0;
  virtual std::vector<int32_t> Unmet() = 0;

  // Member `index` is dead: it is not waited for. Its published, or sent, contributions count.
  virtual void OnLoss(int32_t index) = 0;

  // This rank will publish, read and wait no more.
  virtual void Leave() = 0;
  // Whether no member needs anything of this rank any more.
  virtual bool HaveAllLeft() = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_VERSIONS_H_
