// One rank's rounds of one bundle as the threads of its process meet them: a lock, a clock and
// sleep around core/round.
//
// Whoever waits here does the work; the engine thread has no part in it. Waiting spins, yields and
// then sleeps on the rounds' bell, for a bounded time: a peer that was to ring may have been
// stopped. Memory that peers may still read is given back only when all members have left.
//
// Any thread; one at a time is meant to wait.
#ifndef COVEY_CORE_ROUNDS_PORT_H_
#define COVEY_CORE_ROUNDS_PORT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/tensor.h"
#include "core/round/pace.h"
#include "core/round/rounds.h"
#include "core/run/transport.h"

namespace covey {

class RoundsPort {
 public:
  struct Waiting {
    Time spin = 0;
    int yields = 0;
  };
  struct Bundle {
    std::string name;
    RoundMemory::Shape shape;
    RoundLayout layout;
    Rounds::Options options;  // max_wait == 0, grace < 0: by the pace of this rank
    Waiting waiting;
  };

  // Of this rank.
  struct Counters {
    uint64_t versions = 0;   // read
    uint64_t fresh = 0;      // of those: with a contribution of this rank in time,
    uint64_t late = 0;       // with an older one
    uint64_t overdue = 0;    // how often it was no longer waited for
    uint64_t snapshots = 0;  // of others, that it has gone on from
    uint64_t waited_ns = 0;
  };

  // `transport` has words and outlives the port, as does `group`, of which this rank is a member.
  RoundsPort(Bundle bundle, const Group* group, Transport* transport);

  // Before Open: how much of this rank's region to give.
  size_t BlockBytes() const { return memory_.BlockBytes(bundle_.options.self); }
  const RoundMemory& memory() const { return memory_; }
  // `offsets`: where each member's block lies in its region. All members have agreed.
  void Open(const std::vector<uint64_t>& offsets);

  const RoundLayout& layout() const { return memory_.layout(); }
  size_t hypers() const { return memory_.hypers(); }
  const Group& group() const { return *group_; }

  std::byte* open();
  uint64_t Publish(std::span<const double> hypers);
  uint64_t Skip();
  uint64_t executed();
  Status Wait(uint64_t version, Time deadline);
  // See Rounds::Expect. Waiting that ends otherwise than well gives the memory back.
  void Expect(std::span<void* const> to);
  // See ResultLog::Read.
  Status Read(uint64_t version, std::span<void* const> to, RoundRecord* record);
  // Models. See Rounds::Merge.
  Status Merge(uint64_t version, std::span<void* const> to, Merged* merged);
  bool has_models() const { return memory_.models().on(); }
  // kTimeout also when max_wait is over, then with a peer: the first of the ranks that are missing,
  // which the message names. Otherwise it goes on when called again.
  Status Finish(Time deadline);

  // ---- Snapshots (core/round/snapshots.h) of a trainer that has applied the versions up to
  // `applied`.
  enum class Event : uint8_t {
    kDone,
    kAsked,   // a snapshot is to be given
    kBehind,  // Finish: half of the log is not applied yet
    kTime,    // the deadline is over
  };
  // As Wait and Finish, which end early for such an event.
  Status WaitServing(uint64_t version, uint64_t applied, Time deadline, Event* event);
  Status FinishServing(uint64_t applied, Time deadline, Event* event);
  // After FinishServing, when everything is applied: until all that live are so far.
  Status MeetServing(uint64_t applied, Time deadline, Event* event);
  // Whether one is to be given now. *unused: the block of an old one, which can be freed;
  // Transport::kNoOffset: there is none. Nothing else is read but one word.
  bool IsAsked(uint64_t applied, uint64_t* unused);
  // In the block at `offset` of this rank's region, which is this port's from now on; kNoOffset:
  // there is no room. *unused as above.
  void Give(uint64_t version, uint64_t offset, std::span<const Snapshots::Part> parts,
            uint64_t* unused);
  // Waits for one. An offer of nobody (member -1): not yet. kExhausted: nobody is left who could
  // give one. kTimeout: all others have finished, and have not given one for max_wait.
  Status Seek(uint64_t applied, Time deadline, Offer* offer);
  bool Take(const Offer& offer, std::byte* to);
  uint64_t snapshot_offset() const { return snapshot_offset_; }  // kNoOffset: there is none

  // Waits in progress and to come end with kAborted.
  void Interrupt();
  // Nothing but CanBeFreed may be called afterwards.
  void Close();
  bool CanBeFreed();
  Counters counters();
  uint64_t offset() const { return offset_; }  // of this rank's block in its region

 private:
  uint64_t Arrive(const std::function<uint64_t()>& publish);
  Status Drive(const std::function<bool()>& done, Time deadline);
  Status DriveOn(const std::function<bool()>& done, Time deadline);
  bool Pass(const std::function<bool()>& done, Time now, Time* until, bool* moved);
  void HearOfLosses();
  void BeginFinish();
  void Count(const RoundRecord& record);
  std::string Missing(const std::vector<int32_t>& members);
  Rank FirstMissing();
  Time MaxWait(Time least) const;

  Bundle bundle_;
  const Group* group_;
  Transport* transport_;
  SharedWords* words_;
  RoundMemory memory_;
  uint64_t offset_ = 0;
  uint64_t snapshot_offset_ = Transport::kNoOffset;
  std::atomic<bool> stop_{false};

  std::mutex mutex_;
  std::unique_ptr<Rounds> rounds_;  // protected by mutex_
  Pace pace_;                       // likewise
  Counters counters_;               // likewise
  bool was_overdue_ = false;        // likewise: in the last version read
  bool finishing_ = false;          // likewise: the clock of max_wait runs
  Time meeting_since_ = 0;          // likewise; 0: it does not
  Time seeking_since_ = 0;          // likewise: nobody but finished ranks could give; 0: no
};

}  // namespace covey
#endif  // COVEY_CORE_ROUNDS_PORT_H_
