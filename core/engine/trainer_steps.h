// The steps of a trainer in time: for the statistics of a job, and for its table at the end.
//
//   Begin -> Come, once, where the step exchanges something with all -> End
//
// Sans-IO: times are handed in. One thread at a time.
#ifndef COVEY_CORE_ENGINE_TRAINER_STEPS_H_
#define COVEY_CORE_ENGINE_TRAINER_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/base/types.h"

namespace covey {

class TrainerSteps {
 public:
  // Readings of three clocks.
  struct Moment {
    Time now = 0;
    Time processor = 0;  // the processor time of this process
    Time waited = 0;     // its calls, in all
  };
  // Begins once so many members have come; `needed` 0: members do not meet in it.
  struct Exchange {
    int64_t number = 0;  // equal on all members, different for each exchange
    int32_t needed = 0;
  };
  // This rank has come to it.
  struct Arrival {
    Exchange exchange;
    Time at = 0;
  };
  static constexpr size_t kMostArrivals = 1 << 14;  // the latest are kept

  // A step begins. One that goes on after it was interrupted does not begin again.
  void Begin() { is_open_ = true; }
  bool is_open() const { return is_open_; }
  // The step under way has something to exchange, from now on.
  void Come(Time now);
  // It has ended, with this exchange.
  void End(const Moment& at, const Exchange& exchange);

  // The members of a JSON object: `steps` that have ended; `first` and `last`: the moments at which
  // the first and the last one ended, in nanoseconds, empty before.
  std::string Json() const;
  // Those since the last call of this, the oldest first, at most so many.
  std::vector<Arrival> TakeArrivals(size_t most);

 private:
  uint64_t steps_ = 0;
  Moment first_, last_;
  bool is_open_ = false;
  Time came_ = 0;  // 0: not yet
  std::deque<Arrival> arrivals_;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_STEPS_H_
