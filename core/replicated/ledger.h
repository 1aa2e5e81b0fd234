// The versions that a seat knows: those that are decided, the last ones with their results, and
// what it keeps for the next.
//
//   event, in attempt a                             executed   kept for executed + 1
//   Propose(version executed + 1)                   same       that version, of attempt a
//   Void: the leader says that nothing is proposed  same       nothing, of attempt a
//   Decide(what is kept, of attempt a)              + 1        nothing, of attempt a
//   Learn(version executed + 1), decided            + 1        nothing, of attempt 0
//   Skip to a version                               that one   nothing, of attempt 0
//
// Invariant: what a majority of seats keeps, of attempt a, every leader of a later attempt has:
// it is elected by a majority that knows and keeps no more than it does (MayFollow). So a version
// is decided once, whoever stops, and whoever comes back to it late finds it fenced. `nothing` of
// attempt a counts as well: what was proposed before a, and is not decided, never will be.
#ifndef COVEY_CORE_REPLICATED_LEDGER_H_
#define COVEY_CORE_REPLICATED_LEDGER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/base/wire.h"

namespace covey {

// A version, and what is true after it.
struct LedgerEntry {
  uint64_t version = 0;
  std::vector<uint64_t> consumed;  // by member: the last of its steps in any version so far
  std::vector<uint64_t> missing;   // by member: Attendance::missing
  Bytes body;                      // record, sum: as in the result buffers of core/partial/memory.h
};

// How far a seat is.
struct Progress {
  uint64_t executed = 0;
  uint64_t kept = 0;       // the attempt of what it keeps
  bool has_entry = false;  // and that is a version, not nothing

  // A seat that is as far as `mine` may vote for one that is as far as `theirs`.
  static bool MayFollow(const Progress& mine, const Progress& theirs);
};

class Ledger {
 public:
  Ledger(int32_t size, uint64_t log)
      : log_(log), consumed_(static_cast<size_t>(size)), missing_(static_cast<size_t>(size)) {}

  uint64_t executed() const { return progress_.executed; }
  const Progress& progress() const { return progress_; }
  const std::optional<LedgerEntry>& undecided() const { return undecided_; }
  // After the last decided version.
  const std::vector<uint64_t>& consumed() const { return consumed_; }
  const std::vector<uint64_t>& missing() const { return missing_; }
  // The lowest version from which on all decided ones are in the log.
  uint64_t first() const { return executed() + 1 - decided_.size(); }
  // A decided version; null: it is not in the log.
  const LedgerEntry* Find(uint64_t version) const;

  // REQUIRES: entry.version == executed() + 1.
  void Propose(LedgerEntry entry, uint64_t attempt);
  void Learn(LedgerEntry entry);
  // What is kept is of this attempt from now on.
  void Restamp(uint64_t attempt) { progress_.kept = attempt; }
  void Void(uint64_t attempt);
  // REQUIRES: undecided().
  void Decide();
  // `after`: a version that is decided, without its result.
  void Skip(LedgerEntry after);

 private:
  void Append(LedgerEntry entry);

  uint64_t log_;
  Progress progress_;
  std::vector<uint64_t> consumed_, missing_;
  std::deque<LedgerEntry> decided_;  // the last ones, in order
  std::optional<LedgerEntry> undecided_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_LEDGER_H_
