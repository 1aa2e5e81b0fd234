// The mutants that this build holds: each takes one rule away while its variable is true.
#ifndef COVEY_TESTS_SIM_MUTANTS_MUTANTS_H_
#define COVEY_TESTS_SIM_MUTANTS_MUTANTS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace covey {

struct Mutant {
  std::string name;
  std::string focus;            // which simulator is to catch it, and what of: mutants.bzl
  std::vector<uint64_t> seeds;  // that have caught a rare one, which are tried first
  bool* is_on;
};
extern const std::vector<Mutant> kMutants;  // written by mutate.py

}  // namespace covey
#endif  // COVEY_TESTS_SIM_MUTANTS_MUTANTS_H_
