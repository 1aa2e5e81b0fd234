// One rank's rounds of one bundle as the threads of its process meet them: a lock, a clock and
// sleep around a Versions (core/partial/versions.h).
//
// Two kinds: SharedPort, where the members share memory (core/partial/shared_port.h), and
// ReplicaPort, where they write messages (core/replicated/replica_port.h). The trainer's view is
// the same for both, and is here: the end of waiting, its status, and the counters.
//
// Any thread; one at a time is meant to wait.
#ifndef COVEY_CORE_PARTIAL_ROUNDS_PORT_H_
#define COVEY_CORE_PARTIAL_ROUNDS_PORT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/group_barrier.h"
#include "core/base/status.h"
#include "core/base/tensor.h"
#include "core/base/waiter.h"
#include "core/partial/merge.h"
#include "core/partial/rounds.h"
#include "core/partial/step_time.h"
#include "core/partial/versions.h"
#include "core/transport/transport.h"

namespace covey {

class ChannelMux;

class RoundsPort {
 public:
  struct Bundle {
    std::string name;
    RoundMemory::Shape shape;
    RoundLayout layout;
    Rounds::Options options;  // max_wait == 0, grace < 0: see RuleOf
    WaitPolicy waiting;
  };

  // Of this rank.
  struct Counters {
    uint64_t versions = 0;   // read
    uint64_t fresh = 0;      // of those: with a contribution of this rank in time,
    uint64_t late = 0;       // with an older one
    uint64_t overdue = 0;    // how often it was no longer waited for
    uint64_t snapshots = 0;  // of others, that it has gone on from
    uint64_t dropped = 0;    // steps, because others had ended finish() without this rank
    uint64_t waited_ns = 0;

    Counters& operator+=(const Counters& more);
  };

  virtual ~RoundsPort() = default;

  // Before it is open: the bytes it takes of this rank's region, and of each member's memory.
  virtual size_t BlockBytes() const = 0;
  virtual std::vector<size_t> MemberBytes() const = 0;
  // All members have agreed. `places`, by member: the offer of each, an offset in its region
  // where they share memory.
  virtual void Open(const std::vector<uint64_t>& places) = 0;
  // With the progress lock: its messages are carried from now on, or no longer.
  virtual void Join(ChannelMux*) {}
  virtual void Part(ChannelMux*) {}

  const RoundLayout& layout() const { return memory_.layout(); }
  size_t hypers() const { return memory_.hypers(); }
  const Group& group() const { return *group_; }

  std::byte* open();
  uint64_t Publish(std::span<const double> hypers);
  uint64_t Skip();
  // No version is made after that one. The same on all members, before the first publish.
  void EndWith(uint64_t version);
  uint64_t executed();
  uint64_t published();  // the last of its steps; 0: none
  // See Versions::ended: of the version *executed.
  Time Ended(uint64_t* executed);
  Status Wait(uint64_t version, Time deadline);
  // How long this rank's own steps take; see StepTime.
  Time step_time();
  void Assume(Time step);
  // See Rounds::RegisterOutput. Waiting that ends otherwise than well gives the memory back.
  virtual void RegisterOutput(std::span<void* const> to) = 0;
  // See ResultLog::Read.
  Status Read(uint64_t version, std::span<void* const> to, RoundRecord* record);
  // Gradients. Where each span of `version` lies, instead of a copy: see Rounds::Hold. No other
  // process sees writes there; *written: so many pages of it had been written before. 0: holds
  // none.
  // kUnsupported: members share no memory, or the system cannot do it.
  virtual Status Hold(uint64_t version, std::vector<std::byte*>* spans, size_t* written) = 0;
  // See Rounds::Retract. Where members share no memory, kUnsupported before the last version.
  virtual Status Retract(const std::byte** content) = 0;
  // As Retract, if that is supported. This rank publishes nothing more, and no other waits for
  // it.
  Status Depart(const std::byte** content);
  // Models. See Rounds::Merge.
  virtual Status Merge(uint64_t version, std::span<void* const> to, Merged* merged) = 0;
  // Models. See Rounds::Begin.
  virtual Status Begin() { return Status::Ok(); }
  // Models. See Rounds::OfferAgain.
  virtual uint64_t OfferAgain(std::span<const double>) { return 0; }
  // Models. The model that a member has published last, and its step; see Rounds::Peek. Superseded:
  // a version of all has come after it, so that it counts no more.
  struct Seen {
    uint64_t step = 0;
    bool whole = false;
    bool superseded = false;
  };
  // Where members share no memory only that of this rank, others kUnsupported.
  virtual Status Peek(int32_t member, std::span<void* const> to, Seen* seen) = 0;
  // Models: whether a version of all has come after the model of this step, of any member.
  bool HasSuperseded(uint64_t step) {
    return step > 0 && memory_.models().HasSuperseded(step, executed());
  }
  bool has_models() const { return memory_.models().on(); }
  bool IsOfAll(uint64_t version) const { return memory_.models().IsSync(version); }
  // Whether a version waits for all members, for max_wait at most.
  bool WaitsForAll(uint64_t version) const;
  // kTimeout also when max_wait is over, then with a peer: the first of the ranks that are missing,
  // which the message names. Otherwise it goes on when called again.
  Status Finish(Time deadline);

  // ---- Snapshots (core/partial/snapshots.h) of a trainer that has applied the versions up to
  // `applied`.
  enum class Event : uint8_t {
    kDone,
    kAsked,   // a snapshot is to be given
    kBehind,  // Finish: half of the log is not applied yet, or the last version is not
    kTime,    // the deadline is over
    kLeft,    // Wait: others have ended finish() without this rank; see EpochEnd::IsLeftBehind
  };
  static constexpr uint64_t kNotServing = ~uint64_t{0};  // `applied` of one that gives none
  // As Wait and Finish, which end early for such an event.
  Status WaitServing(uint64_t version, uint64_t applied, Time deadline, Event* event);
  Status FinishServing(uint64_t applied, Time deadline, Event* event);
  // After it has said kTimeout for max_wait: see EpochEnd::GoOnWithout.
  Status GoOnWithout();
  // The snapshot given last stands when this rank has left, too, until it publishes again.
  void KeepSnapshot();
  // See EpochEnd.
  bool LacksSnapshot(uint64_t version);
  // After FinishServing, when everything is applied: until all that live are so far.
  Status MeetServing(uint64_t applied, Time deadline, Event* event);
  // Whether one is to be given now. *unused: the block of an old one, which can be freed;
  // Transport::kNoOffset: there is none. Nothing else is read but one word.
  virtual bool IsAsked(uint64_t applied, uint64_t* unused) = 0;
  // Whether it lies in a block of this rank's region.
  virtual bool GivesInBlocks() const = 0;
  // If so, in the block at `offset`, which is this port's from now on; kNoOffset: there is no room.
  // *unused as above.
  virtual void Give(uint64_t version, uint64_t offset, std::span<const Snapshots::Part> parts,
                    uint64_t* unused) = 0;
  // Waits for one. An offer of no member (-1): not yet. kExhausted: no member is left that could
  // give one, or the donor has no room for it. kTimeout: all others have finished, and have not
  // given one for max_wait.
  Status Seek(uint64_t applied, Time deadline, Offer* offer);
  virtual bool Take(const Offer& offer, std::byte* to) = 0;

  // Waits in progress and to come end with kAborted.
  virtual void Interrupt() = 0;
  // Nothing but CanBeFreed may be called afterwards.
  void Close();
  virtual bool CanBeFreed() = 0;
  // The process leaves: waits until peers have the data that only this rank has, for so long.
  virtual void Settle(Time) {}
  // For core/base/handle_table.h.
  using Totals = Counters;
  Totals totals();
  // Blocks of this rank's region that are freed with it.
  virtual std::vector<uint64_t> Blocks() const = 0;

 protected:
  using Done = std::function<bool()>;

  // `group` outlives the port; this rank is a member of it.
  RoundsPort(Bundle bundle, const Group* group);

  // Until done(), which is asked with the lock held.
  virtual Status DriveOn(const Done& done, Time deadline) = 0;
  // There is something new for peers. Without the lock.
  virtual void Stir() {}
  // ---- With the lock held.
  virtual Versions& versions() = 0;
  virtual void Forget() {}
  // Another member's snapshot that would do; of no member (-1): asks for one.
  virtual Offer FindOffer(uint64_t applied) = 0;
  Time MaxWait(Time least) const;
  // Why `version` cannot be read; ok: it has been made.
  Status NotMade(uint64_t version);
  Status Gone(uint64_t version) const;

  Bundle bundle_;
  const Group* group_;
  RoundMemory memory_;
  std::atomic<bool> stop_{false};
  MonotonicClock monotonic_;
  Clock* clock_ = &monotonic_;

  std::mutex mutex_;
  Counters counters_;  // protected by mutex_

 private:
  uint64_t Arrive(const std::function<uint64_t()>& publish);
  Status Drive(const Done& done, Time deadline);
  void BeginFinish();
  bool IsToApply(uint64_t applied);
  void Count(const RoundRecord& record);
  Status CannotGoOn(const Versions::Lack& lack) const;

  // Protected by mutex_.
  StepTime step_time_;
  bool was_overdue_ = false;  // in the last version read
  uint64_t last_ = 0;         // no version is made after it; 0: any number
  GroupBarrier barrier_;
  bool has_gone_on_ = false;  // from its last Finish, and published nothing since
  Time seeking_since_ = 0;    // only finished ranks could give; 0: no
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_ROUNDS_PORT_H_
