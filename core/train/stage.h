// The stages of a step (core/train/trainer.h), and how an exchange among them ends.
#ifndef COVEY_CORE_TRAIN_STAGE_H_
#define COVEY_CORE_TRAIN_STAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/clock.h"

namespace covey {

enum class Stage : uint8_t {
  // ---- Exchanges that all members do together.
  kReduce,        // the gradients of all
  kAgree,         // whether models of any rank may differ, and the furthest step
  kAverage,       // the models of all
  kMix,           // the model with those of neighbors
  kAverageState,  // what the optimizers of all keep
  // ---- Exchanges of rounds (core/partial/rounds_port.h).
  kAnchor,      // deltas: the rank's model is what all begin with
  kBegin,       // models: what the rank trains on now is where it begins from
  kDelta,       // deltas: what the rank has changed since becomes what it publishes
  kPublish,     // what lies there becomes its next contribution
  kAwait,       // the version of that contribution
  kFlush,       // finish(): until all that was published is in a version
  kMeet,        // finish(): until all members have applied everything
  kGoOn,        // finish(): the end without the ranks that are missing
  kRead,        // the next version
  kMerge,       // models: what the rank's own becomes by a version
  kOfferAgain,  // models: that, with progress that others have not seen
  kSeek,        // another rank's snapshot, where that version has left the log
  kServe,       // whether a rank asks for a snapshot of this one
  kGive,        // deltas: that snapshot
  kAdopt,       // deltas: the replicated model, with what of the rank's work no version has
  kLook,        // which versions have been made
  kDue,         // the version that is due in a moment, or until it is not any more
  kLeaveState,  // late ranks find the state given last also when this rank has left
  kHandOver,    // gradients: what of this rank no version has is its own; no rank waits for it
  kRelease,     // rounds that were handed over are closed
  kLeave,       // these rounds are over for this rank
  // ---- Exchanges of pairs (core/gossip/gossip_port.h).
  kEnter,     // what the rank trains on now is what it begins with
  kTurn,      // one more step is done: whether its local steps are over
  kPair,      // the model is averaged with a partner's
  kMean,      // finish(): the mean of all, once all have come
  kSettle,    // a checkpoint: the rank's own model, wherever parts of it are, once all have come
  kSeenMean,  // finish(): the mean of the models as they are seen, without those that are missing
  kQuit,      // these pairs are over for this rank
  // ---- Actions of the adapter.
  kCollectGradients,  // the rank's gradients are to lie in the trainer's memory
  kCollectModel,      // its model is to lie there
  kUpdate,            // the gradients that lie there are to be applied to the model
  kLoadModel,         // the model that lies there is the rank's from now on
  kPack,              // the rank's state is to be given, for a rank that has fallen behind
  kUnpack,            // the state that lies there is the rank's from now on
  kListState,         // what its optimizer keeps is to be named
  kLoadState,         // that is the same on all members now
  kVacate,            // the memory of rounds is about to end: nothing of the adapter's lies there
};

constexpr bool IsExchange(Stage stage) { return stage <= Stage::kQuit; }
constexpr bool IsOfRounds(Stage stage) { return stage >= Stage::kAnchor && stage <= Stage::kLeave; }
constexpr bool IsOfPairs(Stage stage) { return stage >= Stage::kEnter && stage <= Stage::kQuit; }
// Whether ranks of pairs wait in it until all have come.
constexpr bool IsMeeting(Stage stage) { return stage == Stage::kMean || stage == Stage::kSettle; }

// The optimizer state becomes the same on all members.
inline std::vector<Stage> StateStages() {
  return {Stage::kListState, Stage::kAverageState, Stage::kLoadState};
}

// The end of an exchange that went well, but for `executed`, which is known in any case.
struct StageResult {
  // Why a wait of rounds has ended.
  enum class Event : uint8_t {
    kMade,    // as the stage says; or others have ended finish() without this rank
    kAsked,   // a snapshot is to be given first
    kBehind,  // kFlush: versions are to be applied first
  };

  // kAgree: the largest of all members' values. kMerge: whether other ranks have another model.
  bool may_differ = false;
  int64_t step = 0;
  double scale = 1;  // kAverage: by this a model that lies on a device is to be multiplied
  // Rounds.
  Event event = Event::kMade;
  // kPublish: the one to be awaited; kSeek: that of the snapshot; kMerge: the one merged with.
  uint64_t version = 0;
  uint64_t own_step = 0;  // kMerge, kOfferAgain: the one at which this rank stands
  // kMerge; of deltas kRead, kSeek, and kAdopt of a finish(): the most that a rank in the version,
  // or one before, had done.
  int64_t steps = 0;
  uint64_t executed = 0;    // the last version made,
  Time ended_at = 0;        // and kLook, kDue: when; 0: it is not known
  std::string unfit;        // kPublish: why this rank has published nothing
  bool is_gone = false;     // kRead: the version has left the log
  bool is_empty = false;    // kRead: there is no gradient in it
  bool misses = false;      // kRead, kMerge: a member is overdue in it,
  bool is_overdue = false;  // kMerge: this rank is
  bool is_kept = false;     // kMerge: it is the mean, and this rank's progress
  bool is_left = false;     // kAwait: others have ended finish() without this rank
  bool is_needed = false;   // kRead: this rank is to leave its state for those that were not in it
  bool has_more = false;  // kHandOver: a contribution that no version has is this rank's gradients
  bool has_all = false;   // kMerge: each member has been in a version of these rounds
  bool is_due = false;    // kTurn: the model is exchanged
};

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_STAGE_H_
