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
// How others look: core/engine/shared_window.h, core/engine/far_window.h.
//
// One thread at a time, but for Hide.
#ifndef COVEY_CORE_ENGINE_TRAINER_WINDOW_H_
#define COVEY_CORE_ENGINE_TRAINER_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/transport/seqlock.h"
#include "core/transport/window.h"

namespace covey {

class ChannelMux;

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
  // The memory of this rank's window.
  struct Own {
    SharedAtomics* words = nullptr;
    uint64_t* at = nullptr;            // OwnBytes, zero
    const std::byte* base = nullptr;   // offsets of the window's memory begin here
    const std::byte* model = nullptr;  // null: there is none to be seen
    bool is_copy = false;              // it is trained elsewhere
    size_t length_bytes = 0;           // of each member's model
    int64_t version = 0;
  };
  // The words of a window of one span, and a word for members that ask.
  static constexpr size_t kOwnBytes = SeqLock::LengthBytes(1) + sizeof(uint64_t);

  explicit TrainerWindow(const Own& own);
  virtual ~TrainerWindow() = default;
  TrainerWindow(const TrainerWindow&) = delete;

  // The offset or channel on which members agree: each gives its own, and Meet takes all of them,
  // before Look and Leave.
  virtual uint64_t place() const = 0;
  virtual void Meet(std::vector<uint64_t> places) = 0;
  // Whether looks are questions, which the member answers: by messages, from Join until Part. With
  // the progress lock.
  virtual bool IsFar() const { return false; }
  virtual void Join(ChannelMux*) {}
  virtual void Part(ChannelMux*) {}
  // The model that this rank has published last in the rounds that begin at version `part`, and its
  // step, 0 if there is none: for questions, until DropRounds or Leave.
  using Published = std::function<Status(std::span<std::byte> model, uint64_t* step)>;
  virtual void AddRounds(int64_t /*part*/, Published) {}
  virtual void DropRounds(int64_t /*part*/) {}

  // ---- This rank's.
  // The model lies there from now on.
  void Show(int64_t version);
  // A copy of the model lies there now, until HideCopy.
  bool takes_copies() const { return own_.is_copy && own_.model != nullptr; }
  void ShowCopy(int64_t version);
  void HideCopy();
  // Whether a member has asked for it since the last ClearWanted.
  bool IsWanted();
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
  virtual WindowState Look(int32_t member, std::span<std::byte> model, int64_t* version) = 0;
  // Asks for it, where it is trained elsewhere.
  virtual void Want(int32_t member) = 0;
  // Whether this rank has ended an exchange of models that the member has not. REQUIRES: !IsFar().
  virtual bool IsBehind(int32_t member) = 0;

  // This rank has closed its training: it looks at no other again.
  virtual void Leave() = 0;
  // Whether all members have, but for lost ones: the window's memory can go back.
  virtual bool HaveAllLeft() = 0;

 protected:
  // The lock that each call about this rank's window holds; none by default.
  virtual std::unique_lock<std::mutex> Hold() { return {}; }
  // With that lock, when the window has become even, or is closed.
  virtual void OnEven() {}

  SeqLock window() const { return {own_.at, own_.words}; }
  uint64_t* WantedAt() const { return own_.at + SeqLock::LengthBytes(1) / sizeof(uint64_t); }
  // The exchanges that this rank has begun.
  uint64_t begun() const { return mark_.exchanges + (mark_.waits ? 1 : 0); }
  const TrainerMark& mark() const { return mark_; }
  const Own& own() const { return own_; }

 private:
  void OpenOdd();
  void Change();
  void Put(int64_t version);

  const Own own_;
  TrainerMark mark_;
  bool is_there_ = false;  // what lies there is this rank's model
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_WINDOW_H_
