// Models of one epoch of ranks that are averaged in pairs, and what they must add up to.
#ifndef COVEY_TESTS_SIM_SIMULATOR_LEARNT_MODELS_H_
#define COVEY_TESTS_SIM_SIMULATOR_LEARNT_MODELS_H_

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace covey {

inline constexpr size_t kElements = 12;
inline constexpr double kNear = 1e-6;       // relative: sums of means are rounded
inline constexpr double kNearFloat = 1e-3;  // the same of float32, which a codec has rounded, too

using Numbers = std::array<double, kElements>;

// Adds `by` plus its index to each element of a model, and to the progress of its rank.
inline void Learn(double by, Numbers* model, Numbers* learnt) {
  for (size_t i = 0; i < kElements; ++i) {
    (*model)[i] += by + static_cast<double>(i);
    (*learnt)[i] += by + static_cast<double>(i);
  }
}

// The ranks' models at the end of an epoch.
struct Epoch {
  std::vector<Numbers> models;
  Numbers learnt{};  // by all of them, until each came to it

  void Add(const Numbers& model, const Numbers& of_rank) {
    models.push_back(model);
    for (size_t i = 0; i < kElements; ++i) learnt[i] += of_rank[i];
  }
  // Empty: the models add up to all that was learnt, nearly; else how they do not.
  std::string Apart(double near = kNear) const {
    Numbers sum{};
    for (const Numbers& model : models)
      for (size_t i = 0; i < kElements; ++i) sum[i] += model[i];
    for (size_t i = 0; i < kElements; ++i)
      if (std::abs(sum[i] - learnt[i]) > near * (1 + std::abs(learnt[i])))
        return "the models' sum is " + std::to_string(sum[i]) + ", and what was learnt " +
               std::to_string(learnt[i]);
    return "";
  }
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_LEARNT_MODELS_H_
