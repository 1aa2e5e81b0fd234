// A replica's part in versions of models, for its trainer: as Rounds has it
// (core/partial/rounds.cc), with means that lie in its own log.
#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/replicated/replica.h"

namespace covey {

void Replica::Begin() { base_.assign(open(), open() + layout_.length_bytes()); }

uint64_t Replica::OfferAgain(std::span<const double> hypers) {
  offered_.assign(open(), open() + layout_.length_bytes());
  const uint64_t before = step_;
  Publish(hypers);
  offered_step_ = step_ > before ? step_ : 0;
  return step_;
}

// The version to merge with. A member that was superseded goes on from the newest of which it has a
// mean, of those from the last version of all on.
const ReplicatedEntry& Replica::EntryFor(uint64_t version, uint64_t step) const {
  const uint64_t last = log_.executed();
  const ReplicatedEntry* newest = log_.Find(last);
  CHECK(newest != nullptr, "models: the last version is in the log");
  // partial-W12a: a rank that was superseded goes on from the newest version.
  if (!shape_.models.HasSuperseded(step, last)) {
    const ReplicatedEntry* entry = log_.Find(version);
    return entry == nullptr ? *newest : *entry;
  }
  for (version = last; version >= std::max(log_.first(), shape_.models.LastSync(last)); --version)
    if (log_.Find(version)->body.size() > geometry_.record_bytes()) return *log_.Find(version);
  return *newest;
}

void Replica::Merge(uint64_t version, std::span<void* const> to, Merged* merged) {
  const Contributions::Pending* own = pending_.model();
  // replicated-W27: all that it had may be dropped, and a later version be the last by now.
  CHECK(own != nullptr || IsSettled() || dropped() > 0, "a rank merges what it has published");
  const uint64_t step = own == nullptr ? 0 : own->content.last;
  if (log_.executed() == 0) return KeepOwn(to, merged);
  const ReplicatedEntry& entry = EntryFor(version, step);
  ReadRecord(geometry_, entry.body.data(), &merged->record);
  std::vector<const std::byte*> means(static_cast<size_t>(shape_.size));
  // An entry has one mean alone: the one that a merge asks for.
  if (entry.body.size() > geometry_.record_bytes())
    std::fill(means.begin(), means.end(), entry.body.data() + geometry_.record_bytes());
  // replicated-W21: all end with the final mean. A model that is not in it was in one before.
  MergeOf member{.self = options_.self,
                 .own = {.step = step},
                 .takes = entry.version == flushed_ && merged->record.header.final};
  const uint64_t taken = log_.consumed()[static_cast<size_t>(options_.self)];
  // partial-W12b: progress counts only if no version has had the model, and what was offered of it,
  // and taken, counts from there on.
  const bool has_offered = offered_step_ > 0 && offered_step_ < step && taken >= offered_step_;
  const std::vector<std::byte>& base = has_offered ? offered_ : base_;
  if (taken < step && !base.empty()) member.base = base.data();
  const std::byte* model = own == nullptr ? open() : own->sum.data();
  MergeRecorded(geometry_, *options_.kernels, member, model, means, to, merged);
  NoteBase(*merged, to);
  const uint64_t newest = executed();
  if (merged->late && shape_.models.LastSync(newest) >= step) step_ = std::max(step_, newest);
  merged->step = step_;
}

// The rank has given up in finish() before there was any version: its own model stands.
void Replica::KeepOwn(std::span<void* const> to, Merged* merged) {
  const std::byte* own = pending_.model() == nullptr ? open() : pending_.model()->sum.data();
  for (size_t i = 0; i < to.size(); ++i)
    if (to[i] != nullptr)
      std::memcpy(to[i], own + layout_.offsets_bytes()[i], layout_.lengths_bytes()[i]);
  *merged = {.late = true, .step = step_, .is_of_both = true};
  merged->record.contributions.resize(static_cast<size_t>(shape_.size));
  merged->record.missing.resize(static_cast<size_t>(shape_.size));
  NoteBase(*merged, to);
}

// The model to train on from here.
void Replica::NoteBase(const Merged& merged, std::span<void* const> to) {
  offered_step_ = 0;
  if (!merged.is_of_both) {
    base_.assign(merged.mean, merged.mean + layout_.length_bytes());
    return;
  }
  base_.clear();
  if (std::find(to.begin(), to.end(), nullptr) != to.end()) return;
  base_.resize(layout_.length_bytes());
  for (size_t i = 0; i < to.size(); ++i)
    std::memcpy(base_.data() + layout_.offsets_bytes()[i], to[i], layout_.lengths_bytes()[i]);
}

}  // namespace covey
