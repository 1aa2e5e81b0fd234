#include "core/replicated/formations.h"

#include <algorithm>

#include "core/partial/merge.h"

namespace covey {
namespace {

// The pieces of one version at one member: contributions of its host, sums of hosts, the sum; and
// where there are few shards, one from each member, at each of two stages.
constexpr size_t kSums = 4, kStages = 2;
// So many times as long as a holder has for a shard, a mean may stand still. Models.
constexpr Time kMostWaits = 8;
// So many versions may go by while it is fetched.
constexpr int kMostVain = 4;

size_t MostEarlyBytes(const Formation::Site& site) {
  const size_t length = site.geometry->layout().length_bytes();
  const size_t shard = std::min(length, std::max(site.limits.least_bytes, site.limits.most_bytes));
  return kSums * length + kStages * static_cast<size_t>(site.geometry->size()) * shard;
}

}  // namespace

Formations::Formations(const Formation::Site& site, const ReplicatedLog* log,
                       Contributions* pending, Time patience)
    : site_(site), log_(log), pending_(pending), patience_(patience) {}

void Formations::Begin(ReplicatedEntry entry, uint64_t term, Time now) {
  const auto size = static_cast<int32_t>(entry.roles.size());
  const int32_t sum = SumFor(entry);
  current_.emplace(Current{.formation = Formation(site_, std::move(entry), sum, &buffers_),
                           .fetcher = SumFetcher(size),
                           .term = term,
                           .moved_at = now});
  if (early_made_ > current_->formation.made()) return;
  std::vector<QueuedMessage> early = std::exchange(early_, {});
  early_bytes_ = 0;
  // replicated-W13: pieces of other attempts are not those of this one.
  if (early_made_ != current_->formation.made()) return;
  for (QueuedMessage& one : early) current_->formation.OnPiece(one.to, std::move(one.message));
}

// With models: the mean of this member's group. A member that a version of all has superseded needs
// one to go on from: that of the first group where its own has none (partial-W12a).
int32_t Formations::SumFor(const ReplicatedEntry& entry) const {
  const ModelRule& models = site_.geometry->models();
  if (!models.on()) return 0;
  RoundRecord record;
  ReadRecord(*site_.geometry, entry.body.data(), &record);
  const std::vector<int32_t> sums = site_.geometry->SumsOf(entry.version, record.header.final);
  const int32_t own = sums[static_cast<size_t>(site_.self)];
  const Contributions::Pending* model = pending_->model();
  const uint64_t step = model == nullptr ? 0 : model->content.last;
  const bool is_any = record.header.leader >= 0;
  if (!is_any || CountOf(record, sums, own) > 0 || !models.HasSuperseded(step, entry.version))
    return own;
  return FirstGroup(record, sums);
}

void Formations::Propose(ReplicatedEntry entry, uint64_t term, Time now) {
  const uint64_t next = log_->executed() + 1;
  if (entry.version == next + 1) {
    next_.emplace(std::move(entry), term);
    return;
  }
  if (entry.version != next || IsCurrent(entry.made)) return;
  Begin(std::move(entry), term, now);
  Contribute();
}

void Formations::Contribute() {
  const Contribution own = current_->formation.own();
  if (own.count == 0) return;
  const Slice content = pending_->Propose(own);
  if (!content.empty()) current_->formation.Contribute(content);
}

void Formations::Complete(ReplicatedEntry entry, uint64_t term, bool is_committed,
                          const std::vector<bool>& holders, Time now) {
  const bool is_new = !IsCurrent(entry.made);
  if (is_new && current_.has_value() && current_->is_told_whole) ++vain_;
  if (is_new) {
    Begin(std::move(entry), term, now);
    // No member sends it anything unasked.
    current_->is_fetching = true;
  }
  // Another leader names other holders, and they may be asked again.
  if (current_->term != term) current_->fetcher = SumFetcher(static_cast<int32_t>(holders.size()));
  current_->term = term;
  current_->is_committed |= is_committed;
  if (!std::exchange(current_->is_told_whole, true)) current_->waited = 0;
  AddHolders(holders);
  // replicated-W20: nor does a rank wait for ever that fetches more slowly than versions are made.
  if (site_.geometry->models().on() && is_committed && vain_ > kMostVain)
    current_->formation.GiveUp();
  // replicated-W20: where no member of its group has the mean, they make it now.
  if (is_new && site_.geometry->models().on() && !current_->fetcher.HasHolder()) Contribute();
}

void Formations::AddHolders(const std::vector<bool>& holders) {
  if (!current_.has_value()) return;
  std::vector<bool> of_sum = holders;
  for (size_t i = 0; i < of_sum.size(); ++i)
    of_sum[i] = holders[i] && current_->formation.IsOf(static_cast<int32_t>(i));
  current_->fetcher.AddHolders(of_sum);
  // The mean of another group comes to no rank unasked.
  current_->is_fetching |= !current_->formation.IsOf(site_.self);
}

void Formations::OnPiece(int32_t from, ReplicaMessage piece, Time now) {
  // replicated-W13: a piece of another attempt, or of another version, is none of this one.
  if (IsCurrent(piece.made)) {
    current_->moved_at = now;
    current_->waited = 0;
    ++current_->pieces;
    if (piece.stage == ShardStage::kSummed)
      current_->fetcher.OnSummed(from, static_cast<size_t>(piece.shard), now);
    return current_->formation.OnPiece(from, std::move(piece));
  }
  const std::optional<ReplicatedEntry>& accepted = log_->uncommitted();
  const bool is_over = piece.version <= log_->executed() || piece.version > log_->executed() + 2 ||
                       piece.made < early_made_ ||
                       (accepted.has_value() && piece.made <= accepted->made) ||
                       (current_.has_value() && piece.made < current_->formation.made());
  if (is_over) return;
  if (piece.made > early_made_) {
    early_.clear();
    early_bytes_ = 0;
  }
  early_made_ = piece.made;
  early_bytes_ += piece.body.size();
  if (early_bytes_ <= MostEarlyBytes(site_)) early_.push_back({from, std::move(piece)});
}

void Formations::OnFetch(int32_t from, const ReplicaMessage& fetch) {
  const std::optional<ReplicatedEntry>& accepted = log_->uncommitted();
  const ReplicatedEntry* entry = log_->Find(fetch.version);
  if (entry == nullptr && accepted.has_value()) entry = &*accepted;
  const uint64_t length = site_.geometry->layout().length_bytes();
  const bool is_sound =
      fetch.length_bytes <= length && fetch.offset_bytes <= length - fetch.length_bytes;
  // replicated-W20: a replica may have the record of a version without the mean.
  if (entry != nullptr && entry->body.size() < site_.geometry->record_bytes() + length) return;
  if (entry == nullptr || entry->made != fetch.made || !is_sound) return;
  ReplicaMessage piece{.kind = ReplicaMessage::Kind::kPiece,
                       .version = entry->version,
                       .made = entry->made,
                       .stage = ShardStage::kSummed,
                       .shard = fetch.shard};
  piece.body =
      entry->body.Part(site_.geometry->record_bytes() + fetch.offset_bytes, fetch.length_bytes);
  site_.outbox->Send(from, std::move(piece));
}

void Formations::OnLoss(int32_t member) {
  if (current_.has_value()) current_->fetcher.OnLoss(member);
}

void Formations::OnCommitted(const KnownCommitted& known, uint64_t term, Time now) {
  const uint64_t executed = log_->executed();
  if (current_.has_value() && current_->formation.version() <= executed) current_.reset();
  if (current_.has_value() && current_->formation.version() == known.version)
    current_->is_committed |= current_->formation.made() == known.made;
  if (!next_.has_value() || next_->first.version > executed + 1) return;
  auto [entry, told] = *std::exchange(next_, std::nullopt);
  if (told == term) Propose(std::move(entry), told, now);
}

void Formations::Drop() {
  current_.reset();
  next_.reset();
}

void Formations::Advance(Time now) {
  const Time since = std::min(now - std::exchange(looked_at_, now), patience_);
  if (!current_.has_value() || current_->formation.is_whole()) return;
  // replicated-W20: the rank's own model stands where those that have the mean do not send it.
  if (site_.geometry->models().on() && current_->is_told_whole &&
      (current_->waited += since) > kMostWaits * patience_)
    return current_->formation.GiveUp();
  // replicated-W15: what a lost member was to send is fetched of those that have it.
  if (!current_->fetcher.HasHolder()) return;
  current_->is_fetching |= now - current_->moved_at > patience_;
  if (current_->is_fetching)
    current_->fetcher.Advance(current_->formation, site_.outbox, patience_, now);
}

std::optional<Formations::Whole> Formations::Take(uint64_t term) {
  if (!current_.has_value()) return std::nullopt;
  const uint64_t version = current_->formation.version();
  // replicated-W20: models: one that is behind the log goes on with the last version alone.
  const bool is_later =
      site_.geometry->models().on() && current_->is_committed && version > log_->executed();
  if (version != log_->executed() + 1 && !is_later) return std::nullopt;
  // replicated-W12: an entry is accepted once its whole sum is here, in the term it was told in.
  if (!current_->formation.is_whole()) return std::nullopt;
  if (!current_->is_committed && current_->term != term) return std::nullopt;
  Whole whole{.entry = current_->formation.Take(), .is_committed = current_->is_committed};
  current_.reset();
  vain_ = 0;
  return whole;
}

uint64_t Formations::PiecesOf(Origin* made) const {
  if (!current_.has_value()) return 0;
  *made = current_->formation.made();
  return current_->pieces;
}

bool Formations::IsForming(uint64_t term, Time since) const {
  return current_.has_value() && current_->term == term && current_->moved_at >= since;
}

}  // namespace covey
