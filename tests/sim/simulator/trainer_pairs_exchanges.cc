// The exchanges of a simulated rank that trains in pairs, and in other parts before and after them.
#include <algorithm>
#include <cstring>

#include "tests/sim/simulator/trainer_pairs_stage.h"

namespace covey {
namespace {

constexpr Time kSlice = 300 * kMicrosecond;  // of a wait, which then goes on

bool IsOfModels(Stage stage) { return stage == Stage::kAverage || stage == Stage::kMix; }

// The weight, in the result of `rank`, of what `member` gives to an exchange of all.
double WeightOf(int32_t member, int32_t rank, const Trainer::Exchange& exchange, size_t size) {
  if (exchange.stage == Stage::kAverage) return 1 / static_cast<double>(size);
  if (exchange.stage != Stage::kMix) return 1;
  if (member == rank) return exchange.row.own;
  for (const Neighbor& neighbor : exchange.row.from)
    if (neighbor.rank == member) return neighbor.weight;
  return 0;
}

}  // namespace

void TrainerPairsSimulation::Exchange(int32_t rank) {
  Player& player = At(rank);
  if (player.ready.exchange.has_value()) BeginExchange(rank);
  if (player.has_left) return;
  StageResult result;
  Status status = Status::Ok();
  // In slices, as an adapter waits that looks for signals.
  const auto slice = [&] {
    return std::min(network_.clock().Now() + kSlice, player.ready.deadline);
  };
  while (!Perform(rank, slice(), &status, &result)) {
    Yield(rank);
    if (closing_ || player.has_left) return;
    if (network_.clock().Now() < player.ready.deadline) continue;
    ++verdict_.ticks;
    player.ready = player.trainer->OnTick({}, network_.clock().Now());
    return;
  }
  if (closing_) return;
  const Stage stage = player.exchange.stage;
  const bool goes_on = stage == Stage::kSeenMean || stage == Stage::kGoOn;
  verdict_.went_on += goes_on ? 1 : 0;
  player.has_gone_on |= goes_on;
  if (status.ok()) OnExchanged(rank);
  if (result.has_more)
    std::memcpy(player.gradients.data(), player.copies.data(), sizeof(player.gradients));
  verdict_.withdrawn += result.has_more ? 1 : 0;
  player.ready = player.trainer->OnExchangeEnd(status, result, network_.clock().Now());
}

void TrainerPairsSimulation::BeginExchange(int32_t rank) {
  Player& player = At(rank);
  player.exchange = *player.ready.exchange;
  const Stage stage = player.exchange.stage;
  if (IsOfPairs(stage) || IsOfRounds(stage)) return;
  if (!swarm_.is_mixed) return Fail("4: an exchange that is not of pairs");
  Meeting& meeting = meetings_[player.meetings++];
  if (meeting.given.empty()) meeting.stage = stage;
  // One that has trained on in finish() may do a step where the others finish again.
  player.has_left = meeting.stage != stage;
  if (player.has_left && verdict_.trained_on == 0)
    Fail("6: rank " + std::to_string(rank) + " exchanges something else, at step " +
         std::to_string(player.exchange.step));
  meeting.given[rank] = player.gradients;
  if (IsOfModels(stage))
    std::memcpy(meeting.given[rank].data(), player.held.data(), sizeof(player.model));
  meeting.step = std::max(meeting.step, player.exchange.step);
  meeting.may_differ |= player.exchange.may_differ;
}

bool TrainerPairsSimulation::Perform(int32_t rank, Time deadline, Status* status,
                                     StageResult* result) {
  Player& player = At(rank);
  const Trainer::Exchange& exchange = player.exchange;
  if (IsOfPairs(exchange.stage))
    return player.pairs.at(exchange.part).exchanges->Perform(exchange, deadline, status, result);
  if (!IsOfRounds(exchange.stage)) return Meet(rank, result);
  return player.rounds.at(exchange.part)
      .rounds->Perform(exchange, Status::Ok(), {}, deadline, status, result);
}

// The exchanges of all, one after the other, by the order in which each rank comes to them. False:
// a rank is missing.
bool TrainerPairsSimulation::Meet(int32_t rank, StageResult* result) {
  Player& player = At(rank);
  const Meeting& meeting = meetings_.at(player.meetings - 1);
  if (meeting.given.size() < players_.size()) {
    const auto is_through = [](const Player& other) { return other.is_through; };
    player.has_left = std::any_of(players_.begin(), players_.end(), is_through);
    // Ranks that have trained on may come to a part that others do not.
    if (player.has_left && verdict_.trained_on == 0) Fail("5: a rank has left an exchange of all");
    return false;
  }
  result->step = meeting.step;
  result->may_differ = meeting.may_differ;
  Numbers sum{};
  for (const auto& [member, given] : meeting.given) {
    const double weight = WeightOf(member, rank, player.exchange, players_.size());
    for (size_t i = 0; i < kElements; ++i) sum[i] += weight * given[i];
  }
  if (meeting.stage == Stage::kReduce) player.gradients = sum;
  if (IsOfModels(meeting.stage)) std::memcpy(player.held.data(), sum.data(), sizeof(sum));
  return true;
}

// Pairs begin or end for this rank.
void TrainerPairsSimulation::OnExchanged(int32_t rank) {
  Player& player = At(rank);
  const int64_t part = player.exchange.part;
  if (player.exchange.stage == Stage::kEnter && swarm_.is_mixed) {
    player.before = player.model;
    player.learnt = {};
    ++verdict_.entered;
    CheckCommon(rank, part, "begins pairs");
  }
  if (player.exchange.stage != Stage::kQuit) return;
  ++verdict_.quitted;
  CheckCommon(rank, method_.Until(part), "ends pairs");
  Epoch& left = left_[part];
  left.Add(player.Progress(), player.learnt);
  const std::string apart = left.Apart();
  const bool is_known = left.models.size() == players_.size() && verdict_.killed == 0;
  if (is_known && !apart.empty()) Fail("7: " + apart);
}

}  // namespace covey
