// What the leader of an attempt does (replicated-W4, replicated-W5, replicated-W7): it counts who
// has come, makes versions, and lets each seat keep them; a version is decided once a majority
// does.
//
//   state      until                                                        then
//   taking     a majority keeps the version that earlier attempts have      voiding
//              left, or knows it as decided; at once when there is none
//   voiding    a majority keeps nothing, of this attempt                    counting
//   counting   the next version may fire (Tally)                            proposing
//   proposing  a majority keeps that version                                decided; counting
//
// Cut off is a leader that counts, and knows that more is decided than it has: who lives has voted
// for it, so only ranks that have left or died have that. It fires nothing: it would decide again.
//
// To a seat at most one version and two beats are under way that it has not answered: one that is
// stopped costs its peers nothing but these. Letters stand in the order they are sent in; those to
// the leader's own seat too.
#ifndef COVEY_CORE_REPLICATED_REIGN_H_
#define COVEY_CORE_REPLICATED_REIGN_H_

#include <vector>

#include "core/replicated/ledger.h"
#include "core/replicated/letter.h"
#include "core/replicated/outbox.h"
#include "core/replicated/tally.h"

namespace covey {

class Reign {
 public:
  struct Options {
    int32_t self = 0;
    Time grace = 0;  // engine_grace: a seat that is not heard of for so long is taken to be stopped
    Tally::Options tally;
  };

  // `ledger` is the seat's own, `outbox` where letters go; both outlive the reign.
  Reign(const Options& options, const RoundMemory::Shape& shape, const RoundLayout& layout,
        uint64_t attempt, Ledger* ledger, Outbox* outbox);
  // The first attempt: all agree on it, and nothing is left by others.
  void BeginFirst() { tally_.Open(*ledger_); }

  void OnState(int32_t from, const Letter& state, Time now);
  void OnPiece(int32_t from, Letter piece);
  // Returns when to come again at the latest.
  Time Advance(const std::vector<bool>& lost, Time now);

  void set_grace(Time grace) { tally_.set_grace(grace); }
  uint64_t fired() const { return fired_; }
  // How long the seat was not heard of; 0: the leader's own, and those that are dead.
  Time SilenceOf(int32_t seat, const std::vector<bool>& lost, Time now) const;
  // Its seat leaves: what is decided now all are to have, and to answer one more beat.
  void BeginLast();
  bool has_begun_last() const { return has_begun_last_; }
  // Those have that were heard of, or not yet listened to for so long.
  bool AreAllTold(const std::vector<bool>& lost, Time listens_since, Time now) const;

 private:
  struct Seated {
    bool is_known = false;  // it has answered in this attempt
    Progress progress;
    Time heard_at = 0;
    uint64_t sent = 0;  // the version that is under way to it
    uint64_t beats = 0, answered = 0;
    Time next_beat = 0;
    bool is_due = true;  // there is news
    uint64_t last_beat = 0;
    uint64_t applied = 0, need = 0, met = 0;
  };

  void Settle(const std::vector<bool>& lost);
  bool IsCutOff() const;
  uint64_t StandingOf(int32_t seat, const std::vector<bool>& lost);
  bool Keeps(int32_t seat) const;
  void Serve(int32_t seat);
  void SendEntry(int32_t seat, const LedgerEntry& entry);
  void Beat(const std::vector<bool>& lost, Time now, Time* until);
  void NoteNews(const std::vector<bool>& lost);
  void TakeEarly();
  void FindGiver(const std::vector<bool>& lost, const std::vector<bool>& heard, Time now);

  Options options_;
  int32_t size_;
  uint64_t attempt_;
  Ledger* ledger_;
  Outbox* outbox_;
  Tally tally_;
  std::vector<Seated> seats_;
  std::vector<Post> early_;  // pieces that came before the tally was open; from whom
  std::vector<uint64_t> news_;
  int32_t needy_ = -1, giver_ = -1;  // who gets a snapshot, from whom
  Time given_since_ = 0;
  Time begun_at_ = 0;
  uint64_t fired_ = 0;
  bool has_begun_last_ = false;
  uint64_t last_executed_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_REIGN_H_
