// The simulator's knowledge of a job of replicas: the published contributions, and the committed
// versions.
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_JOURNAL_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_JOURNAL_H_

#include <string>
#include <vector>

#include "core/replicated/replica.h"
#include "tests/sim/simulator/round_journal.h"

namespace covey {

class HostJournal {
 public:
  HostJournal(const RoundMemory* geometry, const AdmissionRule& rule);

  void OnPublish(int32_t rank, uint64_t step) {
    published_[static_cast<size_t>(rank)].push_back(step);
  }
  // It was not published: others had ended finish() without its rank.
  void OnNotPublished(int32_t rank, uint64_t step);
  // Likewise in its finish(): what it had published, and no version has.
  void OnDropped(int32_t rank, uint64_t count);
  // It has gone on from that version without others, of so many versions.
  void OnSettled(int32_t rank, uint64_t version, uint64_t versions);
  // Another one is known to be committed.
  void CheckSettled(uint64_t version);
  bool HasSettled() const;
  void OnKill(int32_t rank) { killed_[static_cast<size_t>(rank)] = true; }
  // A replica knows that a version is committed, as this.
  void OnCommitted(int32_t rank, const ReplicatedEntry& entry);
  // That is the model of a rank after `version`.
  void OnApplied(int32_t rank, uint64_t version, const RoundModel& model);
  // A rank finishes or is killed: versions may have fewer fresh members.
  void OnFewer(int32_t rank);
  // Its finish() has ended well.
  void OnFlushed(int32_t rank, uint64_t executed);
  // At the end: what its replica holds; `flushed`: it has finished, as all have.
  void CheckRank(int32_t rank, const std::vector<Contribution>& held, bool flushed);

  void Fail(const std::string& what);
  const std::string& failure() const { return failure_; }
  uint64_t hash() const { return hash_; }
  uint64_t versions() const { return results_.size(); }
  bool WasOverdue(int32_t rank, uint64_t version) const {
    return results_[version - 1].missing[static_cast<size_t>(rank)] > 0;
  }
  // Whether a replica with that log has all of them.
  bool HasAll(const ReplicatedLog& log) const;
  uint64_t late() const { return late_; }
  uint64_t merged() const { return merged_; }
  uint64_t expired() const { return expired_; }
  uint64_t overdue() const { return overdue_; }
  uint64_t returned() const { return returned_; }

 private:
  void CheckVersion(const ReplicatedEntry& entry);
  void CheckContribution(int32_t rank, uint64_t version, const Contribution& contribution);
  void CheckSuspicion(int32_t rank, const RoundRecord& record);
  bool AreNext(int32_t rank, const Contribution& contribution) const;
  void AddSteps(int32_t rank, const Contribution& contribution, std::vector<std::byte>* to);

  const RoundMemory* geometry_;
  AdmissionRule rule_;
  bool fewer_ = false;
  uint64_t flushed_at_ = 0;              // version; 0: none is
  uint64_t settled_ = 0;                 // the version that a rank has gone on from,
  std::vector<bool> settlers_, killed_;  // by rank
  std::vector<bool> exemptable_;
  std::vector<uint64_t> missing_;
  std::vector<ReplicatedEntry> results_;                         // by version - 1
  std::vector<RoundModel> models_ = std::vector<RoundModel>(1);  // by version
  std::vector<std::vector<uint64_t>> published_;                 // by rank: its steps
  std::vector<size_t> collected_;  // by rank: how many of them are in versions
  std::string failure_;
  uint64_t hash_ = 1469598103934665603u;
  uint64_t late_ = 0, merged_ = 0, expired_ = 0, overdue_ = 0, returned_ = 0;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_JOURNAL_H_
