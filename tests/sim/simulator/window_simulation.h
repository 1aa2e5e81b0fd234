// Windows (core/transport/seqlock.h): an owner that changes its memory element by element, is
// stopped anywhere, changes on, or closes; and a reader, at any moment of that.
//
// The owner goes on whenever the looker touches a word, so between any two of them it may have done
// anything. Checked: what is said to be whole is all of one version, the one that is told, and not
// older than the last that had ended before the look began.
#ifndef COVEY_TESTS_SIM_SIMULATOR_WINDOW_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_WINDOW_SIMULATION_H_

#include <cstdint>
#include <string>

namespace covey {

struct WindowVerdict {
  std::string failure;  // empty: everything held
  std::string swarm;    // what the seed drew
  uint64_t hash = 0;
  uint64_t whole = 0, changing = 0, nothing = 0, closed = 0, stopped = 0;
};

WindowVerdict RunWindows(uint64_t seed);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_WINDOW_SIMULATION_H_
