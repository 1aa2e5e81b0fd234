#include "core/agree/retire.h"

#include <algorithm>
#include <set>

#include "core/agree/stream.h"

namespace covey {
namespace {

// The bundles (PlanMember::entry) one of whose items `is_out`.
template <typename Predicate>
std::set<uint32_t> BundlesOf(const std::vector<PlanMember>& items, Predicate is_out) {
  std::set<uint32_t> bundles;
  for (const PlanMember& item : items)
    if (item.entry != 0 && is_out(item)) bundles.insert(item.entry);
  return bundles;
}

}  // namespace

void Retirement::Begin(Message idle, uint32_t number,
                       const std::function<bool(const PlanMember&)>& must_stay,
                       std::vector<Envelope>* outbox) {
  // agree-N14: one retirement of a group at a time: the next begins after the last DROPPED.
  if (IsUnderWay(idle.id.group)) return;
  const std::set<uint32_t> staying = BundlesOf(idle.members, must_stay);
  std::erase_if(idle.members, [&](const PlanMember& item) {
    return must_stay(item) || staying.contains(item.entry);
  });
  if (idle.members.empty()) return;
  idle.type = MessageType::kRetire;
  idle.entry = number;
  for (int32_t rank : idle.ranks) outbox->push_back({Rank{rank}, idle});
  UnderWay& one = under_way_[idle.id.group];
  one.answers.resize(idle.ranks.size());
  one.asked = std::move(idle);
}

Retirement::UnderWay* Retirement::Find(Rank from, const Message& message, size_t* index) {
  const auto found = under_way_.find(message.id.group);
  if (found == under_way_.end() || found->second.asked.entry != message.entry) return nullptr;
  const std::vector<int32_t>& ranks = found->second.asked.ranks;
  const auto member = std::find(ranks.begin(), ranks.end(), ToInt(from));
  *index = static_cast<size_t>(member - ranks.begin());
  return member == ranks.end() ? nullptr : &found->second;
}

std::vector<std::string> Retirement::OnIdle(Rank from, const Message& answer,
                                            std::vector<Envelope>* outbox) {
  size_t index = 0;
  UnderWay* one = Find(from, answer, &index);
  if (one == nullptr || answer.members.size() != one->asked.members.size()) return {};
  one->answers[index] = answer;
  if (!std::all_of(one->answers.begin(), one->answers.end(),
                   [](const auto& a) { return a.has_value(); }))
    return {};
  Message drop = one->asked;
  drop.type = MessageType::kDrop;
  for (size_t i = 0; i < drop.members.size(); ++i) {
    uint64_t& occurrence = drop.members[i].occurrence;
    occurrence = one->answers[0]->members[i].occurrence;
    for (const auto& theirs : one->answers)
      // agree-N14: only streams that all members declared idle at the same occurrence are dropped.
      if (theirs->members[i].occurrence != occurrence) occurrence = kNoOccurrence;
  }
  const std::set<uint32_t> staying = BundlesOf(
      drop.members, [](const PlanMember& item) { return item.occurrence == kNoOccurrence; });
  std::vector<std::string> names;
  for (PlanMember& item : drop.members) {
    // agree-N14: if one stream of a bundle stays, all do.
    if (staying.contains(item.entry)) item.occurrence = kNoOccurrence;
    if (item.occurrence != kNoOccurrence && !item.stream.empty()) names.push_back(item.stream);
  }
  for (int32_t rank : drop.ranks) outbox->push_back({Rank{rank}, drop});
  return names;
}

bool Retirement::OnDropped(Rank from, const Message& message) {
  size_t index = 0;
  UnderWay* one = Find(from, message, &index);
  if (one == nullptr || ++one->dropped < one->answers.size()) return false;
  under_way_.erase(message.id.group);
  return true;
}

void Retirement::OnLoss(Rank lost) {
  std::erase_if(under_way_, [lost](const auto& item) {
    const std::vector<int32_t>& ranks = item.second.asked.ranks;
    return std::find(ranks.begin(), ranks.end(), ToInt(lost)) != ranks.end();
  });
}

}  // namespace covey
