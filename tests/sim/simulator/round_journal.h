// What a simulation of rounds knows of its results, and what must hold of them: see
// round_simulation.h, whose numbers the checks bear.
#ifndef COVEY_TESTS_SIM_SIMULATOR_ROUND_JOURNAL_H_
#define COVEY_TESTS_SIM_SIMULATOR_ROUND_JOURNAL_H_

#include <string>
#include <vector>

#include "core/round/rounds.h"

namespace covey {

class RoundJournal {
 public:
  // `memory` is that of the simulated ranks.
  RoundJournal(const RoundMemory* memory, const AdmissionRule& rule);

  // What step `step` of `rank` contributes: small whole numbers, different for each.
  static void Fill(const RoundLayout& layout, int32_t rank, uint64_t step, std::byte* to);

  // Looks at the shared memory as it is, between any two instructions of any rank.
  void Look();
  void OnPublish(int32_t rank, uint64_t step) { published_[static_cast<size_t>(rank)] = step; }
  void OnRead(int32_t rank, uint64_t version, const std::vector<std::byte>& data,
              const RoundRecord& record);
  // A rank finishes or is killed: from now on versions may have fewer fresh members.
  void OnFewer(int32_t rank);
  // Enough members have come for the next version, as the memory is now: nobody may take it that
  // max_wait is over. The answer is that version, or 0.
  uint64_t IsMet() const;
  // At the end. `runs`: this rank was neither stopped nor killed; `flushed`: all have finished.
  void CheckRank(int32_t rank, bool runs, bool flushed);

  void Fail(const std::string& what);
  const std::string& failure() const { return failure_; }
  uint64_t hash() const { return hash_; }
  uint64_t versions() const { return results_.size(); }
  uint64_t late() const { return late_; }          // contributions that were not fresh
  uint64_t merged() const { return merged_; }      // of several steps
  uint64_t overdue() const { return overdue_; }    // members that have become so,
  uint64_t returned() const { return returned_; }  // and such as were waited for again

 private:
  void CheckVersion(uint64_t version);
  void CheckLog();
  void CheckAttendance(int32_t rank, const RecordHeader& header, const Contribution& contribution,
                       uint64_t missing);
  void CheckContribution(int32_t rank, uint64_t version, const Contribution& contribution);

  struct Result {
    std::vector<std::byte> data;
    std::vector<Contribution> contributions;
    std::vector<uint64_t> missing;
  };

  const RoundMemory* memory_;
  AdmissionRule rule_;
  bool fewer_ = false;
  std::vector<bool> excusable_;      // by rank: it has finished once, or was killed
  std::vector<uint64_t> missing_;    // by rank, as of the last version
  std::vector<Result> results_;      // by version - 1
  std::vector<uint64_t> published_;  // by rank: its last step
  std::vector<uint64_t> collected_;  // by rank: the last step that is in a version
  std::string failure_;
  uint64_t hash_ = 1469598103934665603u;
  uint64_t late_ = 0, merged_ = 0, overdue_ = 0, returned_ = 0;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_ROUND_JOURNAL_H_
