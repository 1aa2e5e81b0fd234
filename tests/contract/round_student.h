// A trainer of rounds with a model of a few pages, which says which versions were applied, in which
// order; it gives snapshots of it, and goes on from those of others.
#ifndef COVEY_TESTS_CONTRACT_ROUND_STUDENT_H_
#define COVEY_TESTS_CONTRACT_ROUND_STUDENT_H_

#include <map>
#include <vector>

#include "tests/contract/round_trainer.h"

namespace covey {

// A model of a few pages, and how it is trained through the C API.
class Student {
 public:
  Student(int rank, int size, covey_runtime* runtime, const char* method)
      : trainer_(rank, size, runtime, method), runtime_(runtime) {
    EXPECT_EQ(trainer_.code, COVEY_OK) << trainer_.error.message;
  }

  void Publish() { step_ = trainer_.Publish(); }
  covey_code Wait() { return Serve(step_); }
  covey_code Finish() {
    covey_code code = Serve(COVEY_ROUNDS_FINISH);
    if (code == COVEY_OK) code = Apply();
    return code == COVEY_OK ? Serve(COVEY_ROUNDS_MEET) : code;
  }
  int64_t executed() { return trainer_.executed(); }

  // Until all that was made is applied. COVEY_OK, or why there was no snapshot.
  covey_code Apply() {
    std::vector<float> floats(static_cast<size_t>(RoundTrainer::kCounts[0]));
    void* spans[2] = {floats.data(), nullptr};
    while (applied < executed()) {
      covey_code code =
          covey_rounds_read(runtime_, trainer_.rounds(), applied + 1, spans, nullptr, &error());
      if (code == COVEY_EXHAUSTED && (code = Recover()) == COVEY_OK) continue;
      if (code != COVEY_OK) return code;
      for (size_t i = 0; i < model.size(); ++i)
        model[i] = model[i] * 0.5 + static_cast<double>(floats[i % 90]);
      seen[++applied] = model;
    }
    GiveIfAsked();
    return COVEY_OK;
  }
  void GiveIfAsked() {
    if (covey_rounds_asked(runtime_, trainer_.rounds(), applied) != 0) Give();
  }

  covey_error& error() { return trainer_.error; }

  int64_t applied = 0;
  int given = 0, taken = 0;
  std::vector<double> model = std::vector<double>(5000);
  std::map<int64_t, std::vector<double>> seen;

 private:
  covey_code Serve(int64_t version) {
    for (;;) {
      covey_round_event event = COVEY_ROUND_TIME;
      const covey_code code =
          covey_rounds_serve(runtime_, trainer_.rounds(), version, applied, -1, &event, &error());
      if (code != COVEY_OK || event == COVEY_ROUND_DONE) return code;
      if (event == COVEY_ROUND_ASKED) Give();
      if (event != COVEY_ROUND_BEHIND) continue;
      if (const covey_code why = Apply(); why != COVEY_OK) return why;
    }
  }

  void Give() {
    const void* parts[] = {model.data(), model.data() + 1000};
    const int64_t lengths[] = {8000, static_cast<int64_t>(8 * (model.size() - 1000))};
    EXPECT_EQ(covey_rounds_give(runtime_, trainer_.rounds(), applied, parts, lengths, 2, &error()),
              COVEY_OK);
    ++given;
  }

  covey_code Recover() {
    for (;;) {
      covey_snapshot snapshot = COVEY_INIT(covey_snapshot);
      const covey_code code =
          covey_rounds_seek(runtime_, trainer_.rounds(), applied, -1, &snapshot, &error());
      if (code != COVEY_OK) return code;
      EXPECT_EQ(snapshot.length_bytes, static_cast<int64_t>(8 * model.size()));
      int32_t taken_now = 0;
      EXPECT_EQ(covey_rounds_take(runtime_, trainer_.rounds(), &snapshot, model.data(), &taken_now,
                                  &error()),
                COVEY_OK);
      if (taken_now == 0) continue;
      ++taken;
      applied = snapshot.version;
      seen[applied] = model;
      return COVEY_OK;
    }
  }

  RoundTrainer trainer_;
  covey_runtime* runtime_;
  int64_t step_ = 0;
};

}  // namespace covey
#endif  // COVEY_TESTS_CONTRACT_ROUND_STUDENT_H_
