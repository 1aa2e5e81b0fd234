// One rank's part in the versions of one bundle, where ranks share no memory: what Rounds
// (core/partial/rounds.h) is on one host. Of gradients; models are not for this yet.
//
// A job has one seat for each rank, and one of them leads. A rank publishes to its own seat, which
// keeps what it has published until a decided version says that it counts (pieces.h) and sends it
// to the leader; the leader counts arrivals and makes versions by the same rules as one host
// (tally.h), and a version is decided once a majority of seats keeps it (reign.h, ledger.h). Then
// all can read it, and only then.
//
// Leaders have numbers, their attempts. A seat that has not heard of its leader for engine_grace,
// the lowest first, asks all for the next attempt; whoever says yes takes no letter of an earlier
// one. A majority says what it keeps: what may have been decided is decided again, the same bytes.
//
//   seat           event                                        becomes
//   follows        silence of the leader for its patience       asks: attempt + 1, votes for itself
//   asks           yes of a majority                            leads
//   asks           silence, but somebody was heard              asks again: attempt + 1
//   any            letter of a later attempt                    follows, whom it will learn
//   follows        kAsk of its attempt, from who is as far      votes, once for each attempt
//   any            Depart, and what only it knows is known      parts: kWord to all, then silence
//
// Who has parted is as dead, but its trainer has read what it told in its word. A leader that knows
// of versions that only such ranks have is cut off (reign.h), and so is who follows it.
//
// Invariants, whoever stops or dies wherever, and for however long:
//  1. A version is decided once: no two seats read different ones, also when all who have read one
//     have left.
//  2. A step of a rank is in one version at most, and in its seat until it is in one.
//  3. With a majority that runs (quorum.h) and can hear each other, versions go on. Without one
//     nobody can tell what the others have read, so all wait: for longer than max_wait, too.
//  4. Who is cut off is told so, and has finished with nobody: Lacking.
//
// Each seat belongs to one process, whose engine runs it while the trainer computes. Sans-IO:
// letters and time come as arguments, letters go by TakePosts. One thread at a time.
#ifndef COVEY_CORE_REPLICATED_SEAT_H_
#define COVEY_CORE_REPLICATED_SEAT_H_

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/partial/versions.h"
#include "core/replicated/ledger.h"
#include "core/replicated/letter.h"
#include "core/replicated/pieces.h"
#include "core/replicated/reign.h"

namespace covey {

class Seat final : public Versions {
 public:
  struct Options {
    int32_t self = 0;
    AdmissionRule admission;
    Time max_wait = kNever;
    bool skips_ahead = false;
    bool average = false;
    Time engine_grace = kSecond;
    const Kernels* kernels = nullptr;
  };

  // Equal on all ranks but for `self` and `max_wait` (partial-W1).
  Seat(const Options& options, const RoundMemory::Shape& shape, const RoundLayout& layout);

  // ---- Of the trainer: see Versions.
  std::byte* open() const override { return pieces_.open(); }
  uint64_t Publish(std::span<const double> hypers) override;
  uint64_t Skip() override;
  uint64_t step() const override { return step_; }
  uint64_t next_step() const override;
  void set_max_wait(Time max_wait) override { max_wait_ = max_wait; }
  void set_grace(Time grace) override;
  uint64_t executed() override { return ledger_.executed(); }
  Found Read(uint64_t version, std::span<void* const> to, RoundRecord* record) override;
  // Between two steps; and that it does: nothing happens if it is not asked any more.
  bool IsAsked(uint64_t applied, Time now) override;
  bool IsAnyInNeed() const override;
  void Give(uint64_t applied, Bytes state);
  // It has fallen out of the log (kGone): asks for a state from which the log leads on. True: that
  // is *gift now, and is_overdue as if it had been waited for in vain.
  struct Gift {
    int32_t from = -1;
    uint64_t version = 0;
    Bytes state;
  };
  bool Seek(Gift* gift);
  Givers FindGivers() override;
  void Finish() override;
  bool IsFlushed() override;
  Lack Lacking() override;
  bool HasGivenUp() const override { return tries_ > 0 && view_.over == tries_; }
  std::vector<int32_t> Unfinished() override;
  void GoOn() override;
  void Meet() override;
  std::vector<int32_t> Unmet() override;
  void Leave() override;
  bool HaveAllLeft() override;
  // Its process leaves, after Leave(). The seat parts once those that it hears of have what only it
  // knows, and what it has published counts if it moves; at `latest` in any case. A seat that was
  // silent for some times engine_grace, while this one listened, is not waited for.
  void Depart(Time latest);
  bool has_parted() const { return has_parted_; }
  // It leads, and a version is under way.
  bool IsBusy() const { return reign_ != nullptr && ledger_.undecided().has_value(); }

  // Without whom no majority answers, and for how long: those that are silent. Empty: a majority
  // does.
  struct Silence {
    int32_t member = -1;
    Time since = 0;
  };
  std::vector<Silence> HeldUpBy(Time now) const;

  // ---- Of the network: whole letters, in order for each pair. Advance after the last that has
  // come; it returns when to come again at the latest.
  void OnLetter(int32_t from, std::span<const std::byte> bytes, Time now);
  // Of what may come now: known from the beginning, but for the state of a trainer, which only a
  // seat that needs one takes, of whatever length.
  size_t LongestLetterBytes() const;
  // `member` is dead, and all that it has sent was given to OnLetter before.
  void OnLoss(int32_t member) override {
    lost_[static_cast<size_t>(member)] = true;
    asked_ = 0;  // whom it has waited for in vain was not slow
  }
  Time Advance(Time now);
  // What is to be sent, in this order.
  std::vector<Sealed> TakePosts();

  // For checkers.
  const Ledger& ledger() const { return ledger_; }
  const Pieces& pieces() const { return pieces_; }
  bool leads() const { return reign_ != nullptr; }
  uint64_t attempt() const { return attempt_; }
  // Versions that it had from an earlier attempt when it came to lead.
  uint64_t adopted() const { return adopted_; }
  uint64_t fired() const { return fired_ + (reign_ != nullptr ? reign_->fired() : 0); }

 private:
  // The leader's last beat.
  struct View {
    uint64_t attempt = 0, executed = 0, number = 0, over = 0;
    bool quiet = false, is_cut_off = false;
    std::vector<uint64_t> standings;
    uint64_t ask = 0, ask_version = 0;
    std::vector<uint64_t> needs, mets, silences;
  };

  void CountFromLast();
  uint64_t Arrive();
  bool HasLeft(int32_t member) const;
  bool HasFinished(int32_t member) const;
  bool IsCutOff() const;
  bool IsSettled() const;
  bool HearsOfOthers() const;
  bool IsLedAsFar() const;
  void Part();
  bool AreAllInNeed(const View& view) const;
  bool IsSound(const Letter& letter) const;
  void Handle(int32_t from, Letter letter, Time now);
  void OnBeat(Letter beat);
  void OnEntry(Letter entry);
  void OnGift(int32_t from, Letter gift);
  void OnAsk(int32_t from, const Letter& ask);
  void Follow(uint64_t attempt);
  void LearnLeader(int32_t from, Time now);
  void DecideUpTo(uint64_t executed);
  void Ask();
  void LeadIfChosen();
  bool IsInDoubt() const;
  void NoteKnown(const Letter& letter);
  void Lead();
  void SendState(int32_t to);
  void SendPieces();
  void NoteDecided();
  bool Drain(Time now);
  Time Patience() const;

  Options options_;
  RoundMemory::Shape shape_;
  RoundLayout layout_;
  RoundMemory geometry_;  // not mapped: where things lie in a result
  size_t longest_bytes_;
  Ledger ledger_;
  Pieces pieces_;
  Outbox outbox_{&attempt_, &known_, &ledger_};
  std::deque<Post> local_;  // to this seat itself
  std::vector<Sealed> sealed_;

  uint64_t attempt_ = 1;
  uint64_t known_ = 0;     // versions that are decided, as anybody has told it,
  uint64_t known_in_ = 0;  // and the earliest attempt that they were decided by
  int32_t leader_ = 0;     // -1: not known yet
  int32_t voted_for_ = 0;
  bool asks_ = false;
  std::vector<bool> votes_;
  std::unique_ptr<Reign> reign_;
  uint64_t fired_ = 0;  // in earlier reigns
  uint64_t adopted_ = 0;
  std::vector<bool> lost_;
  Time silent_ = 0, looked_at_ = 0;
  Time listens_since_ = 0;  // without having been stopped itself
  int asked_ = 0;           // since a version was decided,
  uint64_t asked_at_ = 0;   // which was the last
  bool has_heard_ = true;   // anybody, since it asked last
  std::vector<Time> heard_at_;
  Time led_at_ = 0;  // when it heard of a leader last

  uint64_t step_ = 0, read_ = 0, standing_ = 0, tries_ = 0;
  uint64_t told_standing_ = 0;
  uint64_t need_ = 0;          // see Letter::need
  uint64_t given_number_ = 0;  // the beat that asked for what it gave last
  Gift gift_;                  // of version 0: none
  int all_in_need_ = 0;        // beats running that have told so
  uint64_t met_ = 0;
  bool is_overdue_ = false, has_left_ = false, has_parted_ = false;
  Time departs_by_ = kNever;
  Time moved_at_ = 0;  // when a version was decided last, or it was to leave
  Time max_wait_;
  View view_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_SEAT_H_
