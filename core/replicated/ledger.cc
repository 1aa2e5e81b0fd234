#include "core/replicated/ledger.h"

#include <tuple>
#include <utility>

#include "core/base/check.h"

namespace covey {

bool Progress::MayFollow(const Progress& mine, const Progress& theirs) {
  // replicated-W7: a leader knows and keeps at least as much as each of its voters: an entry that a
  // majority keeps is never lost.
  return std::tuple(theirs.executed, theirs.kept, theirs.has_entry) >=
         std::tuple(mine.executed, mine.kept, mine.has_entry);
}

const LedgerEntry* Ledger::Find(uint64_t version) const {
  if (decided_.empty() || version < decided_.front().version || version > executed())
    return nullptr;
  return &decided_[version - decided_.front().version];
}

void Ledger::Propose(LedgerEntry entry, uint64_t attempt) {
  CHECK(entry.version == executed() + 1, "versions come in order");
  undecided_ = std::move(entry);
  progress_.kept = attempt;
  progress_.has_entry = true;
}

void Ledger::Learn(LedgerEntry entry) {
  CHECK(entry.version == executed() + 1, "versions come in order");
  Append(std::move(entry));
  progress_.kept = 0;
}

void Ledger::Void(uint64_t attempt) {
  undecided_.reset();
  progress_.kept = attempt;
  progress_.has_entry = false;
}

void Ledger::Decide() {
  CHECK(undecided_.has_value(), "what is decided is known");
  Append(std::move(*undecided_));
}

void Ledger::Append(LedgerEntry entry) {
  undecided_.reset();
  progress_.has_entry = false;
  progress_.executed = entry.version;
  consumed_ = entry.consumed;
  missing_ = entry.missing;
  decided_.push_back(std::move(entry));
  // replicated-W10: the last versions are kept for seats and trainers that are behind.
  if (decided_.size() > log_) decided_.pop_front();
}

void Ledger::Skip(LedgerEntry after) {
  decided_.clear();
  undecided_.reset();
  progress_ = {.executed = after.version};
  consumed_ = std::move(after.consumed);
  missing_ = std::move(after.missing);
}

}  // namespace covey
