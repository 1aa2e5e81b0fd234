#include "core/engine/trainer_steps.h"

#include <algorithm>
#include <utility>

namespace covey {
namespace {

std::string TextOf(const TrainerSteps::Moment& it) {
  return "[" + std::to_string(it.now) + "," + std::to_string(it.processor) + "," +
         std::to_string(it.waited) + "]";
}

}  // namespace

void TrainerSteps::Come(Time now) {
  if (is_open_ && came_ == 0) came_ = now;
}

void TrainerSteps::End(const Moment& at, const Exchange& exchange) {
  if (!std::exchange(is_open_, false)) return;
  last_ = at;
  if (steps_++ == 0) first_ = at;
  const Time came = std::exchange(came_, 0);
  if (came == 0 || exchange.needed == 0) return;
  arrivals_.push_back({.exchange = exchange, .at = came});
  if (arrivals_.size() > kMostArrivals) arrivals_.pop_front();
}

std::string TrainerSteps::Json() const {
  const bool has_any = steps_ > 0;
  return "\"steps\":" + std::to_string(steps_) + ",\"first\":" + (has_any ? TextOf(first_) : "[]") +
         ",\"last\":" + (has_any ? TextOf(last_) : "[]");
}

std::vector<TrainerSteps::Arrival> TrainerSteps::TakeArrivals(size_t most) {
  const auto count = static_cast<int64_t>(std::min(most, arrivals_.size()));
  std::vector<Arrival> taken(arrivals_.begin(), arrivals_.begin() + count);
  arrivals_.erase(arrivals_.begin(), arrivals_.begin() + count);
  return taken;
}

}  // namespace covey
