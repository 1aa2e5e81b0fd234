// The stage of trainer_simulation.h: ranks, their fibers, and their faults by the seed. The actions
// of a rank are in trainer_trainee.cc, its faults in trainer_simulation.cc.
#ifndef COVEY_TESTS_SIM_SIMULATOR_TRAINER_STAGE_H_
#define COVEY_TESTS_SIM_SIMULATOR_TRAINER_STAGE_H_

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/trainer_rounds.h"
#include "core/train/trainer.h"
#include "ops/transports/inproc.h"
#include "tests/sim/simulator/fiber.h"
#include "tests/sim/simulator/rank_channels.h"
#include "tests/sim/simulator/simulated_port.h"
#include "tests/sim/simulator/simulated_rounds.h"
#include "tests/sim/simulator/trainer_simulation.h"
#include "tests/sim/simulator/trainer_swarm.h"

namespace covey {

// A model, and an optimizer's state that says which updates were done, in which order.
struct VirtualModel {
  static constexpr int64_t kElements = 12;
  using Numbers = std::array<double, kElements>;

  Numbers sum{};
  uint64_t order = 1;

  void Apply(const Numbers& gradients);
  friend bool operator==(const VirtualModel&, const VirtualModel&) = default;
};

class TrainerSimulation final : public InprocWatcher {
 public:
  // `is_far`: ranks share no memory.
  TrainerSimulation(uint64_t seed, int32_t ranks, bool is_far);
  TrainerVerdict Run();

  void OnPoint(Rank r) override { Point(ToInt(r)); }
  void OnRing(Rank, bool) override {}

 private:
  using Numbers = VirtualModel::Numbers;
  // With the gap between the two parameters.
  static constexpr size_t kWithGap = VirtualModel::kElements + 4;

  struct Player {
    Group group;
    std::unique_ptr<RankChannels> channels;    // where ranks share no memory
    std::map<int64_t, SimulatedRounds> parts;  // by the version at which they begin
    std::unique_ptr<Trainer> trainer;
    std::unique_ptr<Fiber> fiber;
    Trainer::Ready ready;
    Numbers given{}, reduced{};
    std::array<double, kWithGap> copies{}, held{};
    VirtualModel model;
    uint64_t meetings = 0;  // exchanges of all that it has come to
    uint64_t executed = 0;  // at the end of its last exchange of rounds,
    Stage stage{};          // which was this
    Time stopped_until = 0;
    bool misses = false;        // a member was overdue in the last version it has read
    bool is_given = false;      // its gradients of this step were handed over
    bool is_to_agree = false;   // on the step after its rounds
    bool is_finishing = false;  // it is in finish()
    bool is_passing = false;    // it begins a pass
    bool has_more = false;      // its next update is with what it has withdrawn
    bool is_killed = false, has_left = false, has_ended = false;
    bool is_through = false;  // with its script; its process lives on
  };
  // The call that ends an epoch: finish(), strict or free to go on without ranks, or settle().
  enum class Ending : uint8_t { kStrict, kGoesOn, kSettle };
  // An exchange of all.
  struct Meeting {
    std::map<int32_t, Numbers> gradients;
    Trainer::Exchange exchange;
    int64_t step = 0;
  };

  Player& At(int32_t rank) { return players_[static_cast<size_t>(rank)]; }
  void OpenParts(int32_t rank);
  std::unique_ptr<RoundsPort> NewPort(int32_t rank, RoundsPort::Bundle bundle);
  static void Interrupt(Player* player);
  void Point(int32_t rank);
  void Yield(int32_t rank);
  void Main(int32_t rank);
  Status Drive(int32_t rank, const std::function<Trainer::Ready()>& call);
  bool Do(int32_t rank, const Trainer::Action& action);
  void Exchange(int32_t rank);
  Status Meet(int32_t rank, const Trainer::Exchange& exchange, StageResult* result);
  void BeginPass(int32_t rank);
  void LeaveAfter(int32_t rank, const Status& status, uint64_t tries);
  void Train(int32_t rank, int64_t until, int64_t* count);
  void Finish(int32_t rank, Ending ending);
  void CheckGathered(int32_t rank, uint64_t epoch);
  void NoteEnd(int32_t rank);
  void CheckStep(int32_t rank);
  void CheckModel(int32_t rank);
  void CheckArrays(int32_t rank, uint64_t version);
  bool IsOver(const Player& player) const {
    return swarm_.end < kForever && player.trainer->position().is_over;
  }
  // Versions that the dead alone had; without shared memory the others make them anew.
  bool MayBeLost() const {
    return players_[0].channels != nullptr && 2 * verdict_.killed >= players_.size();
  }
  // The next step, or the one under way, has an update of its rank's own.
  bool IsLocal(const Player& player) const {
    const int64_t part = player.trainer->part();
    return part != Trainer::kNoPart && player.parts.at(part).payload != Payload::kGradients;
  }
  bool HasOwnModel(const Player& player) const {
    return IsLocal(player) && player.parts.at(player.trainer->part()).payload == Payload::kModel;
  }
  // Its training has ended with the model of all.
  bool HasMean(const Player& player) const { return !HasOwnModel(player) || !swarm_.ends_at_once; }
  TrainerRounds& RoundsOf(const Player& player, int64_t part) const {
    return *player.parts.at(part).rounds;
  }
  std::byte* ModelOf(Player* player);
  void CountGiven(int32_t rank);
  void CheckEnd();
  void CheckHandOver();
  void NoteExchange(int32_t rank, const Trainer::Exchange& exchange, const Status& status,
                    const StageResult& result);
  void NoteHandOver(int32_t rank, const StageResult& result);
  Numbers GradientOf(int32_t rank, int64_t step) const;
  void Strike();
  std::string Where() const;
  void Fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  Rng rng_;
  TrainerSwarm swarm_;
  InprocNetwork network_;
  MethodChoice method_;
  TrainerLayout layout_;
  std::vector<Player> players_;
  std::map<int64_t, VirtualModel> models_;             // by version
  std::map<uint64_t, std::vector<std::byte>> arrays_;  // replicated ones, by version of rounds
  std::map<uint64_t, Meeting> meetings_;
  std::map<uint64_t, std::pair<int64_t, Numbers>> gathered_;  // version and model, by epoch
  Numbers published_{};                                       // of all ranks, all steps
  Numbers withdrawn_{};       // of these: those that were updates of their ranks alone
  int64_t handed_with_ = -1;  // the version with which rounds of models begin
  int64_t left_with_ = -1;    // the step after the rounds
  int32_t current_ = -1;
  bool closing_ = false;
  std::string failure_;
  TrainerVerdict verdict_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_TRAINER_STAGE_H_
