// The knowledge of a simulation of rounds of models, and its checks: see model_simulation.h, whose
// numbers the checks bear.
#ifndef COVEY_TESTS_SIM_SIMULATOR_MODEL_JOURNAL_H_
#define COVEY_TESTS_SIM_SIMULATOR_MODEL_JOURNAL_H_

#include <map>
#include <string>
#include <vector>

#include "core/partial/rounds.h"

namespace covey {

using Bytes = std::vector<std::byte>;

class ModelJournal {
 public:
  // `memory` is that of the simulated ranks.
  ModelJournal(const RoundMemory* memory, const AdmissionRule& rule);

  // Looks at the shared memory as it is, between any two instructions of any rank.
  void Look();
  // A rank begins its work from `model`.
  void OnBegin(int32_t rank, const Bytes& model) { begun_[static_cast<size_t>(rank)] = model; }
  // A rank is about to publish `model` as its step `step`.
  void OnPublish(int32_t rank, uint64_t step, const Bytes& model);
  // The model that it is about to publish as `step` is the one it goes on from.
  void OnOffer(int32_t rank, uint64_t step) { offered_again_[static_cast<size_t>(rank)] = step; }
  // A rank has merged what it published as `step`, with `wanted` or later, and has `model` now.
  void OnMerge(int32_t rank, uint64_t step, uint64_t wanted, const Merged& merged,
               const Bytes& model);
  // A rank has read `model`, which another one offers as its step `step`.
  void OnLook(int32_t owner, uint64_t step, const Bytes& model);
  // A rank finishes or is killed: from now on versions may have fewer fresh members.
  void OnFewer(int32_t rank);
  // A rank that has finished goes on with the last version, which is `version`, without others.
  void OnGoOnWithout(int32_t rank, uint64_t version);
  // It has ended finish() with that version.
  void OnEnd(int32_t rank, uint64_t version);
  // All have finished and go on.
  void OnAllGoOn();
  void OnKill(int32_t rank) { killed_[static_cast<size_t>(rank)] = true; }

  // The last version of all up to this one; 0: none.
  uint64_t LastOfAll(uint64_t version) const;

  void Fail(const std::string& what);
  const std::string& failure() const { return failure_; }
  uint64_t hash() const { return hash_; }
  uint64_t versions() const { return results_.size(); }

  // Counts of events.
  uint64_t passive = 0;  // models that were not their owner's of this version
  uint64_t again = 0;    // that were in a version before
  uint64_t late = 0;     // merges of one that was not in the mean
  uint64_t anew = 0;     // such as a version of all had superseded,
  uint64_t kept = 0;     // and no version has had
  uint64_t taken = 0;    // means that others had gone on with
  uint64_t old = 0;      // models that were kept out
  uint64_t syncs = 0, finals = 0, overdue = 0, returned = 0;

 private:
  struct Result {
    RecordHeader header;
    std::vector<Contribution> contributions;
    std::vector<uint64_t> missing;
    std::vector<int32_t> sum_of;
    Bytes means;
  };

  void CheckVersion(uint64_t version);
  void CheckLog();
  void CheckMembers(const Result& result, uint64_t version);
  void CheckMember(int32_t rank, const Result& result, uint64_t version);
  void CheckSuspicion(int32_t rank, const Result& result);
  void CheckMeans(const Result& result, uint64_t version);
  int32_t GroupFor(int32_t rank, const Result& result, bool needs_one) const;
  std::vector<const Bytes*> ModelsIn(const Result& result, int32_t sum) const;
  Bytes MeanOf(const Result& result, int32_t sum) const;
  const Bytes& ModelOf(int32_t rank, uint64_t step) const;

  const RoundMemory* memory_;
  AdmissionRule rule_;
  bool fewer_ = false;
  uint64_t settled_ = 0;                   // the version that a rank has gone on with:
  std::vector<bool> settlers_;             // by rank: it has
  std::vector<bool> exemptable_, killed_;  // by rank
  std::vector<uint64_t> missing_;          // by rank, as of the last version
  std::vector<uint64_t> contributed_;      // by rank: its step in the last version it was in
  std::vector<Bytes> begun_;               // by rank: what its work began from,
  std::vector<uint64_t> offered_again_;    // or this step, if that was taken; 0: it was not offered
  std::vector<uint64_t> taken_;            // by rank: the last of its steps that was
  std::vector<std::map<uint64_t, Bytes>> published_;  // by rank and step
  uint64_t fired_ = 0;                                // the last version seen fired,
  std::vector<uint64_t> offered_;                     // and what was on offer then, by rank
  std::vector<Result> results_;                       // by version - 1
  std::string failure_;
  uint64_t hash_ = 1469598103934665603u;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_MODEL_JOURNAL_H_
