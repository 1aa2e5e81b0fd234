// The knowledge of a simulation of models averaged in pairs, and its checks: see pair_simulation.h,
// whose numbers the checks bear.
#ifndef COVEY_TESTS_SIM_SIMULATOR_PAIR_JOURNAL_H_
#define COVEY_TESTS_SIM_SIMULATOR_PAIR_JOURNAL_H_

#include <array>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/gossip/memory.h"
#include "tests/sim/simulator/model_journal.h"

namespace covey {

class PairJournal {
 public:
  // `memory` is that of the simulated ranks.
  explicit PairJournal(const PairMemory* memory);

  // Looks at the shared memory as it is, between any two instructions of any rank.
  void Look();
  // A rank has a model that is `progress` (by element of all tiles) more than what it had, and
  // will hand it in, alone or with more. Its next own change of its model word makes that count,
  // once.
  void OnProgress(int32_t rank, const std::vector<double>& progress);
  // Nothing is left of that.
  bool HasPushed(int32_t rank) const { return progress_[static_cast<size_t>(rank)].empty(); }
  // A rank that begins an exchange has pushed nothing since its last steps; else all.
  void ExpectCopies() { non_blocking_ = true; }
  // Exchanges have a codec: how far from the mean the results may be of the one that a rank has
  // begun last; 0: they are the mean, bit for bit.
  // `keeps_equal`: a number that is equal in both stays, whatever lies beside it.
  void ExpectCodec(std::function<double(size_t rank)> error, bool keeps_equal) {
    error_ = std::move(error);
    keeps_equal_ = keeps_equal;
  }
  // It has done so, or averaged, and has `model` now: what it made its word say.
  void OnTaken(int32_t rank, const Bytes& model);
  // A rank begins a new epoch: what it has then is what counts.
  void OnGoOn(int32_t rank);

  // The result of an epoch: the mean of all, or the rank's own model.
  void CheckMeanOfAll(const Bytes& model);
  // All that take the mean at the end of an epoch take the same.
  void CheckMeanOfEpoch(int32_t rank, int epoch, const Bytes& mean);
  // `model` is what the rank has `taken`, with its progress that was not pushed.
  void CheckProgress(int32_t rank, const Bytes& taken, const Bytes& model);
  void CheckOwn(int32_t rank, const Bytes& model);

  // The model of member i, with an exchange under way or not. Nothing before it has begun.
  const Bytes* ModelOf(int32_t i) const;
  bool IsEqual(const Bytes& a, const Bytes& b) const;  // but for what is between the tiles

  void Fail(const std::string& what);
  const std::string& failure() const { return failure_; }
  uint64_t hash() const { return hash_; }

  // Counts of events.
  uint64_t updates = 0, exchanges = 0, undecided = 0, coded = 0;

 private:
  using Place = std::pair<int32_t, uint32_t>;  // a buffer: owner, number
  struct Model {
    Place place{-1, 0};
    uint64_t number = 0;
  };

  Model Resolve(int32_t i);
  void OnChange(const std::vector<Model>& now, const std::vector<int32_t>& changed);
  void CheckMean(const std::vector<Model>& now, int32_t a, int32_t b);
  void CheckEqualStay(const std::array<const Bytes*, 2>& before,
                      const std::array<const Bytes*, 2>& after);
  void CheckResults(const Bytes& mean, int32_t a, int32_t b, const Bytes& of_a, const Bytes& of_b);
  void CheckSum();
  std::vector<double> Values(const Bytes& model) const;
  void Count(const Bytes& model, double sign);

  const PairMemory* memory_;
  std::vector<Model> models_;                  // as of the last look
  std::map<Place, Bytes> held_;                // what words name, as it was when the first did
  std::vector<double> expected_;               // the sum of all models, by element
  std::vector<std::vector<double>> progress_;  // of ranks that push, by rank; else empty
  bool non_blocking_ = false;
  std::function<double(size_t rank)> error_;  // empty: no codec
  bool keeps_equal_ = false;
  std::vector<bool> goes_on_;
  std::map<int, Bytes> means_;  // by epoch
  std::vector<Bytes> own_;      // what a rank made its word say last
  std::string failure_;
  uint64_t hash_ = 1469598103934665603u;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_PAIR_JOURNAL_H_
