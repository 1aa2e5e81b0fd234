#include "core/agree/coordinator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/channel.h"
#include "core/base/neighbor_weights.h"

namespace covey {
namespace {

Message ErrorFor(const OperationId& id, StatusCode code, int32_t peer, std::string text) {
  return {
      .type = MessageType::kError, .id = id, .code = code, .peer = peer, .text = std::move(text)};
}

constexpr int kMostRefusals = 3;

std::string RankName(int32_t rank) { return "rank " + std::to_string(rank); }

// "rank 1" or "ranks 0, 2": the members whose announcement equals that of member `like`.
std::string RanksLike(const std::vector<int32_t>& members,
                      const std::vector<std::optional<Message>>& announced, size_t like) {
  std::string names;
  int count = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!(announced[i]->signature == announced[like]->signature)) continue;
    names += (count++ > 0 ? ", " : "") + std::to_string(members[i]);
  }
  return (count == 1 ? "rank " : "ranks ") + names;
}

// The texts of ranks that cannot take part for a reason of this kind; the first few of them.
std::string Refusals(const std::vector<std::optional<Message>>& announced, StatusCode code) {
  std::string text;
  int left = kMostRefusals;
  for (const auto& one : announced) {
    if (one->code != code || left-- <= 0) continue;
    text += (text.empty() ? "" : "; ") + one->text;
    if (code != StatusCode::kNotFinite) return text;  // one alone explains it
  }
  return left < 0 ? text + "; and " + std::to_string(-left) + " more ranks" : text;
}

// First "name=value" of a knob text that differs: "segment_bytes: rank 0 has 65536, rank 1 has
// 131072".
std::string DifferingKnob(const std::string& a, int32_t rank_a, const std::string& b,
                          int32_t rank_b) {
  size_t begin = 0;
  while (begin < a.size() && begin < b.size()) {
    const size_t end_a = std::min(a.find(';', begin), a.size());
    const size_t end_b = std::min(b.find(';', begin), b.size());
    const std::string knob_a = a.substr(begin, end_a - begin);
    const std::string knob_b = b.substr(begin, end_b - begin);
    if (knob_a != knob_b)
      return RankName(rank_a) + " has " + knob_a + ", " + RankName(rank_b) + " has " + knob_b;
    begin = end_a + 1;
  }
  return RankName(rank_a) + " and " + RankName(rank_b) +
         " know different knobs (different versions of Covey?)";
}

// Two ranks of a neighbor_allreduce that do not say the same of each other; empty: all agree.
std::string ConflictOf(const std::vector<int32_t>& members,
                       const std::vector<std::optional<Message>>& announced) {
  if (!Mixes(announced[0]->signature.kind)) return "";
  std::vector<PeerTable> tables;
  for (const auto& one : announced) {
    if (one->peers.size() != TableWords(members.size())) return "an announcement lacks its peers";
    tables.emplace_back(one->peers);
  }
  PeerConflict conflict;
  // neighbors-G1: tables that contradict each other are answered with an error that names the
  // ranks.
  return FindConflict(tables, &conflict) ? Describe(conflict, members) : "";
}

}  // namespace

void Coordinator::OnAnnounce(Rank from, Message message, Time now, std::vector<Envelope>* outbox) {
  const OperationId id = message.id;
  const auto& ranks = message.ranks;
  const auto is_member = [&](Rank r) {
    return std::find(ranks.begin(), ranks.end(), ToInt(r)) != ranks.end();
  };
  // agree-N11: it was under way when the member was lost: its members know, and no answer is due.
  if (std::any_of(lost_.begin(), lost_.end(), is_member)) return;
  auto [it, fresh] = pending_.try_emplace(id);
  Pending& pending = it->second;
  if (fresh) {
    pending.members = message.ranks;
    pending.announced.resize(pending.members.size());
    pending.begun_at = now;
    if (options_.stall_warning > 0) pending.next_report = now + options_.stall_warning;
  }
  const auto member = std::find(pending.members.begin(), pending.members.end(), ToInt(from));
  if (member == pending.members.end())
    return;  // a malformed announcement: its sender is not in its own group
  pending.announced[static_cast<size_t>(member - pending.members.begin())] = std::move(message);
  const auto& all = pending.announced;
  // agree-N2: the answer comes once all have announced, and is the same for all.
  if (!std::all_of(all.begin(), all.end(), [](const auto& a) { return a.has_value(); })) return;

  const Message answer = Decide(id, pending);
  for (int32_t rank : pending.members) outbox->push_back({Rank{rank}, answer});
  if (answer.type == MessageType::kAgreed)
    planner_.OnAgreed(id, answer.entry, pending.members, all, now);
  pending_.erase(it);
}

void Coordinator::Retire(Message idle, std::vector<Envelope>* outbox) {
  const uint64_t group = idle.id.group;
  // agree-N14: nothing of the world is retired while a rank has joined: two counts would meet.
  if (group == 0 && !joined_.empty()) return;
  retirement_.Begin(
      std::move(idle), next_entry_++,
      [&](const PlanMember& item) { return planner_.IsPlanning(group, item.stream); }, outbox);
}

void Coordinator::OnIdle(Rank from, const Message& answer, std::vector<Envelope>* outbox) {
  for (const std::string& name : retirement_.OnIdle(from, answer, outbox))
    planner_.Forget(answer.id.group, name);
}

void Coordinator::OnDropped(Rank from, const Message& message, std::vector<Envelope>* outbox) {
  if (!retirement_.OnDropped(from, message) || message.id.group != 0) return;
  for (Rank rank : std::exchange(late_joins_, {})) OnJoin(rank, outbox);
}

void Coordinator::OnJoin(Rank from, std::vector<Envelope>* outbox) {
  // agree-N14: a join waits for the last DROPPED, so that all ranks count occurrences alike.
  if (retirement_.IsUnderWay(0)) return late_joins_.push_back(from);
  // agree-N10: each rank joins once; the last one ends the join of all.
  if (std::find(joined_.begin(), joined_.end(), ToInt(from)) != joined_.end()) return;  // malformed
  joined_.push_back(ToInt(from));
  Message told{.type = MessageType::kJoined, .ranks = joined_};
  if (static_cast<int32_t>(joined_.size()) == options_.world_size) {
    told = {.type = MessageType::kAllJoined, .peer = joined_.back()};
    joined_.clear();
  }
  for (int32_t rank = 0; rank < options_.world_size; ++rank) outbox->push_back({Rank{rank}, told});
}

Message Coordinator::Decide(const OperationId& id, const Pending& pending) {
  const auto& all = pending.announced;
  for (size_t i = 0; i < all.size(); ++i) {
    const int32_t rank = pending.members[i];
    if (all[i]->ranks != pending.members)
      return ErrorFor(id, StatusCode::kMismatch, rank, "groups differ: two groups share a key");
    if (all[i]->code != StatusCode::kOk)
      return ErrorFor(id, all[i]->code, rank, Refusals(all, all[i]->code));
    if (all[i]->text != all[0]->text)
      return ErrorFor(id, StatusCode::kMismatch, rank,
                      "a setting that must be equal on all ranks differs: " +
                          DifferingKnob(all[0]->text, pending.members[0], all[i]->text, rank));
    // agree-N2: the error names both signatures: all members answer alike, and users see the cause.
    if (!(all[i]->signature == all[0]->signature))
      return ErrorFor(id, StatusCode::kMismatch, rank,
                      DescribeDifference(all[0]->signature, RanksLike(pending.members, all, 0),
                                         all[i]->signature, RanksLike(pending.members, all, i)));
  }
  if (const std::string conflict = ConflictOf(pending.members, all); !conflict.empty())
    return ErrorFor(id, StatusCode::kMismatch, -1, conflict);
  return Agreed(id, pending);
}

Message Coordinator::Agreed(const OperationId& id, const Pending& pending) {
  Message agreed{.type = MessageType::kAgreed, .id = id, .entry = next_entry_++};
  for (size_t i = 0; i < pending.announced.size(); ++i) {
    const Message& announced = *pending.announced[i];
    if (announced.slot_bytes == 0) continue;
    if (announced.blocks.size() != 1 || announced.blocks[0] == std::numeric_limits<uint64_t>::max())
      return ErrorFor(id, StatusCode::kExhausted, pending.members[i],
                      "no shared memory left on rank " + std::to_string(pending.members[i]) +
                          " for its landing space; raise COVEY_ARENA_BYTES");
    agreed.slot_bytes = announced.slot_bytes;
    // agree-N9: all use the smallest depth that a member has room for.
    agreed.depth =
        agreed.blocks.empty() ? announced.depth : std::min(agreed.depth, announced.depth);
    agreed.blocks.push_back(announced.blocks[0]);
  }
  if (!agreed.blocks.empty() && agreed.blocks.size() != pending.members.size())
    return ErrorFor(id, StatusCode::kInternal, -1,
                    "members disagree whether landing space must grow");
  return agreed;
}

Message Coordinator::Missing(const OperationId& id, const Pending& pending, Time now) {
  Message report{.type = MessageType::kMissing, .id = id, .waited = now - pending.begun_at};
  for (size_t i = 0; i < pending.members.size(); ++i)
    if (!pending.announced[i]) report.ranks.push_back(pending.members[i]);
  return report;
}

void Coordinator::OnWho(Rank from, const OperationId& id, Time now,
                        std::vector<Envelope>* outbox) const {
  const auto found = pending_.find(id);
  if (found != pending_.end()) outbox->push_back({from, Missing(id, found->second, now)});
}

void Coordinator::OnTick(Time now, std::vector<Envelope>* outbox) {
  planner_.OnTick(now, &next_entry_, outbox);
  for (auto& [id, pending] : pending_) {
    if (now < pending.next_report) continue;
    pending.next_report = now + options_.stall_warning;
    const Message report = Missing(id, pending, now);
    for (int32_t rank : pending.members) outbox->push_back({Rank{rank}, report});
  }
}

void Coordinator::OnLoss(Rank lost) {
  planner_.OnLoss(lost);
  retirement_.OnLoss(lost);
  lost_.push_back(lost);
  std::erase_if(pending_, [lost](const auto& item) {
    const auto& members = item.second.members;
    return std::find(members.begin(), members.end(), ToInt(lost)) != members.end();
  });
}

Time Coordinator::NextDeadline() const {
  Time next = planner_.NextDeadline();
  for (const auto& [id, pending] : pending_) next = std::min(next, pending.next_report);
  return next;
}

}  // namespace covey
