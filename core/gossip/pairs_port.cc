#include "core/gossip/pairs_port.h"

namespace covey {

PairsPort::PairsPort(Bundle bundle, const Group* group, int32_t near)
    : bundle_(std::move(bundle)),
      group_(group),
      memory_(near, bundle_.layout),
      barrier_(bundle_.name, group) {}

void PairsPort::Begin(std::span<const void* const> model) {
  const std::lock_guard lock(mutex_);
  gossip_->Begin(model);
}

bool PairsPort::CountStep() {
  const std::lock_guard lock(mutex_);
  LeaveFinish();
  return barrier_.phase() != Phase::kTrains || steps_->CountStep();
}

PairsPort::Met PairsPort::Exchange(std::span<void* const> model) {
  const Met met = ExchangeLocked(model);
  Stir();
  return met;
}

PairsPort::Met PairsPort::ExchangeLocked(std::span<void* const> model) {
  const std::lock_guard lock(mutex_);
  HearOfLosses();
  const bool is_counted = barrier_.phase() == Phase::kTrains;
  if (!is_counted && TrainsDuringFinish(model)) return {};
  return is_counted ? steps_->Exchange(model) : steps_->Step(model);
}

void PairsPort::GoOn(std::span<void* const> model) {
  gossip_->GoOn({const_cast<const void* const*>(model.data()), model.size()});
  barrier_.Enter(Phase::kTrains, clock_->Now());
}

Status PairsPort::Finish(std::span<void* const> model, Time deadline, bool is_last) {
  // gossip-P18: it does not end with a finish after which others train on here.
  if (is_last) times_ = FinishNumber::kLastTimes;
  return Gather(model, deadline, Result::kMean);
}

bool PairsPort::GoOnWithout(std::span<void* const> model) {
  // gossip-P18: a finish that comes now is another one.
  LeaveFinish();
  return SeenMean(model);
}

bool PairsPort::SeenMean(std::span<void* const> model) {
  const std::lock_guard lock(mutex_);
  HearOfLosses();
  return gossip_->SeenMean(model);
}

Gossip::Counters PairsPort::counters() {
  const std::lock_guard lock(mutex_);
  return gossip_->counters();
}

PairsPort::Totals PairsPort::totals() {
  const std::lock_guard lock(mutex_);
  return gossip_ == nullptr ? QuantizedCounters{} : gossip_->quantized();
}

}  // namespace covey
