// A rank's model, readable by the other members while it is trained: a window
// (core/transport/seqlock.h) on the model where it lies, or on nothing, and a mark: the rank's
// progress. No rank waits for another.
//
//   event                                the window after it
//   -                                    nothing is seen but the mark
//   Show: the model lies there           even
//   Begin: the model is about to change  odd
//   End: it has changed                  even
//   Wait: in an exchange of models       even, the mark waits
//   EndWait: that exchange is over       odd until End, or even if it has failed
//   Tell, within a part in rounds or     odd until Show
//   pairs: what lies there is not the
//   rank's model
//   ShowCopy                             even
//   HideCopy                             odd
//   Hide                                 closed, for ever
//
// A model that is trained elsewhere is copied there between two calls, when another member has
// asked for it since (train-T23): its window is odd until ShowCopy, and from HideCopy on.
//
// Exchanges of models write where the model lies. The rule of train-T19:
//  - No memory is written before all members have begun the exchange. So a member that waits in it
//    can be seen by one that has not begun it: the exchange cannot begin to write before that look
//    has ended, as one rank looks or exchanges, not both.
//  - A member that has begun the exchange, or ended it, must not trust a copy of one that still
//    says that it waits there: the memory may be written meanwhile, by a rank or thread that does
//    not change the word. It knows by their numbers: members count the exchanges that they have
//    ended. No two are further apart than one, so the mark has the number modulo 4.
//
// Its block of this rank's region goes back once no member can look at it any more: each says so in
// a word of its own there.
//
// One thread at a time, but for Hide.
#ifndef COVEY_CORE_ENGINE_TRAINER_WINDOW_H_
#define COVEY_CORE_ENGINE_TRAINER_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/base/tensor.h"
#include "core/transport/window.h"

namespace covey {

// How far a member is, packed into the version of its window.
struct TrainerMark {
  uint64_t version = 0;    // updates done
  uint64_t exchanges = 0;  // of models by operations, that have ended; modulo kCounted
  bool waits = false;      // in the next of them: until all have begun it its memory is at rest

  static constexpr uint64_t kCounted = 4;

  static TrainerMark Unpacked(uint64_t packed);
  uint64_t Packed() const;
  // Whether a rank that has begun so many exchanges has begun one that this member has not ended.
  bool IsBehind(uint64_t begun) const;
};

class TrainerWindow {
 public:
  struct Options {
    Transport* transport = nullptr;  // that has words, and outlives it
    const Group* group = nullptr;
    uint64_t offset = 0;               // of BlockBytes in this rank's region, zero
    const std::byte* model = nullptr;  // in this rank's region; null: there is none to be seen
    bool is_copy = false;              // it is trained elsewhere
    size_t length_bytes = 0;           // of each member's model
    int64_t version = 0;
  };

  static size_t BlockBytes(int32_t members);

  explicit TrainerWindow(const Options& options);
  TrainerWindow(const TrainerWindow&) = delete;

  uint64_t offset() const { return options_.offset; }
  // Before Look and Leave: the offsets of all members' blocks, by index.
  void Meet(std::vector<uint64_t> offsets) { offsets_ = std::move(offsets); }

  // ---- This rank's.
  // The model lies there from now on.
  void Show(int64_t version);
  // A copy of the model lies there now, until HideCopy.
  bool takes_copies() const { return options_.is_copy && options_.model != nullptr; }
  void ShowCopy(int64_t version);
  void HideCopy();
  // Whether a member has asked for it since the last ClearWanted.
  bool IsWanted() const;
  void ClearWanted();
  // Brackets each change; Begin may come more than once.
  void Begin();
  void End(int64_t version);
  // An exchange of models has begun, and is over: it `has_mean`, which is this rank's model with
  // the next End; or it has failed.
  void Wait();
  void EndWait(bool has_mean);
  // The rank has taken the mean of a meeting in pairs, which is an exchange of models too.
  void CountMean();
  // The rank is there, and its model lies there still, or not any more.
  void Tell(int64_t version, bool is_there);
  // Nothing is to be seen any more. Any thread.
  void Hide();

  // ---- Of any member.
  // Copies its model, if there is one to be seen of one moment; empty: only looks, also while it is
  // being changed. *version as the member has said last, 0 if it has closed or is lost.
  WindowState Look(int32_t member, std::span<std::byte> model, int64_t* version) const;
  // Asks for it, where it is trained elsewhere.
  void Want(int32_t member);

  // Whether this rank has ended an exchange of models that the member has not.
  bool IsBehind(int32_t member) const;

  // This rank has closed its training: it looks at no other again.
  void Leave();
  // Whether all have, but for those that are lost: the block can go back.
  bool HaveAllLeft() const;

 private:
  void OpenOdd();
  void Put(int64_t version);
  SeqLock Own() const;
  uint64_t* LeftAt(int32_t member, int32_t of) const;
  uint64_t* WantedAt(int32_t of) const { return LeftAt(options_.group->size(), of); }

  const Options options_;
  std::vector<uint64_t> offsets_;
  TrainerMark mark_;
  bool is_there_ = false;  // what lies there is this rank's model
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_WINDOW_H_
