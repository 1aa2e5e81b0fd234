// The knowledge of a simulation of rounds of its results, and its checks: see round_simulation.h,
// whose numbers the checks bear.
#ifndef COVEY_TESTS_SIM_SIMULATOR_ROUND_JOURNAL_H_
#define COVEY_TESTS_SIM_SIMULATOR_ROUND_JOURNAL_H_

#include <array>
#include <string>
#include <vector>

#include "core/partial/rounds.h"

namespace covey {

// The state of a trainer: it says which versions were applied, in which order.
struct RoundModel {
  std::array<uint64_t, 12> words{};

  void Apply(const std::vector<std::byte>& data);
  friend bool operator==(const RoundModel&, const RoundModel&) = default;
};

class RoundJournal {
 public:
  // `memory` is that of the simulated ranks.
  RoundJournal(const RoundMemory* memory, const AdmissionRule& rule);

  // The contribution of step `step` of `rank`: small whole numbers, different for each.
  static void Fill(const RoundLayout& layout, int32_t rank, uint64_t step, std::byte* to);

  // Looks at the shared memory as it is, between any two instructions of any rank.
  void Look();
  void OnPublish(int32_t rank, uint64_t step) {
    published_[static_cast<size_t>(rank)].push_back(step);
  }
  // It was not to publish that: others had ended finish() without it.
  void OnNotPublished(int32_t rank, uint64_t step);
  // Likewise in finish(): what it has published and no version has.
  void OnDropped(int32_t rank);
  void OnSkip(int32_t rank);
  void OnFinish(int32_t rank);
  // It goes on from the last version, which is settled.
  void OnSettled(int32_t rank);
  // It has ended finish() and everything with that version applied.
  void OnEnd(int32_t rank, uint64_t version);
  void OnKill(int32_t rank);
  void OnRead(int32_t rank, uint64_t version, const std::vector<std::byte>& data,
              const RoundRecord& record);
  // That is its model after `version`.
  void OnHeld(int32_t rank, uint64_t version, const std::vector<std::byte>& data);
  void OnApplied(int32_t rank, uint64_t version, const RoundModel& model);
  // A rank finishes or is killed: from now on versions may have fewer fresh members.
  void OnFewer(int32_t rank);
  // Enough members have come for the next version, as the memory is now: no rank may conclude that
  // max_wait is over. The answer is that version, or 0.
  uint64_t IsMet() const;
  // partial-W4: in a warm-up, and where the rounds may end.
  bool WaitsForAll(uint64_t version) const;
  // At the end. `runs`: this rank was neither stopped nor killed; `flushed`: all have finished.
  // By the rank that has published it: it will be in no version.
  void OnWithdrawn(int32_t rank, const Contribution& c, const std::byte* content);
  void CheckRank(int32_t rank, bool runs, bool flushed);

  void Fail(const std::string& what);
  const std::string& failure() const { return failure_; }
  uint64_t hash() const { return hash_; }
  uint64_t versions() const { return results_.size(); }
  uint64_t late() const { return late_; }          // contributions that were not fresh
  uint64_t oldest() const { return oldest_; }      // the greatest age where it is limited
  uint64_t skipped() const { return skipped_; }    // of several steps with gaps
  uint64_t merged() const { return merged_; }      // of several steps
  uint64_t overdue() const { return overdue_; }    // members that have become so,
  uint64_t returned() const { return returned_; }  // and such as were waited for again
  uint64_t dropped() const { return dropped_; }    // steps: others had finished
  uint64_t rejoined() const { return rejoined_; }  // ends with what others have gone on from

 private:
  void CheckVersion(uint64_t version);
  void CheckLog();
  void CheckSuspicion(int32_t rank, const RecordHeader& header, const Contribution& contribution,
                      uint64_t missing);
  void CheckAge(int32_t rank, const RecordHeader& header, const Contribution& contribution);
  void CheckContribution(int32_t rank, uint64_t version, const Contribution& contribution);
  bool AreNext(int32_t rank, const Contribution& contribution) const;
  bool IsSettled() const;
  void NoteSettled(const StateWord& state);
  bool IsUnderWay(int32_t rank, const SlotWord& slot) const;
  void Hold(int32_t rank, const Contribution& content);

  struct Result {
    std::vector<std::byte> data;
    std::vector<Contribution> contributions;
    std::vector<uint64_t> missing;
  };

  const RoundMemory* memory_;
  AdmissionRule rule_;
  bool fewer_ = false;
  std::vector<bool> exemptable_;   // by rank: it has finished once, or was killed
  std::vector<uint64_t> missing_;  // by rank, as of the last version
  std::vector<Result> results_;    // by version - 1
  std::vector<RoundModel> models_ = std::vector<RoundModel>(1);  // by version
  std::vector<std::vector<uint64_t>> published_;                 // by rank: its steps
  std::vector<size_t> collected_;  // by rank: how many of them are in versions
  std::vector<size_t> known_;      // by rank: published when those finished that have settled
  std::vector<std::vector<size_t>> finished_with_;  // by rank: what all had published then
  uint64_t noted_ = 0;                              // 1 + the version that these are of
  uint64_t settled_ = 0;                            // the version that a rank has gone on from,
  std::vector<bool> settlers_, killed_;             // by rank
  std::string failure_;
  uint64_t hash_ = 1469598103934665603u;
  uint64_t late_ = 0, merged_ = 0, overdue_ = 0, returned_ = 0, oldest_ = 0, skipped_ = 0;
  uint64_t dropped_ = 0, rejoined_ = 0;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_ROUND_JOURNAL_H_
