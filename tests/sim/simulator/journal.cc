#include "tests/sim/simulator/journal.h"

#include <algorithm>
#include <cstdio>

#include "core/agree/stream.h"

namespace covey {
namespace {

// A bundle is no stream of the program: what it does for its members shows in their ends.
bool IsBundle(const OperationId& id) { return id.stream.starts_with("bundle of "); }

bool Agrees(const Message& m) {
  return m.type == MessageType::kAnnounce || m.type == MessageType::kAgreed ||
         m.type == MessageType::kError;
}

std::string Text(Rank r) { return std::to_string(ToInt(r)); }

std::string Text(const OperationId& id) {
  return "'" + id.stream + "'." + std::to_string(id.occurrence) + " of group " +
         std::to_string(id.group);
}

const char* NameOf(Outcome outcome) {
  constexpr const char* kNames[] = {"done", "void", "aborted"};
  return kNames[static_cast<int>(outcome)];
}

}  // namespace

void Tally::Add(const Tally& other) {
  for (size_t i = 0; i < ended.size(); ++i) ended[i] += other.ended[i];
  for (size_t i = 0; i < exchanges.size(); ++i) exchanges[i] += other.exchanges[i];
  losses += other.losses;
  drops += other.drops;
  repeats_begun += other.repeats_begun;
  repeats_done += other.repeats_done;
}

Journal::Journal(const Options& options)
    : options_(options),
      ranks_(static_cast<size_t>(options.size)),
      lost_(static_cast<size_t>(options.size), false),
      died_(static_cast<size_t>(options.size), false),
      sent_(static_cast<size_t>(options.size), 0),
      under_way_(static_cast<size_t>(options.size * options.size), 0) {}

void Journal::Note(const std::string& line) {
  const std::string text = std::to_string(options_.clock->Now()) + " " + line;
  for (const char c : text) hash_ = (hash_ ^ static_cast<uint8_t>(c)) * 1099511628211u;
  if (options_.trace) std::fprintf(stderr, "%s\n", text.c_str());
}

void Journal::NoteProgress(const std::string& line) {
  last_progress_ = options_.clock->Now();
  Note(line);
}

void Journal::Fail(const std::string& what) {
  if (closed_ || !failure_.empty()) return;
  failure_ = what;
  Note("VIOLATION " + what);
}

bool Journal::AnyLost() const { return std::find(lost_.begin(), lost_.end(), true) != lost_.end(); }

OperationId Journal::Of(Rank r, OperationId id) {
  const auto& dropped = Of(r).dropped;
  const auto found = dropped.find({id.group, id.stream});
  if (found != dropped.end()) id.occurrence += found->second;
  return id;
}

const Journal::Attempts* Journal::AttemptsOf(Rank r, const OperationId& id) {
  const auto& attempts = Of(r).attempts;
  const auto found = attempts.find(id);
  return found == attempts.end() ? nullptr : &found->second;
}

void Journal::OnStep(Rank rank) {
  hash_ = (hash_ ^ static_cast<uint64_t>(ToInt(rank) + 1)) * 1099511628211u;
}

void Journal::OnSend(Rank rank, Rank to, const Message& m) {
  if (closed_) return;
  Note("rank " + Text(rank) + " -> " + Text(to) + " " + covey::NameOf(m.type) + " " + Text(m.id) +
       " entry " + std::to_string(m.entry) + " " + m.text);
  ++sent_[static_cast<size_t>(ToInt(rank))];
  if (!Agrees(m)) return;
  if (m.type == MessageType::kAnnounce) ++Of(rank).unanswered[Of(rank, m.id)];
  auto& count = under_way_[static_cast<size_t>(ToInt(rank) * options_.size + ToInt(to))];
  if (++count > static_cast<int64_t>(2 * options_.streams))
    Fail("more than two messages per stream are under way from rank " + Text(rank) + " to rank " +
         Text(to));
}

void Journal::OnReceive(Rank rank, Rank from, const Message& m) {
  if (closed_) return;
  Note("rank " + Text(rank) + " <- " + Text(from) + " " + covey::NameOf(m.type) + " " + Text(m.id));
  if (m.type == MessageType::kDrop) return NoteDropped(rank, m);
  if (!Agrees(m)) return;
  --under_way_[static_cast<size_t>(ToInt(from) * options_.size + ToInt(rank))];
  if (m.type == MessageType::kAnnounce) return;
  if (--Of(rank).unanswered[Of(rank, m.id)] < 0)
    Fail("N2: rank " + Text(rank) + " got an answer for " + Text(m.id) + " it had not announced");
}

void Journal::NoteDropped(Rank rank, const Message& drop) {
  for (const PlanMember& item : drop.members) {
    if (item.stream.empty() || item.occurrence == kNoOccurrence) continue;
    ++tally_.drops;
    const OperationId next = Of(rank, {drop.id.group, item.stream, item.occurrence});
    Of(rank).dropped[{drop.id.group, item.stream}] = next.occurrence;
    for (int32_t r : drop.ranks)
      for (uint64_t open : Of(Rank{r}).open[{drop.id.group, item.stream}])
        if (open < next.occurrence)
          Fail("N14: rank " + Text(rank) + " drops '" + item.stream + "' before " +
               std::to_string(open) + " has ended on rank " + std::to_string(r));
  }
}

void Journal::OnBegin(Rank rank, const OperationId& told, uint32_t entry) {
  if (closed_) return;
  const OperationId id = Of(rank, told);
  NoteProgress("rank " + Text(rank) + " begins " + Text(id) + " entry " + std::to_string(entry));
  const StreamKey stream{id.group, id.stream};
  const bool for_joined = Of(rank).joined && id.group == 0;
  const bool in_flight = for_joined || Of(rank).open[stream].contains(id.occurrence);
  if (IsBundle(id) && entry == 0 && voids_[stream].insert(id.occurrence).second &&
      voids_[stream].size() > 2)
    Fail("N7: " + Text(id) + " is void for a third time, and not dissolved");
  if (!in_flight && !IsBundle(id))
    Fail("N1: rank " + Text(rank) + " begins " + Text(id) + ", which is not in flight");
  Attempts& attempts = Of(rank).attempts[id];
  if (!attempts.empty() && !attempts.back().ended)
    Fail("rank " + Text(rank) + " begins " + Text(id) + " twice");
  if (!attempts.empty() && attempts.back().outcome == Outcome::kDone)
    Fail("N1: rank " + Text(rank) + " begins " + Text(id) + ", with which it is done");
  for (const Attempt& earlier : attempts)
    if (entry != 0 && earlier.entry == entry)
      Fail("rank " + Text(rank) + " begins " + Text(id) + " twice as one entry");
  attempts.push_back({.entry = entry});
}

void Journal::OnExchangeEnd(Rank rank, const OperationId& told, Outcome outcome) {
  if (closed_) return;
  const OperationId id = Of(rank, told);
  NoteProgress("rank " + Text(rank) + " exchange of " + Text(id) + " " + NameOf(outcome));
  ++tally_.exchanges[static_cast<size_t>(outcome)];
  Attempts& attempts = Of(rank).attempts[id];
  if (attempts.empty() || attempts.back().ended)
    return Fail("rank " + Text(rank) + " ends an exchange of " + Text(id) + " it has not begun");
  attempts.back().ended = true;
  attempts.back().outcome = outcome;
  if (outcome == Outcome::kDone) CheckDone(rank, id);
}

// When a rank is done, all have begun as the same entry. An operation may be attempted several
// times, but never twice as one entry; ranks need not attempt it equally often, because a bundle
// that one rank breaks counts for ranks that hoped to fill it.
void Journal::CheckDone(Rank rank, const OperationId& id) {
  const Attempt mine = AttemptsOf(rank, id)->back();
  if (mine.entry == 0) Fail("N3: rank " + Text(rank) + " is done with " + Text(id) + ", void");
  for (Rank member : groups_[id.group]) {
    const Attempts* theirs = AttemptsOf(member, id);
    const auto with_me = [&](const Attempt& a) {
      return a.entry == mine.entry && (!a.ended || a.outcome != Outcome::kVoid);
    };
    if (theirs == nullptr || std::none_of(theirs->begin(), theirs->end(), with_me))
      Fail("N3, N4: rank " + Text(rank) + " is done with " + Text(id) + ", which rank " +
           Text(member) + " has not begun as the same entry");
  }
}

void Journal::OnEnd(Rank rank, const Request& request, const Status& status) {
  if (closed_) return;
  ++tally_.ended[static_cast<size_t>(status.code())];
  PerRank& mine = Of(rank);
  const auto found = mine.submitted.find(&request);
  if (found == mine.submitted.end())
    return Fail("rank " + Text(rank) + " ends what is not in flight");
  const OperationId id{request.group->key, request.name, found->second.occurrence};
  const bool is_join = request.kind == Kind::kJoin;
  NoteProgress("rank " + Text(rank) + " ends " + (is_join ? "join" : Text(id)) + " " +
               status.ToString());
  if (++found->second.ends > 1) Fail("rank " + Text(rank) + " ends " + Text(id) + " twice");
  if (is_join) return CheckJoined(rank, status);
  std::set<uint64_t>& open = mine.open[{id.group, id.stream}];
  if (!open.empty() && id.occurrence != *open.begin())
    Fail("N1: rank " + Text(rank) + " ends " + Text(id) + " before an earlier one");
  open.erase(id.occurrence);
  const Attempts* attempts = AttemptsOf(rank, id);
  if (status.ok() && (attempts == nullptr || !attempts->back().ended ||
                      attempts->back().outcome != Outcome::kDone))
    Fail("N1: rank " + Text(rank) + " ends " + Text(id) + " without an exchange of it");
  if (status.code() == StatusCode::kAborted) CheckAborted(rank, id, request, status);
}

// A join ends well once all have begun to join, or because of a loss.
void Journal::CheckJoined(Rank rank, const Status& status) {
  Of(rank).joined = false;
  ++Of(rank).joins;
  if (!status.ok() &&
      (status.code() != StatusCode::kAborted || status.peer() == kNoRank || !IsLost(status.peer())))
    Fail("N10: the join of rank " + Text(rank) + " failed: " + status.ToString());
  for (size_t r = 0; status.ok() && r < ranks_.size(); ++r)
    if (ranks_[r].joins + (ranks_[r].joined ? 1 : 0) < Of(rank).joins)
      Fail("N10: the join of rank " + Text(rank) + " ended before that of rank " +
           std::to_string(r) + " began");
}

void Journal::CheckAborted(Rank rank, const OperationId& id, const Request& request,
                           const Status& status) {
  const auto& members = request.group->members;
  const Rank peer = status.peer();
  if (peer == kNoRank || !std::binary_search(members.begin(), members.end(), peer) || !IsLost(peer))
    return Fail("N11: rank " + Text(rank) + " aborted " + Text(id) + " because of rank " +
                Text(peer) + ", which is not lost");
  for (Rank member : members) {
    const Attempts* theirs = AttemptsOf(member, id);
    const bool done = theirs != nullptr && !theirs->empty() && theirs->back().ended &&
                      theirs->back().outcome == Outcome::kDone;
    if (IsLost(member) && !done) return;
    if (options_.mirrored && died_[static_cast<size_t>(ToInt(member))]) return;
  }
  Fail("N11: rank " + Text(rank) + " aborted " + Text(id) + ", which every lost member had done");
}

void Journal::OnSubmit(Rank rank, const Request& request, uint64_t occurrence) {
  if (closed_) return;
  NoteProgress("rank " + Text(rank) + " submits " + covey::NameOf(request.kind) + " '" +
               request.name + "'");
  groups_[request.group->key] = request.group->members;
  Of(rank).submitted[&request] = {.occurrence = occurrence};
  if (request.kind == Kind::kJoin)
    Of(rank).joined = true;
  else
    Of(rank).open[{request.group->key, request.name}].insert(occurrence);
}

void Journal::OnForget(Rank rank, const Request& request) {
  if (!closed_) Of(rank).submitted.erase(&request);
}

void Journal::OnLoss(Rank rank, Loss loss) {
  if (closed_) return;
  NoteProgress("rank " + Text(rank) + " is lost");
  lost_[static_cast<size_t>(ToInt(rank))] = true;
  died_[static_cast<size_t>(ToInt(rank))] = loss == Loss::kDied;
  ++tally_.losses;
}

// The entries as which an operation was done: one at most. Void attempts may differ between ranks.
std::vector<uint32_t> Journal::EntriesDone(const Attempts& attempts) {
  std::vector<uint32_t> entries;
  for (const Attempt& a : attempts)
    if (!a.ended || a.outcome == Outcome::kDone) entries.push_back(a.entry);
  return entries;
}

void Journal::CheckRest() {
  for (const auto& [key, members] : groups_) {
    if (std::any_of(members.begin(), members.end(), [&](Rank r) { return IsLost(r); })) continue;
    for (Rank r : members) {
      for (const auto& [id, count] : Of(r).unanswered)
        if (id.group == key && count != 0)
          Fail("N2: rank " + Text(r) + " has no answer for " + Text(id));
      for (const auto& [id, attempts] : Of(r).attempts) {
        if (id.group != key) continue;
        const Attempts* first = AttemptsOf(members[0], id);
        const bool none = first == nullptr && EntriesDone(attempts).empty();
        if (!none && (first == nullptr || EntriesDone(attempts) != EntriesDone(*first)))
          Fail("N3: ranks " + Text(members[0]) + " and " + Text(r) +
               " did not judge the exchanges of " + Text(id) + " alike");
      }
    }
  }
}

}  // namespace covey
