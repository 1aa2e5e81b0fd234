// The knowledge of a simulation of replicas whose ranks average models, and its checks: see
// host_model_simulation.h, whose numbers the checks bear.
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_MODEL_JOURNAL_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_MODEL_JOURNAL_H_

#include <map>
#include <string>
#include <vector>

#include "core/replicated/replica.h"

namespace covey {

class HostModelJournal {
 public:
  HostModelJournal(const RoundMemory* geometry, const AdmissionRule& rule);

  // A rank begins its work from `model`.
  void OnBegin(int32_t rank, const Bytes& model) { begun_[static_cast<size_t>(rank)] = model; }
  void OnPublish(int32_t rank, uint64_t step, const Bytes& model) {
    published_[static_cast<size_t>(rank)][step] = model;
  }
  // The model that it is about to publish as `step` is the one it goes on from.
  void OnOffer(int32_t rank, uint64_t step) { offered_again_[static_cast<size_t>(rank)] = step; }
  // A replica knows that a version is committed, as this.
  void OnCommitted(int32_t rank, const ReplicatedEntry& entry);
  // A rank has merged what it published as `step`, with `wanted` or later, and has `model` now. Of
  // its replica: whether it has a mean of that version, and the last step of the rank that is in a
  // version.
  struct Known {
    uint64_t executed = 0;
    bool has_mean = false;
    uint64_t consumed = 0;
    bool is_flushed = false;  // its finish() has ended well
  };
  void OnMerge(int32_t rank, uint64_t step, uint64_t wanted, const Known& known,
               const Merged& merged, const Bytes& model);
  // A rank finishes or is killed: versions may have fewer fresh members.
  void OnFewer(int32_t rank);
  // The rank's finish() has ended well.
  void OnFlushed(int32_t rank, uint64_t executed);

  uint64_t LastOfAll(uint64_t version) const;
  bool IsPublished(int32_t rank, uint64_t step, const Bytes& model) const {
    return AreEqual(model, ModelOf(rank, step));
  }
  bool AreEqual(const Bytes& one, const Bytes& other) const;

  void Fail(const std::string& what);
  const std::string& failure() const { return failure_; }
  uint64_t hash() const { return hash_; }
  uint64_t versions() const { return results_.size(); }

  // Counts of events.
  uint64_t passive = 0, again = 0, late = 0, anew = 0, kept = 0, syncs = 0, finals = 0, grouped = 0;
  uint64_t overdue = 0, returned = 0, newer = 0, taken = 0;
  uint64_t absent = 0;

 private:
  struct Result {
    Bytes record;
    RoundRecord read;
    std::vector<uint64_t> consumed, missing, roles;
    std::vector<int32_t> sum_of;
  };

  void CheckVersion(const ReplicatedEntry& entry);
  void CheckMembers(const Result& result);
  void CheckMember(int32_t rank, const Result& result);
  void CheckSuspicion(int32_t rank, const RoundRecord& record);
  void CheckMean(int32_t rank, const ReplicatedEntry& entry);
  int32_t GroupFor(int32_t rank, const Result& result, bool needs_one) const;
  int32_t CountIn(const Result& result, int32_t sum) const;
  Bytes MeanOf(const Result& result, int32_t sum) const;
  const Bytes& ModelOf(int32_t rank, uint64_t step) const {
    return published_[static_cast<size_t>(rank)].at(step);
  }

  const RoundMemory* geometry_;
  AdmissionRule rule_;
  bool fewer_ = false;
  uint64_t flushed_at_ = 0;              // version; 0: none is
  std::vector<bool> exemptable_;         // by rank
  std::vector<uint64_t> missing_;        // by rank, as of the last version
  std::vector<uint64_t> contributed_;    // by rank: its step in the last version it was in
  std::vector<Bytes> begun_;             // by rank: what its work began from,
  std::vector<uint64_t> offered_again_;  // or this step, if that was taken; 0: it was not offered
  std::vector<std::map<uint64_t, Bytes>> published_;  // by rank and step
  std::vector<Result> results_;                       // by version - 1
  std::string failure_;
  uint64_t hash_ = 1469598103934665603u;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_MODEL_JOURNAL_H_
