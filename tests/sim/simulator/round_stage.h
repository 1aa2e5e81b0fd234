// The stage of round_simulation.h: ranks, their fibers, and their faults by the seed. Their own
// actions are in round_trainee.cc, their faults in round_simulation.cc.
#ifndef COVEY_TESTS_SIM_SIMULATOR_ROUND_STAGE_H_
#define COVEY_TESTS_SIM_SIMULATOR_ROUND_STAGE_H_

#include <memory>
#include <vector>

#include "ops/transports/inproc.h"
#include "tests/sim/simulator/fiber.h"
#include "tests/sim/simulator/round_journal.h"
#include "tests/sim/simulator/round_simulation.h"
#include "tests/sim/simulator/round_swarm.h"

namespace covey {

class RoundSimulation final : public InprocWatcher {
 public:
  RoundSimulation(uint64_t seed, int32_t ranks);
  RoundVerdict Run();

  void OnPoint(Rank r) override { Point(ToInt(r)); }
  void OnRing(Rank, bool) override {}
  // In the middle of a copy or a sum: where a stop hurts most.
  void OnWork() {
    if (swarm_.stops_permille > 0 && rng_.Percent(5)) StopForAWhile(current_);
    if (!closing_ && in_snapshot_ && rng_.Percent(50))
      players_[static_cast<size_t>(current_)].fiber->Yield();
    Point(current_);
  }

 private:
  enum class State : uint8_t { kRuns, kStopped, kKilled };
  // Another rank as one that waits has seen it, and how long it has waited for it.
  struct Laggard {
    uint64_t step = 0;
    bool is_stale = false;
    Time waited = 0;
  };
  struct Player {
    std::unique_ptr<Rounds> rounds;
    std::unique_ptr<Fiber> fiber;
    State state = State::kRuns;
    Time stopped_until = 0;
    Time known_dead_at = kNever;
    uint64_t read = 0;            // versions
    std::vector<std::byte> data;  // of the last one; of every second rank it is known beforehand
    bool holds = false;           // it reads in place,
    const std::byte* held = nullptr;  // there
    RoundModel model;                 // after them
    std::byte* place = nullptr;       // of its snapshots
    bool has_fallen_out = false;      // and no rank could help
    uint64_t claim = 0;               // of a snapshot, that it could give as well,
    Time claim_since = kNever;        // of its first whole look at that
    bool skips_ahead = false;         // as far as it knows
    bool leaves = false;              // in the middle of finish()
    std::vector<Laggard> laggards;    // by rank
    uint64_t waits_for = 0;           // the version at its last look,
    Time looked_at = 0;               // when that was
  };

  void Point(int32_t rank);
  void Strike();
  bool Stop(int32_t rank);
  bool IsLast() const;
  void StopForAWhile(int32_t rank);
  void Main(int32_t rank);
  void Hear(Rounds* rounds);
  uint64_t Step(int32_t rank);
  void Advance(int32_t rank, bool* moved);
  bool IsStale(int32_t rank, uint64_t version) const;
  void CountLaggards(int32_t rank);
  void CheckLaggards(int32_t rank);
  void AwaitVersion(int32_t rank, uint64_t version);
  void ReadAll(int32_t rank);
  Found Read(int32_t rank, uint64_t version, RoundRecord* record);
  void CheckHeld(int32_t rank);
  std::vector<void*> SpansOf(std::vector<std::byte>* data) const;
  void Serve(int32_t rank);
  void CheckClaim(int32_t rank, Time looked_at);
  bool Recover(int32_t rank);
  void Flush(int32_t rank);
  void GoOnWithout(int32_t rank);
  void Retract(int32_t rank);
  void Meet(int32_t rank);
  void CheckKept(int32_t rank);
  bool IsAnybodyThere(int32_t rank) const;
  bool CanAnybodyGive(int32_t to) const;
  bool AllHaveEnded() const;
  bool IsFlushable() const { return swarm_.most_stopped == 0 || swarm_.max_wait != kNever; }

  Rng rng_;
  RoundSwarm swarm_;
  InprocNetwork network_;
  RoundLayout layout_;
  RoundMemory memory_;
  std::unique_ptr<RoundJournal> journal_;
  std::vector<Player> players_;
  int32_t current_ = -1;
  bool closing_ = false;
  bool in_snapshot_ = false;  // a rank copies one
  uint64_t stopped_ = 0, killed_ = 0, stops_ = 0, gone_ = 0, gave_up_ = 0;
  uint64_t given_ = 0, taken_ = 0, retracted_ = 0, empty_steps_ = 0, taken_back_ = 0;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_ROUND_STAGE_H_
