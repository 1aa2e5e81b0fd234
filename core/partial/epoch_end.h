// The end of an epoch of rounds, as a rank's port sees it (core/base/group_barrier.h has its
// phases): SharedEpochEnd where ranks share memory, Replica (core/replicated/replica.h) where they
// do not.
//
// Sans-IO, as Versions, of which it is a part.
#ifndef COVEY_CORE_PARTIAL_EPOCH_END_H_
#define COVEY_CORE_PARTIAL_EPOCH_END_H_

#include <cstdint>
#include <vector>

namespace covey {

class EpochEnd {
 public:
  virtual ~EpochEnd() = default;

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
  // After it has given up: this rank goes on with the last version, which is settled: a member that
  // finishes later ends with that version too. Steps of such a member are dropped until another one
  // trains on. Gradients: a snapshot is asked for, of any member that is here, for members that
  // will have fallen out of the log. Later members do not wait for this rank in Meet. False: a
  // version is under way, which is to end first.
  virtual bool GoOnWithout() {
    Meet();
    return true;
  }
  // The snapshot that this rank has given stands when it has left, too.
  virtual void KeepSnapshot() {}
  // Whether a member will need one of `version`, the last one, and there is none.
  virtual bool LacksSnapshot(uint64_t) { return false; }
  // To be asked while it waits for a version: others have ended finish() without this rank, which
  // trains, and for max_wait none of them has trained on. Publish then publishes nothing.
  virtual bool IsLeftBehind() { return false; }
  // So many steps of this rank were dropped for that.
  virtual uint64_t dropped() const { return 0; }

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

  // This rank will publish, read and wait no more.
  virtual void Leave() = 0;
  // Whether no member needs anything of this rank any more.
  virtual bool HaveAllLeft() = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_EPOCH_END_H_
