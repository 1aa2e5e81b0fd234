// The actions of a simulated rank that trains in pairs: all that runs inside its fiber.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/sim/simulator/trainer_pairs_stage.h"

namespace covey {
namespace {

// Else waiting ranks might miss each other for ever; on several hosts they wait for messages, too.
constexpr uint64_t kMostTrainedOn = 1000, kMostTrainedOnFar = 200;
constexpr Time kSlice = 300 * kMicrosecond;  // of a wait, which then goes on

}  // namespace

void TrainerPairsSimulation::Main(int32_t rank) {
  Player& player = At(rank);
  for (uint64_t epoch = 0; epoch < swarm_.epochs && !closing_; ++epoch) {
    for (uint64_t step = 0; step < swarm_.steps && !closing_; ++step) {
      if (rng_.Percent(swarm_.looks_percent)) LookAround(rank);
      Step(rank);
    }
    if (!closing_) EndEpoch(rank, epoch);
  }
  player.has_ended = !closing_;
  player.pairs->Leave();
  player.is_through = true;
  // Its process lives on: others may need its vote.
  while (!closing_ && player.channels != nullptr) Yield(rank);
}

void TrainerPairsSimulation::Step(int32_t rank) {
  Trainer& trainer = *At(rank).trainer;
  const Time begun = network_.clock().Now();
  Status status = Status::Ok();
  do {
    status = Drive(rank, [&] { return trainer.OnStep("", network_.clock().Now()); });
    if (network_.clock().Now() - begun > kSecond) return Fail("5: a step waits");
  } while (status.code() == StatusCode::kAborted && !closing_);
  if (!status.ok() && !closing_) Fail("4: a step ends with " + status.message());
}

void TrainerPairsSimulation::EndEpoch(int32_t rank, uint64_t number) {
  Player& player = At(rank);
  const bool settles = (swarm_.settles >> number & 1) != 0 && number + 1 < swarm_.epochs;
  if (!Gather(rank, settles)) return;
  ++(settles ? verdict_.settled : verdict_.finished);
  if (!settles) CheckEqual(player, number);
  if (player.trainer->position().may_differ != settles && swarm_.steps > 0 && swarm_.is_strict)
    Fail("2: may_differ() is wrong");
  Epoch& epoch = epochs_[number];
  epoch.Add(player.model, player.learnt);
  if (epoch.models.size() == players_.size()) Check(epoch, settles);
  if (settles || !swarm_.finishes_twice || !Gather(rank, false)) return;
  ++verdict_.finished_again;
  CheckEqual(player, swarm_.epochs + number);
}

// Ends an epoch by finish(), or by settle() as before a checkpoint, again after each timeout.
// Returns true once it has returned Ok, and false if the simulation ends or fails first.
bool TrainerPairsSimulation::Gather(int32_t rank, bool settles) {
  Player& player = At(rank);
  player.has_gone_on = false;
  while (!closing_) {
    const Status status = Drive(rank, [&] {
      const Time now = network_.clock().Now();
      return settles ? player.trainer->OnSettle(now)
                     : player.trainer->OnFinish(swarm_.is_strict, now);
    });
    if (closing_ || status.ok()) break;
    verdict_.timeouts += status.code() == StatusCode::kTimeout ? 1 : 0;
    // Between hosts all ranks that had the mean may have died.
    const bool is_lost = player.channels != nullptr && status.code() == StatusCode::kAborted;
    if (is_lost && 2 * verdict_.killed >= players_.size()) return false;
    if (status.code() != StatusCode::kTimeout && status.code() != StatusCode::kAborted) {
      Fail("4: an epoch ends with " + status.message());
      return false;
    }
    const bool is_far = player.channels != nullptr;
    const bool may_train_on = verdict_.trained_on < (is_far ? kMostTrainedOnFar : kMostTrainedOn);
    if (status.code() == StatusCode::kTimeout && rng_.Percent(swarm_.trains_on) && may_train_on) {
      ++verdict_.trained_on;
      Step(rank);
    }
  }
  return !closing_;
}

// Ranks that have not gone on without others have one model.
void TrainerPairsSimulation::CheckEqual(const Player& player, uint64_t number) {
  const bool is_alone = verdict_.killed > 0 || verdict_.trained_on > 0;
  if (player.has_gone_on || is_alone) return;
  Numbers& first = ends_.try_emplace(number, player.model).first->second;
  verdict_.ended_later += verdict_.went_on > 0 ? 1 : 0;
  if (player.model != first) Fail("1: finish() leaves two models");
}

void TrainerPairsSimulation::Check(const Epoch& epoch, bool is_settled) {
  // A rank that trains on while the others meet has work that is in no mean yet.
  if (verdict_.killed > 0 || verdict_.trained_on > 0 || !swarm_.is_strict) return;
  ++verdict_.whole;
  for (const Numbers& model : epoch.models)
    if (!is_settled && model != epoch.models[0]) Fail("1: finish() leaves two models");
  if (const std::string apart = epoch.Apart(); !apart.empty())
    Fail((is_settled ? "2: " : "1: ") + apart);
}

// To the end of the call, as an adapter does.
Status TrainerPairsSimulation::Drive(int32_t rank, const std::function<Trainer::Ready()>& call) {
  Player& player = At(rank);
  player.ready = call();
  while (!player.ready.end.has_value()) {
    if (player.ready.exchange.has_value()) {
      Exchange(rank);
    } else {
      const Trainer::Action action = *player.ready.action;
      const int64_t before = player.trainer->version();
      const bool is_done = Do(rank, action);
      player.ready = player.trainer->OnAck(action.number, is_done, network_.clock().Now());
      const bool is_update = is_done && action.stage == Stage::kUpdate;
      if (player.trainer->version() - before != (is_update ? 1 : 0))
        Fail("4: version() has grown by " + std::to_string(player.trainer->version() - before));
    }
    if (closing_) return Status::Aborted("the simulation is over");
  }
  return *player.ready.end;
}

bool TrainerPairsSimulation::Do(int32_t rank, const Trainer::Action& action) {
  Player& player = At(rank);
  Yield(rank);
  if (rng_.Below(1000) < swarm_.refusals_permille) {
    ++verdict_.refused;
    return false;
  }
  if (action.stage == Stage::kUpdate) {
    const auto by = static_cast<double>(rng_.Below(1000));
    Learn(by, &player.model, &player.learnt);
    ++verdict_.updates;
  }
  if (action.stage == Stage::kCollectModel)
    std::memcpy(player.held.data(), player.model.data(), sizeof(player.model));
  if (action.stage == Stage::kLoadModel)
    std::memcpy(player.model.data(), player.held.data(), sizeof(player.model));
  return true;
}

void TrainerPairsSimulation::Exchange(int32_t rank) {
  Player& player = At(rank);
  const Trainer::Exchange exchange = *player.ready.exchange;
  if (!IsOfPairs(exchange.stage)) return Fail("4: an exchange that is not of pairs");
  StageResult result;
  Status status = Status::Ok();
  // In slices, as an adapter waits that looks for signals.
  while (!player.pairs->Perform(exchange,
                                std::min(network_.clock().Now() + kSlice, player.ready.deadline),
                                &status, &result)) {
    Yield(rank);
    if (closing_) return;
  }
  verdict_.went_on += exchange.stage == Stage::kSeenMean ? 1 : 0;
  player.has_gone_on |= exchange.stage == Stage::kSeenMean;
  if (!closing_)
    player.ready = player.trainer->OnExchangeEnd(status, result, network_.clock().Now());
}

void TrainerPairsSimulation::LookAround(int32_t rank) {
  const auto other = static_cast<int32_t>(rng_.Below(players_.size()));
  std::array<double, kWithGap> model{};
  const auto to = reinterpret_cast<std::byte*>(model.data());
  if (At(rank).pairs->Peek(other, to).state != WindowState::kWhole) {
    ++verdict_.changed_meanwhile;
    return;
  }
  ++verdict_.seen;
  // Each update adds a number, and i to element i.
  for (size_t i = 2; i < kElements; ++i) {
    const double apart = model[i] - model[0] - static_cast<double>(i) * (model[1] - model[0]);
    if (std::abs(apart) > kNear * (1 + std::abs(model[i])))
      Fail("3: rank " + std::to_string(rank) + " sees parts of two models of rank " +
           std::to_string(other));
  }
}

}  // namespace covey
