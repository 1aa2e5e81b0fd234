// The versions that a replica knows: those that are committed, the last ones with their results,
// and what it has accepted for the next.
//
//   event, in term a                                executed   accepted for executed + 1
//   Propose(version executed + 1)                   same       that version, of term a
//   Propose(the same, of a later attempt)           same       that attempt, of term a
//   AcceptNoOp: the leader proposes nothing         same       the no-op entry, of term a
//   AcceptNoOp(attempt): the last version settles   same       that no-op entry, of that attempt
//   Commit(the accepted version, of term a)         + 1        the no-op entry, of term a
//   Learn(version executed + 1), committed          + 1        the no-op entry, of term 0
//   Skip to a version                               that one   the no-op entry, of term 0
//   GoOnFrom(a later version), committed            that one   the no-op entry, of term 0
//
// Invariant: what a majority of replicas has accepted, of term a, every leader of a later term has:
// it is elected by a majority that knows and has accepted no more than it does (IsUpToDate). So a
// version is committed once, whichever replica stops, and a replica that comes back to it late
// finds it fenced. The no-op entry of term a counts as well: a version proposed before a, and not
// committed, never will be. A later leader also has a no-op entry by which the last version is
// settled (settlement.h).
#ifndef COVEY_CORE_REPLICATED_REPLICATED_LOG_H_
#define COVEY_CORE_REPLICATED_REPLICATED_LOG_H_

#include <compare>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/base/counted_bytes.h"

namespace covey {

// The proposal that an entry was made by, whichever term proposes it again: its leader's term, and
// the number of the attempt in that term. Entries that were made alike have the same bytes.
struct Origin {
  uint64_t term = 0;  // 0: unknown
  uint64_t attempt = 0;

  auto operator<=>(const Origin&) const = default;
};

// A role with this bit: the hub hands on all pieces between the member and others.
inline constexpr uint64_t kByHub = uint64_t{1} << 32;

// A version, and the state after it.
struct ReplicatedEntry {
  uint64_t version = 0;
  Origin made;
  std::vector<uint64_t> roles;     // by member, in making it: of ShardPlan, and kByHub
  int32_t hub = -1;                // hands on the pieces of members by it; -1: there are none
  std::vector<uint64_t> consumed;  // by member: the last of its steps in any version so far
  std::vector<uint64_t> missing;   // by member: Suspicion::missing
  Slice body;                      // record, sum: as in the result buffers of core/partial/memory.h
};

// How far a replica is.
struct Progress {
  uint64_t executed = 0;
  uint64_t accepted_term = 0;  // the term of what it has accepted,
  uint64_t attempt = 0;        // and the attempt, if it was made in that term
  bool has_entry = false;      // and that is a version, not the no-op entry

  bool operator==(const Progress&) const = default;
  // A replica that is as far as `mine` may vote for one that is as far as `theirs`.
  static bool IsUpToDate(const Progress& mine, const Progress& theirs);
};

class ReplicatedLog {
 public:
  ReplicatedLog(int32_t size, uint64_t length)
      : length_(length),
        consumed_(static_cast<size_t>(size)),
        missing_(static_cast<size_t>(size)) {}

  uint64_t executed() const { return progress_.executed; }
  const Progress& progress() const { return progress_; }
  const std::optional<ReplicatedEntry>& uncommitted() const { return uncommitted_; }
  // After the last committed version.
  const std::vector<uint64_t>& consumed() const { return consumed_; }
  const std::vector<uint64_t>& missing() const { return missing_; }
  // The lowest version from which on all committed ones are in the log.
  uint64_t first() const { return executed() + 1 - committed_.size(); }
  // The origin of the last committed version.
  const Origin& made() const { return made_; }
  // A committed version; null: it is not in the log.
  const ReplicatedEntry* Find(uint64_t version) const;

  // REQUIRES: entry.version == executed() + 1.
  void Propose(ReplicatedEntry entry, uint64_t term);
  void Learn(ReplicatedEntry entry);
  // The accepted entry is of this term from now on.
  void Repropose(uint64_t term);
  // The accepted entry is a no-op; see settled().
  void AcceptNoOp(uint64_t term, uint64_t attempt = 0, uint64_t settled = 0);
  // The no-op entry that it has accepted says that members that have finished so often have gone on
  // from the last version; 0: it does not.
  uint64_t settled() const { return settled_; }
  // Models: a committed version, with which a replica that is behind the log goes on. REQUIRES:
  // entry.version > executed().
  void GoOnFrom(ReplicatedEntry entry);
  // REQUIRES: uncommitted().
  void Commit();
  // `after`: a version that is committed, without its result.
  void Skip(ReplicatedEntry after);

 private:
  void Append(ReplicatedEntry entry);

  uint64_t length_;
  Progress progress_;
  Origin made_;
  uint64_t settled_ = 0;
  std::vector<uint64_t> consumed_, missing_;
  std::deque<ReplicatedEntry> committed_;  // the last ones, in order
  std::optional<ReplicatedEntry> uncommitted_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_REPLICATED_LOG_H_
