// The stage of trainer_pairs_simulation.h: ranks, their fibers, and their faults by the seed. The
// actions of a rank are in trainer_pairs_trainee.cc, all else in trainer_pairs_simulation.cc.
#ifndef COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_STAGE_H_
#define COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_STAGE_H_

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/trainer_pairs.h"
#include "core/gossip/hosts_port.h"
#include "core/replicated/replica_port.h"
#include "core/train/trainer.h"
#include "ops/transports/inproc.h"
#include "tests/sim/simulator/fiber.h"
#include "tests/sim/simulator/learnt_models.h"
#include "tests/sim/simulator/rank_channels.h"
#include "tests/sim/simulator/trainer_pairs_simulation.h"
#include "tests/sim/simulator/trainer_pairs_swarm.h"

namespace covey {

class TrainerPairsSimulation final : public InprocWatcher {
 public:
  // `is_far`: not all ranks share memory.
  TrainerPairsSimulation(uint64_t seed, int32_t ranks, bool is_far);
  TrainerPairsVerdict Run();

  void OnPoint(Rank r) override { Point(ToInt(r)); }
  void OnRing(Rank, bool) override {}

 private:
  static constexpr size_t kWithGap = 16;  // numbers, and the gap between the two parameters

  struct Player {
    Group group;
    std::unique_ptr<Transport> transport;    // with these,
    std::unique_ptr<RankChannels> channels;  // where ranks are on several hosts
    std::unique_ptr<ReplicaPort> means;
    std::unique_ptr<PairsPort> port;
    std::unique_ptr<TrainerPairs> pairs;
    std::unique_ptr<Trainer> trainer;
    std::unique_ptr<Fiber> fiber;
    Trainer::Ready ready;
    std::array<double, kWithGap> held{};
    Numbers model{}, learnt{};
    Time stopped_until = 0;
    bool is_killed = false, has_ended = false, is_through = false;
    bool has_gone_on = false;  // in the last finish()
  };

  Player& At(int32_t rank) { return players_[static_cast<size_t>(rank)]; }
  void Open(int32_t rank);
  HostsPort* OpenFar(int32_t rank);
  PairsPort::Bundle BundleOf(int32_t rank);
  void Point(int32_t rank) {
    if (closing_ || rank != current_) return;
    if (rng_.Below(1000) < swarm_.switch_permille) At(rank).fiber->Yield();
  }
  void Yield(int32_t rank);
  void Main(int32_t rank);
  void Step(int32_t rank);
  void EndEpoch(int32_t rank, uint64_t epoch);
  bool Gather(int32_t rank, bool settles);
  Status Drive(int32_t rank, const std::function<Trainer::Ready()>& call);
  bool Do(int32_t rank, const Trainer::Action& action);
  void Exchange(int32_t rank);
  void LookAround(int32_t rank);
  void Check(const Epoch& epoch, bool is_settled);
  void CheckEqual(const Player& player, uint64_t number);
  void Strike();
  void Fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  Rng rng_;
  TrainerPairsSwarm swarm_;
  InprocNetwork network_;
  MethodChoice method_;
  TrainerLayout layout_;
  std::vector<Player> players_;
  std::vector<Epoch> epochs_;
  std::map<uint64_t, Numbers> ends_;  // by the number of the finish(): its model
  int32_t current_ = -1;
  bool closing_ = false;
  std::string failure_;
  TrainerPairsVerdict verdict_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_STAGE_H_
