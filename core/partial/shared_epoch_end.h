// The end of an epoch of rounds among ranks that share memory (partial-W8b, partial-W8c): words
// that each member writes for itself, and the settled version in the state word.
#ifndef COVEY_CORE_PARTIAL_SHARED_EPOCH_END_H_
#define COVEY_CORE_PARTIAL_SHARED_EPOCH_END_H_

#include <vector>

#include "core/partial/arrivals.h"
#include "core/partial/epoch_end.h"
#include "core/partial/log.h"
#include "core/partial/slot.h"
#include "core/partial/snapshots.h"

namespace covey {

class SharedEpochEnd final : public EpochEnd {
 public:
  // The parts of the rank's Rounds that the end of an epoch uses. All outlive it.
  struct Parts {
    Slot* slot;
    Arrivals* arrivals;
    Snapshots* snapshots;
    const ResultLog* log;
  };

  SharedEpochEnd(int32_t self, const Parts& parts, const RoundMemory* memory, SharedAtomics* words);

  void Finish() override;
  bool IsFlushed() override;
  // To be asked after Advance.
  bool HasGivenUp() const override { return parts_.arrivals->over(); }
  std::vector<int32_t> Unfinished() override;
  bool GoOnWithout() override;
  void KeepSnapshot() override { keeps_snapshot_ = true; }
  bool LacksSnapshot(uint64_t version) override;
  bool IsLeftBehind() override { return IsBehind() ? parts_.arrivals->over() : is_held_back_; }
  uint64_t dropped() const override { return dropped_; }
  // That there are none shows at the second time.
  Donors FindDonors() override;
  void Meet() override;
  std::vector<int32_t> Unmet() override;
  // This rank will touch no block any more. Then nothing but HaveAllLeft may be called, which says
  // whether its own block can be given back.
  void Leave() override;
  bool HaveAllLeft() override;

  // Before this rank publishes a step: whether the step is dropped, and counted, because the others
  // have ended the epoch without this rank.
  bool DropsStep();
  void OnLoss(int32_t member) { lost_[static_cast<size_t>(member)] = true; }
  const std::vector<bool>& lost() const { return lost_; }  // by member
  // A version that the others have gone on with; 0: none.
  uint64_t settled() const { return settled_; }

 private:
  bool IsBehind();
  bool HasAnyTrainedOn(uint64_t times);
  void NoteSettled(const StateWord& state);
  bool IsAnyBehindLog(uint64_t last) const;
  bool IsGone(int32_t member) const;

  int32_t self_;
  Parts parts_;
  const RoundMemory* memory_;
  SharedAtomics* words_;
  bool is_held_back_ = false;    // its last step was not published
  bool keeps_snapshot_ = false;  // for ranks that come later, when this one has left
  uint64_t settled_ = 0;
  uint64_t dropped_ = 0;  // steps of its own
  std::vector<bool> lost_;
  std::vector<uint64_t> needs_;  // of those who could give, when they were looked at last
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_SHARED_EPOCH_END_H_
