// The actions of a simulated rank that trains in pairs: all that runs inside its fiber.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/sim/simulator/trainer_pairs_stage.h"

namespace covey {
namespace {

// Else waiting ranks might miss each other for ever; on several hosts they wait for messages, too.
constexpr uint64_t kMostTrainedOn = 1000, kMostTrainedOnFar = 200;

constexpr uint64_t kMostTries = 60;  // of a call before a rank gives its training up

}  // namespace

void TrainerPairsSimulation::Main(int32_t rank) {
  Player& player = At(rank);
  const auto is_over = [&] { return closing_ || player.has_left; };
  for (uint64_t epoch = 0; epoch < swarm_.epochs && !is_over(); ++epoch) {
    const auto until = static_cast<int64_t>((epoch + 1) * swarm_.steps);
    const auto goes_on = [&](uint64_t steps) {
      return swarm_.is_mixed ? player.trainer->step() < until : steps < swarm_.steps;
    };
    for (uint64_t steps = 0; goes_on(steps) && !is_over(); ++steps) {
      if (rng_.Percent(swarm_.looks_percent)) LookAround(rank);
      if (swarm_.is_mixed && rng_.Percent(50)) BeginPass(rank);
      if (goes_on(steps)) Step(rank);
    }
    if (!is_over()) EndEpoch(rank, epoch);
  }
  LeaveAll(rank);
  player.is_through = true;
  // Its process lives on: others may need its vote.
  while (!closing_ && player.channels != nullptr) Yield(rank);
}

void TrainerPairsSimulation::Step(int32_t rank) {
  Trainer& trainer = *At(rank).trainer;
  const Time begun = network_.clock().Now();
  Status status = Status::Ok();
  uint64_t tries = 0;
  do {
    status = Drive(rank, [&] { return trainer.OnStep("", network_.clock().Now()); });
    const bool waits = network_.clock().Now() - begun > kSecond;
    if (waits && !swarm_.is_mixed) return Fail("5: a step waits");
  } while (IsToCallAgain(rank, status, ++tries));
  if (!status.ok() && !closing_ && !At(rank).has_left)
    Fail("4: a step ends with " + status.message());
}

// A step, a pass or the end of an epoch has ended so, for the `tries`-th time.
bool TrainerPairsSimulation::IsToCallAgain(int32_t rank, const Status& status, uint64_t tries) {
  Player& player = At(rank);
  // Those that have died may have had what this rank needs.
  const bool is_in_want = status.code() == StatusCode::kExhausted || tries > kMostTries;
  player.has_left |= swarm_.is_mixed && verdict_.killed > 0 && is_in_want;
  if (closing_ || player.has_left) return false;
  return status.code() == StatusCode::kAborted ||
         (swarm_.is_mixed && status.code() == StatusCode::kTimeout);
}

// Or looks whether others need its state, between two steps.
void TrainerPairsSimulation::BeginPass(int32_t rank) {
  Trainer& trainer = *At(rank).trainer;
  const bool serves = rng_.Percent(20);
  Status status = Status::Ok();
  uint64_t tries = 0;
  do {
    const Time now = network_.clock().Now();
    status = Drive(rank, [&] { return serves ? trainer.OnServe(now) : trainer.OnPass(now); });
  } while (IsToCallAgain(rank, status, ++tries));
  if (!status.ok() && !closing_ && !At(rank).has_left)
    Fail("4: a pass begins with " + status.message());
}

void TrainerPairsSimulation::EndEpoch(int32_t rank, uint64_t number) {
  Player& player = At(rank);
  const bool settles = (swarm_.settles >> number & 1) != 0 && number + 1 < swarm_.epochs;
  if (!Gather(rank, settles)) return;
  ++(settles ? verdict_.settled : verdict_.finished);
  if (!settles) CheckEqual(player, number);
  const bool is_known = swarm_.steps > 0 && swarm_.is_strict && !swarm_.is_mixed;
  if (is_known && player.trainer->position().may_differ != settles)
    Fail("2: may_differ() is wrong");
  Epoch& epoch = epochs_[number];
  if (IsInPairs(player))
    epoch.Add(player.Progress(), player.learnt);
  else
    epoch.Add({}, {});
  if (epoch.models.size() == players_.size()) Check(epoch, settles);
  if (settles || !swarm_.finishes_twice || !Gather(rank, false)) return;
  ++verdict_.finished_again;
  CheckEqual(player, swarm_.epochs + number);
}

// Ends an epoch by finish(), or by settle(), which it calls again after each timeout.
// Returns true once it has returned Ok, and false if the simulation ends or fails first.
bool TrainerPairsSimulation::Gather(int32_t rank, bool settles) {
  Player& player = At(rank);
  player.has_gone_on = false;
  for (uint64_t tries = 1; !closing_; ++tries) {
    const Status status = Drive(rank, [&] {
      const Time now = network_.clock().Now();
      return settles ? player.trainer->OnSettle(now)
                     : player.trainer->OnFinish(swarm_.is_strict, now);
    });
    if (closing_ || player.has_left || status.ok()) break;
    verdict_.timeouts += status.code() == StatusCode::kTimeout ? 1 : 0;
    // Between hosts all ranks that had the mean may have died.
    const bool is_lost = player.channels != nullptr && status.code() == StatusCode::kAborted;
    const bool may_be_lost = is_lost && 2 * verdict_.killed >= players_.size();
    player.has_left |= may_be_lost && swarm_.is_mixed;
    if (may_be_lost) return false;
    const bool is_again = IsToCallAgain(rank, status, tries);
    if (player.has_left) return false;
    if (!is_again && status.code() != StatusCode::kTimeout) {
      Fail("4: an epoch ends with " + status.message());
      return false;
    }
    const bool may_train_on = verdict_.trained_on < (is_far_ ? kMostTrainedOnFar : kMostTrainedOn);
    const bool is_late = status.code() == StatusCode::kTimeout && IsInPairs(player);
    if (is_late && rng_.Percent(swarm_.trains_on) && may_train_on) {
      ++verdict_.trained_on;
      Step(rank);
    }
  }
  return !closing_ && !player.has_left;
}

// Ranks that have not gone on without others have one model.
void TrainerPairsSimulation::CheckEqual(const Player& player, uint64_t number) {
  const bool is_alone = verdict_.killed > 0 || verdict_.trained_on > 0;
  if (player.has_gone_on || is_alone) return;
  Numbers& first = ends_.try_emplace(number, player.model).first->second;
  verdict_.ended_later += verdict_.went_on > 0 ? 1 : 0;
  if (player.model != first) Fail("1: finish() leaves two models");
}

// All ranks go on from there alike.
void TrainerPairsSimulation::CheckCommon(int32_t rank, int64_t place, const char* where) {
  const Player& player = At(rank);
  const std::pair<int64_t, Numbers> here{player.trainer->version(), player.model};
  const auto [first, is_new] = common_.emplace(place, here);
  if (is_new || first->second == here) return;
  Fail("6: rank " + std::to_string(rank) + " " + where + " at version " +
       std::to_string(here.first) + ", another one at " + std::to_string(first->second.first) +
       ", or with another model");
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
    if (!player.ready.action.has_value()) {
      Exchange(rank);
    } else {
      const Trainer::Action action = *player.ready.action;
      const bool is_counted = IsInPairs(player);
      const int64_t before = player.trainer->version();
      const bool is_done = Do(rank, action);
      player.ready = player.trainer->OnAck(action.number, is_done, network_.clock().Now());
      const bool is_update = is_done && action.stage == Stage::kUpdate;
      if (is_counted && player.trainer->version() - before != (is_update ? 1 : 0))
        Fail("4: version() has grown by " + std::to_string(player.trainer->version() - before));
    }
    if (closing_ || player.has_left) return Status::Aborted("nothing follows");
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
  const auto found = player.rounds.find(action.part);
  TrainerRounds* rounds = found == player.rounds.end() ? nullptr : found->second.rounds.get();
  const bool has_models = rounds != nullptr && rounds->has_models();
  auto* held = has_models ? rounds->open() : reinterpret_cast<std::byte*>(player.held.data());
  switch (action.stage) {
    case Stage::kCollectGradients:
      if (!action.is_own) CollectGradients(rounds, &player);
      break;
    case Stage::kUpdate:
      if (action.is_own)
        Learn(static_cast<double>(rng_.Below(1000)), &player.model, &player.learnt);
      else
        Apply(rounds, &player);
      ++verdict_.updates;
      break;
    case Stage::kCollectModel:
      std::memcpy(held, player.model.data(), sizeof(player.model));
      break;
    case Stage::kLoadModel:
      std::memcpy(player.model.data(), held, sizeof(player.model));
      break;
    case Stage::kPack: {
      const std::span<const std::byte> parts[] = {std::as_bytes(std::span(player.model))};
      if (!rounds->Give(action.applied, parts).ok()) Fail("4: a snapshot cannot be given");
      break;
    }
    case Stage::kUnpack:
      std::memcpy(player.model.data(), rounds->image().data(), sizeof(player.model));
      ++verdict_.unpacked;
      break;
    default:
      Fail("4: an action that has no reason");
  }
  return true;
}

// The gradients of a step that all ranks do together.
void TrainerPairsSimulation::CollectGradients(TrainerRounds* rounds, Player* player) {
  const auto by = static_cast<double>(rng_.Below(1000));
  for (size_t i = 0; i < kElements; ++i) player->gradients[i] = by + static_cast<double>(i);
  if (rounds != nullptr)
    std::memcpy(rounds->open(), player->gradients.data(), sizeof(player->gradients));
}

void TrainerPairsSimulation::Apply(TrainerRounds* rounds, Player* player) {
  if (rounds != nullptr && !rounds->has_models())
    std::memcpy(player->gradients.data(), rounds->gradients(), sizeof(player->gradients));
  for (size_t i = 0; i < kElements; ++i) player->model[i] += player->gradients[i];
}

void TrainerPairsSimulation::LookAround(int32_t rank) {
  const auto other = static_cast<int32_t>(rng_.Below(players_.size()));
  std::array<double, kWithGap> model{};
  const auto to = reinterpret_cast<std::byte*>(model.data());
  if (!IsInPairs(At(rank)) || !At(rank).trainer->IsIdle()) return;
  const auto& exchanges = At(rank).pairs.at(At(rank).trainer->part()).exchanges;
  if (exchanges->Peek(other, to).state != WindowState::kWhole) {
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
