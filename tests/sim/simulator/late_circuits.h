// Circuits between LateDevices, harsher than any library: a device does what it was handed strictly
// in turn, over all circuits, and an item only once it is at the front on all members. So two ranks
// that launch in different orders stand still, and what was launched by some members alone blocks
// their devices until the circuit is aborted.
#ifndef COVEY_TESTS_SIM_SIMULATOR_LATE_CIRCUITS_H_
#define COVEY_TESTS_SIM_SIMULATOR_LATE_CIRCUITS_H_

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/rng.h"
#include "core/device/circuits.h"

namespace covey {

// What joins the devices of all ranks.
class CircuitCables {
 public:
  struct Item {
    size_t line = 0;
    uint64_t number = 0;  // in its circuit, from 1 on
    covey_circuit_work work{};
    std::vector<covey_circuit_part> parts;
    std::vector<void*> after;
  };
  struct Line {
    CircuitId id{};
    std::vector<int32_t> ranks;  // by group index; -1: has not opened it
    std::vector<uint64_t> devices;
    std::vector<uint64_t> done;  // by group index
    std::vector<bool> aborted;   // likewise
    bool IsWhole() const;
    bool IsBroken() const;
  };

  CircuitCables(int32_t ranks, bool (*has_completed)(void* event))
      : queues_(static_cast<size_t>(ranks)),
        dead_(static_cast<size_t>(ranks)),
        has_completed_(has_completed) {}

  size_t Join(const CircuitId& id, int32_t rank, uint64_t device, int32_t me, int32_t size);
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
class LateCircuits final : public Circuits {
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
  LateCircuits(const Options& options, Clock* clock, CircuitCables* cables)
      : options_(options), rng_(options.seed), clock_(clock), cables_(cables) {}

  uint64_t Device() override { return options_.device; }
  Answer Offers() override;
  std::string Trouble() override { return "there is no library"; }
  Answer MakeId(CircuitId* id) override;
  Circuit* Open(const CircuitId& id, int32_t me, int32_t size) override;
  Answer IsReady(Circuit* circuit) override;
  bool After(Circuit* circuit, void* event) override;
  bool Launch(Circuit* circuit, const covey_circuit_work& work) override;
  Answer IsLaunched(Circuit* circuit, uint64_t* mark) override;
  Answer IsDone(Circuit* circuit, uint64_t mark) override;
  void Abort(Circuit* circuit) override;
  bool IsOver(Circuit* circuit) override;
  void GiveUp(Circuit*) override {}
  std::string Failure(Circuit* circuit) override;

 private:
  struct Held {
    size_t line = 0;
    int32_t me = 0;
    Time ready_at = 0;
    uint64_t launched = 0;
    bool launching = false;
    Time handed_at = 0;
    CircuitCables::Item item;
    bool failed = false;
    Time over_at = 0;  // 0: not aborted
  };
  static Held* Of(Circuit* circuit) { return reinterpret_cast<Held*>(circuit); }
  Time Later();

  Options options_;
  Rng rng_;
  Clock* clock_;
  CircuitCables* cables_;
  Time found_at_ = 0;
  Time id_at_ = 0;
  std::vector<std::unique_ptr<Held>> held_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_LATE_CIRCUITS_H_
