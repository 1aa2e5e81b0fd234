// The stage of trainer_pairs_simulation.h: ranks, their fibers, and their faults by the seed. The
// actions of a rank are in trainer_pairs_trainee.cc, its exchanges in trainer_pairs_exchanges.cc,
// all else in trainer_pairs_simulation.cc.
#ifndef COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_STAGE_H_
#define COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_STAGE_H_

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/trainer_pairs.h"
#include "core/gossip/hosts_port.h"
#include "core/replicated/replica_port.h"
#include "core/train/trainer.h"
#include "ops/transports/inproc.h"
#include "tests/sim/simulator/fiber.h"
#include "tests/sim/simulator/learnt_models.h"
#include "tests/sim/simulator/rank_channels.h"
#include "tests/sim/simulator/simulated_rounds.h"
#include "tests/sim/simulator/trainer_pairs_simulation.h"
#include "tests/sim/simulator/trainer_pairs_swarm.h"

namespace covey {

class TrainerPairsSimulation final : public InprocWatcher {
 public:
  struct Setting {
    bool is_far = false;  // not all ranks share memory
    bool mixes = false;   // see TrainerPairsSwarm
  };
  TrainerPairsSimulation(uint64_t seed, int32_t ranks, Setting setting);
  TrainerPairsVerdict Run();

  void OnPoint(Rank r) override { Point(ToInt(r)); }
  void OnRing(Rank, bool) override {}

 private:
  static constexpr size_t kWithGap = 16;  // numbers, and the gap between the two parameters

  // The pairs of one part of the training.
  struct Pairs {
    std::unique_ptr<ReplicaPort> means;  // where ranks are on several hosts
    std::unique_ptr<PairsPort> port;
    std::unique_ptr<TrainerPairs> exchanges;
  };
  struct Player {
    Group group;
    std::unique_ptr<Transport> transport;    // with these,
    std::unique_ptr<RankChannels> channels;  // where ranks are on several hosts
    // By the version at which their part begins.
    std::map<int64_t, Pairs> pairs;
    std::map<int64_t, SimulatedRounds> rounds;
    std::unique_ptr<Trainer> trainer;
    std::unique_ptr<Fiber> fiber;
    Trainer::Ready ready;
    Trainer::Exchange exchange;  // the last one
    uint64_t meetings = 0;       // exchanges of all that it has come to
    std::array<double, kWithGap> held{}, copies{};
    Numbers model{}, learnt{};
    Numbers before{};     // the model that it has begun these pairs with
    Numbers gradients{};  // of this step, or their sum
    Time stopped_until = 0;
    bool is_killed = false, is_through = false;
    bool has_left = false;     // it gives its training up
    bool has_gone_on = false;  // in the last finish()

    // Its model, less that with which it has begun these pairs.
    Numbers Progress() const {
      Numbers progress = model;
      for (size_t i = 0; i < kElements; ++i) progress[i] -= before[i];
      return progress;
    }
  };
  // An exchange of all.
  struct Meeting {
    std::map<int32_t, Numbers> given;  // gradients, or models
    Stage stage{};
    int64_t step = 0;
    bool may_differ = false;
  };

  Player& At(int32_t rank) { return players_[static_cast<size_t>(rank)]; }
  void OpenAll();
  void OpenPairs(int64_t from);
  void OpenRoundsFrom(int64_t from);
  PairsPort::Bundle BundleOf(int32_t rank, int64_t from);
  ChannelDriver DriverOf(int32_t rank);
  std::vector<int32_t> HostsOf(const Player& player) const;
  void Interrupt(int32_t rank);
  void LeaveAll(int32_t rank);
  void Point(int32_t rank) {
    if (closing_ || rank != current_) return;
    if (rng_.Below(1000) < swarm_.switch_permille) At(rank).fiber->Yield();
  }
  void Yield(int32_t rank);
  void Main(int32_t rank);
  void Step(int32_t rank);
  bool IsToCallAgain(int32_t rank, const Status& status, uint64_t tries);
  void BeginPass(int32_t rank);
  void EndEpoch(int32_t rank, uint64_t epoch);
  bool Gather(int32_t rank, bool settles);
  Status Drive(int32_t rank, const std::function<Trainer::Ready()>& call);
  bool Do(int32_t rank, const Trainer::Action& action);
  void CollectGradients(TrainerRounds* rounds, Player* player);
  static void Apply(TrainerRounds* rounds, Player* player);
  void Exchange(int32_t rank);
  void BeginExchange(int32_t rank);
  bool Perform(int32_t rank, Time deadline, Status* status, StageResult* result);
  bool Meet(int32_t rank, StageResult* result);
  void OnExchanged(int32_t rank);
  void LookAround(int32_t rank);
  void Check(const Epoch& epoch, bool is_settled);
  void CheckEqual(const Player& player, uint64_t number);
  void CheckCommon(int32_t rank, int64_t place, const char* where);
  bool IsInPairs(const Player& player) const {
    return player.pairs.contains(player.trainer->part());
  }
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
  const bool is_far_;
  std::vector<Epoch> epochs_;
  std::map<uint64_t, Numbers> ends_;  // by the number of the finish(): its model
  std::map<uint64_t, Meeting> meetings_;
  std::map<int64_t, Epoch> left_;  // by the part of pairs that they have left: their models then
  // Where a part of pairs begins and ends: the version and the model with which ranks go on.
  std::map<int64_t, std::pair<int64_t, Numbers>> common_;
  int32_t current_ = -1;
  bool closing_ = false;
  std::string failure_;
  TrainerPairsVerdict verdict_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_STAGE_H_
