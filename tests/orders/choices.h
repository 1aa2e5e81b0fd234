// The next step of an execution that may go on in several ways: drawn, or all ways in turn.
//
// Systematic search is bounded by deviations: choice 0 is what a strong machine without preemption
// does, each other choice is one deviation, and all executions with few of them are run. (Emmi,
// Qadeer, Rakamaric: Delay-bounded scheduling, POPL 2011, doi:10.1145/1926385.1926432; here the
// choice of a message is bounded too.)
#ifndef COVEY_TESTS_ORDERS_CHOICES_H_
#define COVEY_TESTS_ORDERS_CHOICES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/rng.h"

namespace covey {

enum class Question : uint8_t {
  kThread,   // which runs, the current one first
  kMessage,  // that a load reads, the newest first
  kBytes,    // that are seen early: none first
};

class Choices {
 public:
  virtual ~Choices() = default;

  // Below `count`.
  virtual size_t Choose(Question question, size_t count) = 0;
  // The choices of the execution that has just run.
  virtual std::string ToString() const = 0;
};

// All executions of at most so many deviations.
class Search final : public Choices {
 public:
  explicit Search(size_t deviations) : most_(deviations) {}

  size_t Choose(Question question, size_t count) override;
  std::string ToString() const override;
  // Prepares the next execution; false: there is none.
  bool Next();

 private:
  struct Choice {
    size_t taken, count;
  };

  const size_t most_;
  std::vector<Choice> path_;  // of this execution; at first what it repeats
  size_t at_ = 0;
  size_t deviations_ = 0;  // so far, in this execution
};

// One drawn execution.
class Draw final : public Choices {
 public:
  explicit Draw(uint64_t seed);

  size_t Choose(Question question, size_t count) override;
  std::string ToString() const override { return "seed " + std::to_string(seed_); }

 private:
  uint64_t seed_;
  Rng rng_;
  uint64_t permille_[3];  // by Question: how often another choice than 0
};

}  // namespace covey
#endif  // COVEY_TESTS_ORDERS_CHOICES_H_
