// The actions of a simulated rank: all that runs inside its fiber.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/sim/simulator/trainer_stage.h"

namespace covey {
namespace {

constexpr uint64_t kMostTimeouts = 60;       // of a call before a rank leaves
constexpr Time kSlice = 300 * kMicrosecond;  // of a wait, which then goes on
constexpr int64_t kPassYields = 6;           // of the computation of gradients
constexpr int64_t kLongPassYields = 20;
constexpr int64_t kOtherYields = 40;  // of what else a rank does between two steps
constexpr uint64_t kPrime = 1099511628211u;

}  // namespace

void VirtualModel::Apply(const Numbers& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) sum[i] -= gradients[i];
  for (const double one : gradients)
    order = (order ^ static_cast<uint64_t>(static_cast<int64_t>(one))) * kPrime;
}

void TrainerSimulation::Point(int32_t rank) {
  if (closing_ || rank != current_) return;
  if (rng_.Below(1000) < swarm_.switch_permille) At(rank).fiber->Yield();
}

void TrainerSimulation::Yield(int32_t rank) {
  Player& player = At(rank);
  const bool passes = !closing_ && player.channels != nullptr;
  if (passes && !player.channels->Pass(network_.clock().Now()))
    Fail("6: rank " + std::to_string(rank) + " refuses a frame");
  if (!closing_) player.fiber->Yield();
}

VirtualModel::Numbers TrainerSimulation::GradientOf(int32_t rank, int64_t step) const {
  Numbers numbers{};
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<double>((rank + 1) * 1000 + step * 16 + static_cast<int64_t>(i));
  return numbers;
}

void TrainerSimulation::Main(int32_t rank) {
  Player& player = At(rank);
  int64_t count = 0;
  // A rank whose trainer has an end goes on until then.
  const auto goes_on = [&](uint64_t epoch) {
    return swarm_.end < kForever ? !IsOver(player) : epoch <= swarm_.finishes;
  };
  for (uint64_t epoch = 1; goes_on(epoch) && !player.has_left && !closing_; ++epoch) {
    Train(rank, static_cast<int64_t>(swarm_.steps * epoch), &count);
    const bool is_over = IsOver(player);
    const bool is_at_end = is_over && (swarm_.ends_at_once || !IsLocal(player));
    player.is_finishing = true;
    const auto is_there = [&] { return !player.has_left && !closing_; };
    const bool settles = swarm_.settles && epoch % 2 == 1;
    const Ending ending = swarm_.goes_on ? Ending::kGoesOn
                          : settles      ? Ending::kSettle
                                         : Ending::kStrict;
    if (!is_at_end && is_there()) Finish(rank, ending);
    const bool gathers = swarm_.gathers && !is_at_end && !IsOver(player);
    if (gathers && is_there()) Finish(rank, Ending::kStrict);
    const bool is_of_all = gathers || (!swarm_.goes_on && !is_at_end);
    if (is_of_all && is_there()) CheckGathered(rank, epoch);
    player.is_finishing = false;
    verdict_.over_in_finish += IsOver(player) && !is_over ? 1 : 0;
  }
  player.has_ended = !closing_ && !player.has_left;
  if (player.has_ended && swarm_.end < kForever) NoteEnd(rank);
  for (auto& [from, part] : player.parts) part.Close();
  player.is_through = true;
  // Others may need its vote.
  while (!closing_ && player.channels != nullptr) Yield(rank);
}

// Steps until `until`; `count`: those that this rank has begun.
void TrainerSimulation::Train(int32_t rank, int64_t until, int64_t* count) {
  Player& player = At(rank);
  Trainer& trainer = *player.trainer;
  const bool is_common = swarm_.has_next || swarm_.end < kForever;
  const auto goes_on = [&] {
    return (is_common ? trainer.step() : *count) < until && !IsOver(player);
  };
  for (; goes_on() && !closing_ && !player.has_left; ++*count) {
    for (int64_t i = 0; swarm_.hands_over && i < kOtherYields; ++i) Yield(rank);
    if (swarm_.begins_passes) BeginPass(rank);
    const int64_t work = swarm_.hands_over ? kLongPassYields : kPassYields;
    for (int64_t i = 0; swarm_.begins_passes && i < work; ++i) Yield(rank);
    if (player.has_left || !goes_on()) break;
    player.given = GradientOf(rank, *count);
    player.is_given = false;
    const bool is_unfit = rng_.Below(1000) < swarm_.unfit_permille;
    std::string why = is_unfit ? "it is unfit" : "";
    verdict_.unfit += is_unfit ? 1 : 0;
    Status status;
    // An action was not done, or no rank gives a snapshot for max_wait.
    uint64_t tries = 0;
    do {
      status = Drive(rank, [&] { return trainer.OnStep(why, network_.clock().Now()); });
      LeaveAfter(rank, status, ++tries);
    } while ((status.code() == StatusCode::kAborted || status.code() == StatusCode::kTimeout) &&
             !closing_ && !player.has_left);
    const bool is_right = is_unfit ? status.code() == StatusCode::kNotFinite : status.ok();
    if (!is_right && !closing_ && !player.has_left) Fail("6: a step ends with " + status.message());
  }
}

// A call has ended so, for the `tries`-th time.
void TrainerSimulation::LeaveAfter(int32_t rank, const Status& status, uint64_t tries) {
  const bool has_end = swarm_.end < kForever;  // then it is patient
  // Only killed ranks may have had the next version: each call fails at once then.
  if (MayBeLost()) Yield(rank);
  const bool gives_up = tries > kMostTimeouts && (!has_end || MayBeLost());
  const bool is_seeking = gives_up && At(rank).stage == Stage::kSeek;
  const bool finds_none = is_seeking || status.code() == StatusCode::kExhausted;
  const bool are_there =
      std::none_of(players_.begin(), players_.end(), [](const Player& it) { return it.has_left; });
  At(rank).has_left |= finds_none || gives_up;
  // Where finish() goes on without ranks all may be in need at once.
  const bool is_strict = (swarm_.hands_over || has_end) && !swarm_.goes_on;
  if (finds_none && is_strict && verdict_.killed == 0 && are_there && !closing_)
    Fail((has_end ? "9: rank " : "8: rank ") + std::to_string(rank) +
         " finds no state: " + status.message());
}

void TrainerSimulation::BeginPass(int32_t rank) {
  Player& player = At(rank);
  const int64_t before = player.trainer->version();
  for (uint64_t tries = 0; !closing_; ++tries) {
    player.is_passing = true;
    const Status status =
        Drive(rank, [&] { return player.trainer->OnPass(network_.clock().Now()); });
    player.is_passing = false;
    verdict_.caught_up += player.trainer->version() > before ? 1 : 0;
    LeaveAfter(rank, status, tries);
    if (status.ok() || player.has_left) return;
    if (status.code() != StatusCode::kTimeout && status.code() != StatusCode::kAborted)
      return Fail("6: a pass begins with " + status.message());
  }
}

void TrainerSimulation::Finish(int32_t rank, Ending ending) {
  Player& player = At(rank);
  const auto call = [&] {
    const Time now = network_.clock().Now();
    return ending == Ending::kSettle ? player.trainer->OnSettle(now)
                                     : player.trainer->OnFinish(ending == Ending::kStrict, now);
  };
  for (uint64_t tries = 0; !closing_; ++tries) {
    const Status status = Drive(rank, call);
    if (status.ok() || closing_) {
      ++(ending == Ending::kSettle ? verdict_.settled : verdict_.finished);
      return;
    }
    verdict_.timeouts += status.code() == StatusCode::kTimeout ? 1 : 0;
    const bool is_behind =
        !IsLocal(player) && player.trainer->version() < static_cast<int64_t>(player.executed);
    const bool is_flush = player.stage == Stage::kFlush || player.stage == Stage::kRead;
    if (status.code() == StatusCode::kTimeout && is_flush && is_behind)
      Fail("7: finish() ends with versions that this rank has not applied");
    LeaveAfter(rank, status, tries);
    if (player.has_left) return;
    if (status.code() != StatusCode::kTimeout && status.code() != StatusCode::kAborted)
      return Fail("6: finish() ends with " + status.message());
  }
}

// Where it lies for the exchange.
std::byte* TrainerSimulation::ModelOf(Player* player) {
  const int64_t part = player->trainer->part();
  const bool has_models =
      part != Trainer::kNoPart && player->parts.at(part).payload == Payload::kModel;
  return has_models ? RoundsOf(*player, part).open()
                    : reinterpret_cast<std::byte*>(player->held.data());
}

// Its gradients of this step count from now on.
void TrainerSimulation::CountGiven(int32_t rank) {
  Player& player = At(rank);
  if (std::exchange(player.is_given, true)) return;
  for (size_t i = 0; i < published_.size(); ++i) published_[i] += player.given[i];
}

// To the end of the call, as an adapter does.
Status TrainerSimulation::Drive(int32_t rank, const std::function<Trainer::Ready()>& call) {
  Player& player = At(rank);
  player.ready = call();
  while (!player.ready.end.has_value()) {
    if (player.ready.exchange.has_value()) {
      Exchange(rank);
    } else {
      const Trainer::Action action = *player.ready.action;
      const int64_t before = player.trainer->version();
      const bool is_local = IsLocal(player);
      const bool is_done = Do(rank, action);
      player.ready = player.trainer->OnAck(action.number, is_done, network_.clock().Now());
      const int64_t grown = player.trainer->version() - before;
      const bool is_update = is_done && action.stage == Stage::kUpdate;
      const bool may_jump = action.stage == Stage::kUnpack || HasOwnModel(player);
      // With deltas version() stays where others have done more, or the part should have ended.
      const bool may_differ = is_update && grown >= 0 && is_local;
      if (grown != (is_update ? 1 : 0) && !may_jump && !may_differ)
        Fail("3: version() has grown by " + std::to_string(grown));
      if (is_done) CheckModel(rank);
    }
    if (closing_) return Status::Aborted("the simulation is over");
  }
  CheckModel(rank);
  return *player.ready.end;
}

bool TrainerSimulation::Do(int32_t rank, const Trainer::Action& action) {
  Player& player = At(rank);
  const bool in_rounds = action.part != Trainer::kNoPart && !IsLocal(player);
  Yield(rank);
  if (rng_.Below(1000) < swarm_.refusals_permille) {
    ++verdict_.refused;
    return false;
  }
  if (action.stage == Stage::kCollectGradients)
    std::memcpy(in_rounds ? RoundsOf(player, action.part).open()
                          : reinterpret_cast<std::byte*>(&player.reduced),
                &player.given, sizeof(player.given));
  if (action.stage == Stage::kUpdate) {
    Numbers gradients = player.reduced;
    if (in_rounds)
      std::memcpy(&gradients, RoundsOf(player, action.part).gradients(), sizeof(gradients));
    player.model.Apply(gradients);
    ++verdict_.updates;
    if (swarm_.payload == Payload::kDelta && IsLocal(player)) CountGiven(rank);
    const bool is_withdrawn = std::exchange(player.has_more, false);
    for (size_t i = 0; is_withdrawn && i < gradients.size(); ++i) withdrawn_[i] += gradients[i];
  }
  if (action.stage == Stage::kCollectModel)
    std::memcpy(ModelOf(&player), &player.model.sum, sizeof(player.model.sum));
  if (action.stage == Stage::kLoadModel) {
    std::memcpy(&player.model.sum, ModelOf(&player), sizeof(player.model.sum));
    player.model.order = 1;
  }
  if (action.stage == Stage::kPack) {
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(player.model.sum)),
                                                std::as_bytes(std::span(&player.model.order, 1))};
    if (!RoundsOf(player, action.part).Give(action.applied, parts).ok())
      Fail("6: a snapshot cannot be given");
    ++verdict_.packed;
  }
  if (action.stage == Stage::kUnpack) {
    const std::byte* image = RoundsOf(player, action.part).image().data();
    std::memcpy(&player.model.sum, image, sizeof(player.model.sum));
    std::memcpy(&player.model.order, image + sizeof(player.model.sum), sizeof(uint64_t));
    ++verdict_.unpacked;
  }
  return true;
}

void TrainerSimulation::Exchange(int32_t rank) {
  Player& player = At(rank);
  const Trainer::Exchange exchange = *player.ready.exchange;
  StageResult result;
  Status status = Status::Ok();
  if (!IsOfRounds(exchange.stage)) {
    status = Meet(rank, exchange, &result);
  } else {
    const Status fitness =
        exchange.unfit.empty() ? Status::Ok() : Status(StatusCode::kNotFinite, exchange.unfit);
    const bool is_counted = !IsLocal(player) && (!swarm_.hands_over || exchange.part == 0);
    if (exchange.stage == Stage::kPublish && fitness.ok() && is_counted) CountGiven(rank);
    // In slices, as an adapter waits that looks for signals.
    while (!RoundsOf(player, exchange.part)
                .Perform(exchange, fitness, {},
                         std::min(network_.clock().Now() + kSlice, player.ready.deadline), &status,
                         &result)) {
      Yield(rank);
      if (closing_ || network_.clock().Now() < player.ready.deadline) continue;
      ++verdict_.not_made;
      player.ready = player.trainer->OnTick({}, network_.clock().Now());
      return;
    }
    NoteExchange(rank, exchange, status, result);
  }
  if (closing_) return;
  const bool hands_over = exchange.stage == Stage::kHandOver && status.ok();
  if (hands_over) NoteHandOver(rank, result);
  player.ready = player.trainer->OnExchangeEnd(status, result, network_.clock().Now());
  const bool leaves = exchange.stage == Stage::kLeave;
  verdict_.left += leaves ? 1 : 0;
  verdict_.went_further += leaves && swarm_.hands_over ? 1 : 0;
  player.is_to_agree |= leaves && player.parts.at(exchange.part).payload != Payload::kGradients;
  const bool agrees = exchange.stage == Stage::kAgree && std::exchange(player.is_to_agree, false);
  if (status.ok() && (agrees || (leaves && !player.is_to_agree))) CheckStep(rank);
}

// The rounds are over for this rank.
void TrainerSimulation::CheckStep(int32_t rank) {
  const int64_t step = At(rank).trainer->position().begin;
  if (left_with_ < 0) left_with_ = step;
  if (left_with_ != step)
    Fail("5: rank " + std::to_string(rank) + " goes on with step " + std::to_string(step) +
         ", another one with " + std::to_string(left_with_));
}

// Its trainer is over.
void TrainerSimulation::NoteEnd(int32_t rank) {
  const bool is_local = IsLocal(At(rank));
  ++verdict_.over;
  verdict_.over_local += is_local ? 1 : 0;
  if (!is_local) CheckStep(rank);
}

void TrainerSimulation::NoteExchange(int32_t rank, const Trainer::Exchange& exchange,
                                     const Status& status, const StageResult& result) {
  Player& player = At(rank);
  if (exchange.stage == Stage::kAdopt) CheckArrays(rank, exchange.applied);
  if (exchange.stage == Stage::kGive) ++verdict_.packed;
  if (exchange.stage == Stage::kGoOn) ++verdict_.went_on;
  if (exchange.stage == Stage::kOfferAgain) ++verdict_.offered_again;
  if (exchange.stage == Stage::kDue) ++verdict_.due;
  if (exchange.stage == Stage::kLeaveState) ++verdict_.left_states;
  if (exchange.stage == Stage::kRead) player.misses = result.misses;
  const bool has_sought = exchange.stage == Stage::kSeek && status.ok();
  if (has_sought && IsLocal(player)) ++verdict_.unpacked;
  const uint64_t last = player.parts.at(exchange.part).last;
  if (has_sought && last > 0 && result.version == last) ++verdict_.found_states;
  if (last > 0 && result.executed > last) Fail("8: a version follows the last one");
  player.executed = result.executed;
  player.stage = exchange.stage;
  if (exchange.stage == Stage::kPublish) verdict_.late += result.version <= result.executed ? 1 : 0;
}

// It goes on to rounds of models.
void TrainerSimulation::NoteHandOver(int32_t rank, const StageResult& result) {
  Player& player = At(rank);
  CheckModel(rank);
  ++verdict_.handed_over;
  verdict_.handed_late += player.misses ? 1 : 0;
  verdict_.handed_in_finish += player.is_finishing ? 1 : 0;
  verdict_.handed_in_pass += player.is_passing ? 1 : 0;
  verdict_.withdrawn += result.has_more ? 1 : 0;
  player.has_more = result.has_more;
  if (result.has_more) std::memcpy(&player.reduced, player.copies.data(), sizeof(player.reduced));
  const int64_t version = player.trainer->version();
  if (handed_with_ >= 0 && handed_with_ != version)
    Fail("8: rank " + std::to_string(rank) + " goes on with version " + std::to_string(version) +
         ", another one with " + std::to_string(handed_with_));
  handed_with_ = version;
}

// The exchanges of all, one after the other, by the order in which each rank comes to them.
Status TrainerSimulation::Meet(int32_t rank, const Trainer::Exchange& exchange,
                               StageResult* result) {
  Player& player = At(rank);
  Meeting& meeting = meetings_[player.meetings++];
  if (meeting.gradients.empty()) meeting.exchange = exchange;
  if (meeting.exchange.stage != exchange.stage) Fail("6: ranks exchange different things");
  meeting.gradients[rank] = player.reduced;
  meeting.step = std::max(meeting.step, exchange.step);
  if (exchange.stage == Stage::kReduce && !swarm_.hands_over)
    for (size_t i = 0; i < published_.size(); ++i) published_[i] += player.reduced[i];
  const auto has_left = [](const Player& other) { return other.has_left; };
  while (!closing_ && meeting.gradients.size() < players_.size()) {
    player.has_left = std::any_of(players_.begin(), players_.end(), has_left);
    if (player.has_left) return Status::Aborted("a rank has left");
    Yield(rank);
  }
  Numbers sum{};
  for (const auto& [member, gradients] : meeting.gradients)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradients[i];
  if (exchange.stage == Stage::kReduce) player.reduced = sum;
  result->step = meeting.step;
  return Status::Ok();
}

}  // namespace covey
