#include "core/replicated/replicated_log.h"

#include <tuple>
#include <utility>

#include "core/base/check.h"

namespace covey {

bool Progress::IsUpToDate(const Progress& mine, const Progress& theirs) {
  // replicated-W7: a leader knows and has accepted at least as much as each of its voters: an entry
  // that a majority has accepted is never lost.
  return std::tuple(theirs.executed, theirs.accepted_term, theirs.attempt, theirs.has_entry) >=
         std::tuple(mine.executed, mine.accepted_term, mine.attempt, mine.has_entry);
}

const ReplicatedEntry* ReplicatedLog::Find(uint64_t version) const {
  if (committed_.empty() || version < committed_.front().version || version > executed())
    return nullptr;
  return &committed_[version - committed_.front().version];
}

void ReplicatedLog::Propose(ReplicatedEntry entry, uint64_t term) {
  CHECK(entry.version == executed() + 1, "versions come in order");
  uncommitted_ = std::move(entry);
  settled_ = 0;
  progress_.has_entry = true;
  Repropose(term);
}

void ReplicatedLog::Repropose(uint64_t term) {
  progress_.accepted_term = term;
  // In its own term a later attempt may replace it; in a later one none does.
  progress_.attempt = uncommitted_->made.term == term ? uncommitted_->made.attempt : 0;
}

void ReplicatedLog::Learn(ReplicatedEntry entry) {
  CHECK(entry.version == executed() + 1, "versions come in order");
  Append(std::move(entry));
  progress_.accepted_term = 0;
}

void ReplicatedLog::GoOnFrom(ReplicatedEntry entry) {
  CHECK(entry.version > executed(), "versions come in order");
  committed_.clear();
  Append(std::move(entry));
  progress_.accepted_term = 0;
}

void ReplicatedLog::AcceptNoOp(uint64_t term, uint64_t attempt, uint64_t settled) {
  uncommitted_.reset();
  settled_ = settled;
  progress_.accepted_term = term;
  progress_.attempt = attempt;
  progress_.has_entry = false;
}

void ReplicatedLog::Commit() {
  CHECK(uncommitted_.has_value(), "what is committed is known");
  Append(std::move(*uncommitted_));
}

void ReplicatedLog::Append(ReplicatedEntry entry) {
  uncommitted_.reset();
  settled_ = 0;
  progress_.has_entry = false;
  progress_.attempt = 0;
  progress_.executed = entry.version;
  made_ = entry.made;
  consumed_ = entry.consumed;
  missing_ = entry.missing;
  committed_.push_back(std::move(entry));
  // replicated-W10: the last versions are kept for replicas and trainers that are behind.
  if (committed_.size() > length_) committed_.pop_front();
}

void ReplicatedLog::Skip(ReplicatedEntry after) {
  committed_.clear();
  uncommitted_.reset();
  settled_ = 0;
  progress_ = {.executed = after.version};
  made_ = after.made;
  consumed_ = std::move(after.consumed);
  missing_ = std::move(after.missing);
}

}  // namespace covey
