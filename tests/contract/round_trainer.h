// A rank of rounds as its trainer sees them, through the C API. What it publishes says from whom
// and when it is; what it reads is checked against the record.
#ifndef COVEY_TESTS_CONTRACT_ROUND_TRAINER_H_
#define COVEY_TESTS_CONTRACT_ROUND_TRAINER_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/api/covey_rounds.h"
#include "tests/contract/parsed_method.h"

namespace covey {

inline int64_t ValueOf(int rank, int64_t step, int64_t element) {
  return step * 1000 + rank * 100 + element % 97;
}

// Two spans, float32 and int64, of which one has several tiles.
class RoundTrainer {
 public:
  RoundTrainer(int rank, int size, covey_runtime* runtime, const char* method,
               covey_op op = COVEY_SUM)
      : rank_(rank), size_(size), runtime_(runtime) {
    covey_rounds_config config = COVEY_INIT(covey_rounds_config);
    config.name = "test";
    const ParsedMethod parsed(method, &error);
    code = parsed.code;
    if (code != COVEY_OK) return;
    config.method = parsed.get();
    config.op = op;
    config.num_spans = 2;
    config.dtypes = kTypes;
    config.counts = kCounts;
    config.num_hypers = 1;
    code = covey_rounds_open(runtime, &config, &rounds_, &error);
    if (code != COVEY_OK || rank % 2 == 0) return;
    EXPECT_EQ(covey_rounds_expect(runtime, rounds_, spans_, &error), COVEY_OK) << error.message;
  }
  RoundTrainer(const RoundTrainer&) = delete;
  ~RoundTrainer() { covey_rounds_close(runtime_, rounds_); }

  int64_t Publish() {
    void* spans[2];
    EXPECT_EQ(covey_rounds_spans(runtime_, rounds_, spans, &error), COVEY_OK) << error.message;
    // Who was overdue goes on after the last version.
    const bool was_overdue = !overdue.empty() && overdue[static_cast<size_t>(rank_)] > 0;
    steps = (was_overdue || skips_ahead ? std::max(steps, read) : steps) + 1;
    for (int64_t i = 0; i < kCounts[0]; ++i)
      static_cast<float*>(spans[0])[i] = static_cast<float>(ValueOf(rank_, steps, i));
    for (int64_t i = 0; i < kCounts[1]; ++i)
      static_cast<int64_t*>(spans[1])[i] = ValueOf(rank_, steps, i);
    const double hyper = 0.5 * rank_;
    int64_t step = 0;
    EXPECT_EQ(covey_rounds_publish(runtime_, rounds_, &hyper, &step, &error), COVEY_OK);
    return step;
  }
  covey_code Wait(int64_t version, int64_t timeout_ns = -1) {
    return covey_rounds_wait(runtime_, rounds_, version, timeout_ns, &error);
  }
  covey_code Finish(int64_t timeout_ns = -1) {
    return covey_rounds_finish(runtime_, rounds_, timeout_ns, &error);
  }
  int64_t executed() { return covey_rounds_executed(runtime_, rounds_); }

  // Reads what is new; every sum must be that of its record, every step come once and in order.
  void ReadAll() {
    const int64_t last = executed();
    while (read < last) {
      std::vector<int64_t> first(static_cast<size_t>(size_)), until(first.size());
      std::vector<int64_t> counts(first.size());
      double hyper = -1;
      covey_round_record record = COVEY_INIT(covey_round_record);
      record.first = first.data();
      record.last = until.data();
      record.count = counts.data();
      record.hypers = &hyper;
      overdue.assign(first.size(), 0);
      record.overdue = overdue.data();
      ASSERT_EQ(covey_rounds_read(runtime_, rounds_, ++read, spans_, &record, &error), COVEY_OK)
          << error.message;
      ASSERT_EQ(record.version, read);
      ASSERT_EQ(hyper, record.leader < 0 ? 0 : 0.5 * record.leader);
      bool is_known = true;  // what the sum is of: nobody has left out a number
      for (size_t r = 0; r < first.size(); ++r)
        is_known &= first[r] == 0 || counts[r] == until[r] - first[r] + 1;
      for (int64_t i : {int64_t{0}, int64_t{1}, kCounts[0] / 2, kCounts[0] - 1}) {
        const int64_t expected = Expected(first, until, i);
        if (!is_known) break;
        ASSERT_EQ(floats_[static_cast<size_t>(i)], static_cast<float>(expected))
            << "version " << read;
      }
      for (int64_t i = 0; is_known && i < kCounts[1]; ++i)
        ASSERT_EQ(whole_[static_cast<size_t>(i)], Expected(first, until, i)) << "version " << read;
      for (size_t r = 0; r < first.size(); ++r) {
        if (first[r] == 0) continue;
        ASSERT_GT(first[r], counted[r]) << "version " << read << " rank " << r;
        total[r] += counts[r];
        counted[r] = until[r];
        if (steps < read) continue;  // this rank has finished: the others may have
        oldest = std::max(oldest, read - until[r]);
      }
      results.push_back(floats_);
      std::fill(floats_.begin(), floats_.end(), -1.0F);  // nothing is left from here
      std::fill(whole_.begin(), whole_.end(), -1);
    }
  }

  covey_rounds rounds() const { return rounds_; }

  covey_code code;
  covey_error error = COVEY_INIT(covey_error);
  int64_t steps = 0, read = 0;
  bool skips_ahead = false;  // the method is told so
  int64_t oldest = 0;        // age of a contribution to a version of this rank's own steps
  std::vector<int64_t> counted = std::vector<int64_t>(64);  // by rank: steps that were in versions
  std::vector<int64_t> total = std::vector<int64_t>(64);    // by rank: how many of them
  std::vector<int64_t> overdue;                             // by rank, as of the last version read
  std::vector<std::vector<float>> results;                  // by version - 1

  static constexpr int64_t kCounts[2] = {100'000, 5};

 private:
  static constexpr covey_dtype kTypes[2] = {COVEY_FLOAT32, COVEY_INT64};

  static int64_t Expected(const std::vector<int64_t>& first, const std::vector<int64_t>& last,
                          int64_t element) {
    int64_t sum = 0;
    for (size_t r = 0; r < first.size(); ++r)
      for (int64_t step = first[r]; step > 0 && step <= last[r]; ++step)
        sum += ValueOf(static_cast<int>(r), step, element);
    return sum;
  }

  std::vector<float> floats_ = std::vector<float>(static_cast<size_t>(kCounts[0]));
  std::vector<int64_t> whole_ = std::vector<int64_t>(static_cast<size_t>(kCounts[1]));
  void* spans_[2] = {floats_.data(), whole_.data()};  // every second rank tells beforehand
  int rank_, size_;
  covey_runtime* runtime_;
  covey_rounds rounds_ = 0;
};

}  // namespace covey
#endif  // COVEY_TESTS_CONTRACT_ROUND_TRAINER_H_
