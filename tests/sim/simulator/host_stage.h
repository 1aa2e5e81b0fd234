// The stage of host_simulation.h: ranks, the links between them, and what the seed does to them.
// Their actions as trainers are in host_trainee.cc, or where they average models, in
// host_model_simulation.cc, all else in host_simulation.cc.
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_STAGE_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_STAGE_H_

#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "core/base/rng.h"
#include "core/replicated/replica.h"
#include "tests/sim/simulator/host_journal.h"
#include "tests/sim/simulator/host_simulation.h"
#include "tests/sim/simulator/host_witness.h"
#include "tests/sim/simulator/round_swarm.h"

namespace covey {

class HostSimulation {
 public:
  // `has_models`: ranks average models; else they sum gradients.
  HostSimulation(uint64_t seed, int32_t size, bool has_models = false, bool has_witness = false);
  virtual ~HostSimulation() = default;
  HostVerdict Run();

 protected:
  static constexpr Time kLongestStop = 8 * kMillisecond;
  static constexpr uint64_t kMostStops = 60;
  enum class State : uint8_t { kRuns, kStopped, kKilled, kLeft };
  enum class Phase : uint8_t { kComputes, kWaits, kFinishes, kSeeks, kMeets, kGoesOn, kDone };
  struct Mail {
    Time arrives;
    EncodedMessage message;  // it holds what its writer has given, as a full window does
  };
  // A link between two ranks on which all waits until a time.
  struct Cut {
    size_t from = 0, to = 0;
    bool both_ways = false;
    Time begin = kNever, end = kNever;
  };
  struct Player {
    std::unique_ptr<Replica> replica;
    State state = State::kRuns;
    Phase phase = Phase::kComputes;
    Time stopped_until = 0, computes_until = 0;
    std::deque<EncodedMessage> unsent;
    std::vector<bool> told;  // by rank: that it is dead
    uint64_t checked = 0;    // versions
    uint64_t term = 1;
    uint64_t awaited = 0;
    uint64_t read = 0;
    uint64_t steps = 0;
    RoundModel model;
    bool is_flushed = false, lacks_committed = false, leaves = false;
    bool is_stranded = false;       // it needs a snapshot, and no rank can give one
    bool meets = true;              // the others after finish(), as trainers of frameworks do
    Phase goes_on = Phase::kWaits;  // after it has sought
    bool skips_ahead = false;
    bool settles = false;  // it goes on without others when it has given up;
    bool has_gone_on = false, goes_away = false;
    bool is_away = false;  // then its trainer gives no snapshot any more
    uint64_t dropped = 0;  // steps
  };

  std::deque<Mail>& LinkOf(int32_t from, int32_t to) {
    return links_[static_cast<size_t>(from * swarm_.size + to)];
  }
  // The same of all links between these ranks and the others.
  struct Split {
    uint64_t side = 0;
    bool to_it = true, from_it = true;
    Time begin = kNever, end = kNever;
  };
  Cut DrawCut(Rng rng) const;
  Split DrawSplit(Rng rng) const;
  Time CutUntil(int32_t from, int32_t to) const;
  void Strike();
  bool CanSpare(int32_t rank, bool leaves) const;
  void Act(int32_t rank);
  void CallWitness(int32_t rank);
  void Deliver(int32_t rank);
  void HearOfLosses(int32_t rank);
  void Send(int32_t rank);
  virtual void Check(int32_t rank);
  virtual void Train(int32_t rank);
  // The rank finishes, leaves or is killed: versions may have fewer fresh members.
  virtual void NoteFewer(int32_t rank) { journal_.OnFewer(rank); }
  virtual void CheckEnd();
  virtual uint64_t versions() const { return journal_.versions(); }
  void Publish(int32_t rank);
  void ReadAll(int32_t rank);
  bool IsToRead(const Player& player) const;
  void AwaitFlush(int32_t rank);
  void AwaitOthers(int32_t rank);
  void GoOnWithout(int32_t rank);
  void NoteSettled(int32_t rank);
  void NoteDropped(int32_t rank);
  bool LacksCommitted(int32_t rank);
  void PerhapsLeave(int32_t rank);
  void PerhapsStop(int32_t rank);
  void DropUnsent(Player* player);
  void Serve(int32_t rank);
  void RequestSnapshot(int32_t rank);
  void GiveUp(int32_t rank);
  bool CanAnybodyGive(int32_t to) const;
  void Kill(int32_t rank);
  bool AllHaveEnded() const;
  bool IsFlushable() const { return swarm_.most_stopped == 0 || swarm_.max_wait != kNever; }
  HostVerdict Verdict(uint64_t turns) const;

  Rng rng_;
  RoundSwarm swarm_;
  const std::vector<int32_t> hosts_;  // by rank
  const ModelRule rule_;
  RoundLayout layout_;
  RoundMemory geometry_;
  HostJournal journal_;
  Time now_ = kSecond;
  bool has_storms_;  // leaders change all the time
  Time grace_, longest_delay_;
  uint64_t slow_replicas_ = 0, clog_permille_ = 0;
  uint64_t leaves_permille_ = 0;
  Time longest_linger_ = 0;
  bool reads_late_;          // trainers apply in finish() when they have to
  bool has_users_of_c_;      // some of them end at once after finish()
  uint64_t losses_percent_;  // how soon they are heard of
  std::vector<Player> players_;
  std::vector<std::deque<Mail>> links_;
  Cut cut_;
  Split split_;
  std::unique_ptr<HostWitness> witness_;  // null: there is none
  uint64_t stopped_ = 0, killed_ = 0, stops_ = 0, gave_up_ = 0;
  uint64_t skipped_ = 0, taken_ = 0, empty_steps_ = 0, left_ = 0, lacking_ = 0, by_hub_ = 0;
  uint64_t settled_ = 0, dropped_ = 0, rejoined_ = 0;
  std::set<uint64_t> terms_, elections_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_STAGE_H_
