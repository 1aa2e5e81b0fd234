// How long a rank of the simulator of models has waited, at least, for each other one at versions
// of all, as partial-W9 counts it: from when half have come; less a twelfth of the time; from the
// start for a rank that has come with the first half. After a settled version none is made: it
// waits for no rank.
#ifndef COVEY_TESTS_SIM_SIMULATOR_MODEL_PATIENCE_H_
#define COVEY_TESTS_SIM_SIMULATOR_MODEL_PATIENCE_H_

#include <vector>

#include "core/partial/memory.h"

namespace covey {

// Of one rank, while it trains. Looks at the memory before and after each of its passes.
class ModelPatience {
 public:
  // `step` is the last of `rank`, whose patience this is.
  void Before(const RoundMemory& memory, int32_t rank, uint64_t step, Time max_wait, Time now);
  // The member that it still waits for though it has waited for max_wait; -1: none.
  int32_t After(const RoundMemory& memory, Time max_wait);

 private:
  struct Other {
    bool is_behind = false;  // at the last look
    Time waited = 0;
  };
  bool Look(const RoundMemory& memory);

  uint64_t version_ = 0;       // that it waits for, not fired, of all; 0: none
  uint64_t half_version_ = 0;  // the last of which it surely knows that half have come
  bool had_half_ = false;      // before the pass
  Time looked_at_ = 0, since_ = 0;
  std::vector<Other> others_;  // by member
  std::vector<bool> behind_;   // likewise
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_MODEL_PATIENCE_H_
