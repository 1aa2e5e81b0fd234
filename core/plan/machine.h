// Runs the schedules of all ranks of one exchange on symbolic memory; says which rule one breaks.
//
// One run suffices. Schedules have no branches and ticks only rise, so whether a wait is ever
// satisfied does not depend on the order in which ranks move; a rank's knowledge after a wait is
// taken from the *first* signal that satisfies it, so that "happens before" does not either; and
// bytes whose accesses are all ordered have one value only.
//
// The time after the exchange is modelled by the first access to its memory: a rank that has ended
// may at once begin the next exchange of the channel, whose first segments overwrite the slots
// after this exchange's last. Everything else of the next exchange comes after all ranks have ended
// this one (plan-S1), so two exchanges in succession need no second run.
//
// Where memory is mirrored (Problem::mirrored) a rank reads its mirrors of the landing slots of
// peers on other hosts, which hold what was pushed to it, and may use that once it knows of the
// signal it goes with. It learns only of signals that reach it.
//
// Not thread-safe.
#ifndef COVEY_CORE_PLAN_MACHINE_H_
#define COVEY_CORE_PLAN_MACHINE_H_

#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/plan/coded_ranges.h"
#include "core/plan/input_puts.h"
#include "core/plan/region.h"
#include "core/plan/schedule.h"
#include "core/plan/symbols.h"

namespace covey {

class Machine {
 public:
  struct Options {
    bool in_place = false;       // every rank's output is its input
    bool begins_awaited = true;  // as the executor does before the first step (plan-S1)
  };

  // `schedules` is by rank, and outlives the machine, as `problem` does.
  Machine(const Problem& problem, std::span<const Schedule> schedules, Options options);

  // To the end of every rank. The message names rank, step and reason.
  Status Run();

  Symbols& symbols() { return symbols_; }
  const Region& output(int32_t rank) const { return *Of(rank).output; }

 private:
  struct Signal {
    uint32_t tick;
    bool leaves_host;
    Epochs epochs;
  };
  struct Member {
    size_t cursor = 0;
    bool ended = false;
    Epochs epochs;
    std::vector<Signal> signals;  // ticks rise
    Region* input = nullptr;
    Region* output = nullptr;  // the input's, when in place
    std::vector<Region> slots;
    std::map<std::pair<int32_t, size_t>, Region> mirrors;  // of peers' slots, by owner and slot
  };
  using HeldBytes = std::vector<Held>;

  Member& Of(int32_t rank) { return members_[static_cast<size_t>(rank)]; }
  const Member& Of(int32_t rank) const { return members_[static_cast<size_t>(rank)]; }
  const Step& StepOf(int32_t rank) const {
    return schedules_[static_cast<size_t>(rank)].steps[Of(rank).cursor];
  }
  std::string Where(int32_t rank) const;  // "rank 1 step 3 (wait * >= 2)"

  // These answer with the rule broken, in words, or with nothing.
  std::string Begin(int32_t me);
  std::string End(int32_t me);
  std::string BeginNext(int32_t me);
  std::string Perform(int32_t me, const Step& step);
  std::string Push(int32_t me, const Step& step);
  std::string Copy(int32_t me, const Step& step);
  std::string Reduce(int32_t me, const Step& step);
  std::string ReduceFetched(int32_t me, const Step& step);
  std::string Mix(int32_t me, const Step& step);
  std::string Sum(int32_t me, const Step& step);
  std::string SumHost(int32_t me, const Step& step);
  std::string Encode(int32_t me, const Buffer& slot, uint64_t begin, uint64_t length);
  std::string ReduceCoded(int32_t me, const Step& step);
  std::string MixCoded(int32_t me, const Step& step);
  std::string LoadCoded(int32_t me, const Buffer& buffer, uint64_t length, HeldBytes* terms);
  std::string EncodeSum(int32_t me, const Step& step);
  std::string DecodeSum(int32_t me, const Step& step);
  Region* MirrorOf(int32_t reader, int32_t owner, uint32_t slot);
  std::string Find(int32_t me, const Buffer& buffer, uint64_t length, Region** region);
  std::string Load(int32_t me, const Buffer& buffer, uint64_t length, HeldBytes* held);
  std::string LoadInput(int32_t me, const Buffer& buffer, uint64_t length, HeldBytes* terms);
  std::string LoadPartial(int32_t me, const Buffer& buffer, uint64_t length, HeldBytes* partial);
  std::string Store(int32_t me, const Buffer& buffer, uint64_t length, const HeldBytes& held);
  std::string StorePartial(int32_t me, const Buffer& buffer, uint64_t length, HeldBytes partial);
  std::string Combine(const std::vector<HeldBytes>& operands, uint64_t length, HeldBytes* sum);
  bool TouchesPeers() const { return schedules_[0].touches_peers; }  // equal on all ranks

  bool Await(int32_t me, const Step& step);
  void GiveSignal(int32_t me, uint32_t tick, bool leaves_host);
  bool Learn(int32_t me, int32_t peer, uint32_t tick);  // false: not signalled yet
  void Finish(HeldBytes* sum);
  Status Stuck() const;
  Status CheckQuiet() const;

  const Problem& problem_;
  std::span<const Schedule> schedules_;
  Options options_;
  uint64_t widening_;
  Symbols symbols_;
  std::deque<Region> user_memory_;
  CodedRanges coded_;
  std::vector<Member> members_;
  InputPuts puts_;
};

}  // namespace covey
#endif  // COVEY_CORE_PLAN_MACHINE_H_
