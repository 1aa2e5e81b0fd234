// A replica's formations: of the version that comes next, and what has come early of one after it.
//
//   event                                     becomes
//   proposal of executed + 1                  the current formation, in place of any other
//   proposal of executed + 2                  kept until executed + 1 is committed here
//   piece of the current formation            it takes the piece
//   piece of a later origin                   kept, in place of those of earlier origins
//   piece of an earlier origin                dropped: that attempt is over
//   entry that others have whole              the current formation, which fetches what it lacks
//   the current one is whole, in its term     accepted (replicated-W12)
//   the same, known to be committed           committed, in whatever term
//   models: others have it, and what they     whole without the mean (replicated-W20)
//   send does not come
//
// Pairs of members have no common order: a peer's pieces may come before the leader's proposal, and
// those of the next version before this one is whole here.
//
// A formation that was told in an earlier term keeps its shards, and is not accepted before the
// leader of this term tells it again. Sans-IO; one thread.
#ifndef COVEY_CORE_REPLICATED_FORMATIONS_H_
#define COVEY_CORE_REPLICATED_FORMATIONS_H_

#include <optional>
#include <utility>
#include <vector>

#include "core/replicated/contributions.h"
#include "core/replicated/formation.h"
#include "core/replicated/replicated_log.h"
#include "core/replicated/sum_fetcher.h"

namespace covey {

class Formations {
 public:
  // `log`: of this replica; `pending`: what its rank contributes. Both outlive this.
  Formations(const Formation::Site& site, const ReplicatedLog* log, Contributions* pending,
             Time patience);

  // The leader of `term` proposes it; the others make it at the same time.
  void Propose(ReplicatedEntry entry, uint64_t term, Time now);
  // The leader of `term` says that `holders` have it whole, by member.
  void Complete(ReplicatedEntry entry, uint64_t term, bool is_committed,
                const std::vector<bool>& holders, Time now);
  // Others have the current one whole.
  void AddHolders(const std::vector<bool>& holders);
  void OnPiece(int32_t from, ReplicaMessage piece, Time now);
  void OnFetch(int32_t from, const ReplicaMessage& fetch);
  void OnLoss(int32_t member);
  // The log has moved in `term`, or more is known to be committed.
  void OnCommitted(const KnownCommitted& known, uint64_t term, Time now);
  // This replica leads from now on: others propose nothing to it.
  void Drop();
  void Advance(Time now);

  struct Whole {
    ReplicatedEntry entry;
    bool is_committed = false;
  };
  // The next version, once it is whole here and may be accepted in `term`.
  std::optional<Whole> Take(uint64_t term);
  // The current formation, made by the leader of `term`, is whole here.
  bool IsWhole(uint64_t term) const {
    return current_.has_value() && current_->term == term && current_->formation.is_whole();
  }
  // The pieces that have come of the current formation, and which that is.
  uint64_t PiecesOf(Origin* made) const;
  // The current formation is of `term`, and has got a piece since then.
  bool IsForming(uint64_t term, Time since) const;

 private:
  struct Current {
    Formation formation;
    SumFetcher fetcher;
    uint64_t term = 0;
    bool is_committed = false;
    bool is_fetching = false;
    Time moved_at = 0;  // a piece came
    uint64_t pieces = 0;
    bool is_told_whole = false;  // by a leader
    Time waited = 0;             // since then, and since a piece came
  };

  void Begin(ReplicatedEntry entry, uint64_t term, Time now);
  int32_t SumFor(const ReplicatedEntry& entry) const;
  void Contribute();
  bool IsCurrent(const Origin& made) const {
    return current_.has_value() && current_->formation.made() == made;
  }

  const Formation::Site site_;
  EntryBuffers buffers_;
  const ReplicatedLog* log_;
  Contributions* pending_;
  Time patience_;
  Time looked_at_ = 0;
  std::optional<Current> current_;
  std::optional<std::pair<ReplicatedEntry, uint64_t>> next_;  // and its term
  Origin early_made_;
  std::vector<QueuedMessage> early_;  // its pieces, with their senders
  size_t early_bytes_ = 0;
  int vain_ = 0;  // models: later versions have come before those fetched were whole, so often
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_FORMATIONS_H_
