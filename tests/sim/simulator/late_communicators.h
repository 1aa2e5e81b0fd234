// Communicators between LateDevices, harsher than any library: a device does what it was handed
// strictly in turn, over all communicators, and an item only once it is at the front on all
// members. So two ranks that launch in different orders stand still, and what was launched by some
// members alone blocks their devices until the communicator is aborted.
#ifndef COVEY_TESTS_SIM_SIMULATOR_LATE_COMMUNICATORS_H_
#define COVEY_TESTS_SIM_SIMULATOR_LATE_COMMUNICATORS_H_

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/rng.h"
#include "core/device/communicators.h"

namespace covey {

// The connection of the devices of all ranks.
class CommunicatorCables {
 public:
  struct Item {
    size_t line = 0;
    uint64_t number = 0;  // in its communicator, from 1 on
    covey_circuit_work work{};
    std::vector<covey_circuit_part> parts;
    std::vector<void*> after;
  };
  struct Line {
    CommunicatorId id{};
    std::vector<int32_t> ranks;  // by group index; -1: has not opened it
    std::vector<uint64_t> devices;
    std::vector<uint64_t> done;  // by group index
    std::vector<bool> aborted;   // likewise
    bool IsWhole() const;
    bool IsBroken() const;
  };

  CommunicatorCables(int32_t ranks, bool (*has_completed)(void* event))
      : queues_(static_cast<size_t>(ranks)),
        dead_(static_cast<size_t>(ranks)),
        has_completed_(has_completed) {}

  size_t Join(const CommunicatorId& id, int32_t rank, uint64_t device, int32_t me, int32_t size);
  Line& line(size_t number) { return lines_[number]; }
  void Hand(int32_t rank, Item item);
  void Abort(size_t line, int32_t me);
  // The process is gone, and its device does nothing more.
  void Kill(int32_t rank);
  void Advance();  // does what can be done
  // Whether the rank's device may still write or read this memory.
  bool Uses(int32_t rank, const void* on_device) const;
  const std::string& wrong() const { return wrong_; }  // empty: nothing

 private:
  bool DoOne(Line* line, size_t number);
  void Do(const std::vector<const Item*>& items);

  std::deque<Line> lines_;
  std::vector<std::deque<Item>> queues_;
  std::vector<bool> dead_;
  bool (*has_completed_)(void* event);
  std::string wrong_;
};

// Those of one rank.
class LateCommunicators final : public Communicators {
 public:
  struct Options {
    int32_t rank = 0;
    uint64_t device = 0;
    uint64_t seed = 1;
    bool there = true;            // the library
    bool never_ready = false;     // opening does not end
    int fails_after = -1;         // launches, in which it fails; -1: never
    Time longest = kMillisecond;  // that anything takes
  };
  LateCommunicators(const Options& options, Clock* clock, CommunicatorCables* cables)
      : options_(options), rng_(options.seed), clock_(clock), cables_(cables) {}

  uint64_t Device() override { return options_.device; }
  Answer Offers() override;
  std::string Trouble() override { return "there is no library"; }
  Answer MakeId(CommunicatorId* id) override;
  Communicator* Open(const CommunicatorId& id, int32_t me, int32_t size) override;
  Answer IsReady(Communicator* communicator) override;
  bool After(Communicator* communicator, void* event) override;
  bool Launch(Communicator* communicator, const covey_circuit_work& work) override;
  Answer IsLaunched(Communicator* communicator, uint64_t* mark) override;
  Answer IsDone(Communicator* communicator, uint64_t mark) override;
  void Abort(Communicator* communicator) override;
  bool IsOver(Communicator* communicator) override;
  void GiveUp(Communicator*) override {}
  std::string Failure(Communicator* communicator) override;

 private:
  struct Held {
    size_t line = 0;
    int32_t me = 0;
    Time ready_at = 0;
    uint64_t launched = 0;
    bool launching = false;
    Time handed_at = 0;
    CommunicatorCables::Item item;
    bool failed = false;
    Time over_at = 0;  // 0: not aborted
  };
  static Held* Of(Communicator* communicator) { return reinterpret_cast<Held*>(communicator); }
  Time Later();

  Options options_;
  Rng rng_;
  Clock* clock_;
  CommunicatorCables* cables_;
  Time found_at_ = 0;
  Time id_at_ = 0;
  std::vector<std::unique_ptr<Held>> held_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_LATE_COMMUNICATORS_H_
