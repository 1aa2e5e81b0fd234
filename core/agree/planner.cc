#include "core/agree/planner.h"

#include <algorithm>

#include "core/agree/landing.h"

namespace covey {
namespace {

// So that a plan fits in one message.
constexpr size_t kMaxMembers = 1024;
constexpr size_t kMaxNameBytes = 64 * 1024;
// New names need not end: so many are not waited for.
constexpr size_t kMostCandidates = 256;

struct Open {
  std::vector<size_t> chosen;
  size_t length_bytes = 0;
  size_t name_bytes = 0;
};

bool SameClass(const Signature& a, const Signature& b) {
  return a.dtype == b.dtype && a.op == b.op && a.average == b.average && a.device == b.device &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.codec.empty() &&
         b.codec.empty();  // a block would reach over tensors, and results depend on the plan
}

bool Together(const Candidate& a, const Candidate& b, Time window) {
  for (size_t i = 0; i < a.waits.size(); ++i) {
    const Time apart = b.submitted_at[i] - a.submitted_at[i];
    // agree-N7: on every rank: no wait in between, and within the window of its own clock.
    if (a.waits[i] != b.waits[i] || apart > window || -apart > window) return false;
  }
  return true;
}

bool Fits(const Open& open, const Candidate& candidate, const FusionRules& rules) {
  return open.length_bytes + candidate.signature.LengthBytes() <= rules.threshold_bytes &&
         open.name_bytes + candidate.stream.size() <= kMaxNameBytes &&
         open.chosen.size() < kMaxMembers;
}

}  // namespace

std::vector<std::vector<size_t>> PlanBundles(std::span<const Candidate> candidates,
                                             const FusionRules& rules) {
  std::vector<size_t> order(candidates.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return candidates[a].submitted_at[0] < candidates[b].submitted_at[0];
  });
  std::vector<Open> bundles;
  for (size_t i : order) {
    const Candidate& candidate = candidates[i];
    const auto room = std::find_if(bundles.begin(), bundles.end(), [&](const Open& open) {
      const Candidate& first = candidates[open.chosen[0]];
      return SameClass(first.signature, candidate.signature) &&
             Together(first, candidate, rules.window) && Fits(open, candidate, rules);
    });
    Open* open = room != bundles.end() ? &*room : &bundles.emplace_back();
    open->chosen.push_back(i);
    open->length_bytes += candidate.signature.LengthBytes();
    open->name_bytes += candidate.stream.size();
  }
  std::vector<std::vector<size_t>> plans;
  for (Open& open : bundles)
    if (open.chosen.size() > 1) plans.push_back(std::move(open.chosen));
  return plans;
}

void Planner::OnAgreed(const OperationId& id, uint32_t entry, const std::vector<int32_t>& members,
                       const std::vector<std::optional<Message>>& announced, Time now) {
  if (rules_.threshold_bytes == 0 || members.size() < 2 || id.stream.empty()) return;
  GroupState& state = groups_[id.group];
  state.members = members;
  if (!state.considered.insert(id.stream).second) return;
  const Signature& signature = announced[0]->signature;
  const size_t length_bytes = signature.LengthBytes();
  // agree-N7: candidates are of kinds that fuse, and small enough to gain by travelling together.
  if (!TraitsOf(signature.kind).fuses || length_bytes > rules_.threshold_bytes) return;
  Candidate& candidate = state.candidates.emplace_back();
  candidate.stream = id.stream;
  candidate.entry = entry;
  candidate.occurrence = id.occurrence;
  candidate.signature = signature;
  for (const auto& message : announced) {
    candidate.waits.push_back(message->waits);
    candidate.submitted_at.push_back(message->submitted_at);
  }
  due_ = state.candidates.size() < kMostCandidates ? now + rules_.window : now;
}

void Planner::OnTick(Time now, uint32_t* next_entry, std::vector<Envelope>* outbox) {
  if (now < due_) return;
  due_ = kNever;
  for (auto& [group, state] : groups_) {
    for (const std::vector<size_t>& chosen : PlanBundles(state.candidates, rules_))
      Freeze(group, state, chosen, (*next_entry)++, outbox);
    state.candidates.clear();
  }
}

void Planner::Freeze(uint64_t group, const GroupState& state, const std::vector<size_t>& chosen,
                     uint32_t id, std::vector<Envelope>* outbox) {
  Message freeze{.type = MessageType::kFreeze, .id = {group, "", 0}, .entry = id};
  Signature whole = state.candidates[chosen[0]].signature;
  whole.shapes.clear();
  for (size_t i : chosen) {
    const Candidate& candidate = state.candidates[i];
    freeze.members.push_back({candidate.stream, candidate.entry, candidate.occurrence});
    whole.shapes.insert(whole.shapes.end(), candidate.signature.shapes.begin(),
                        candidate.signature.shapes.end());
  }
  freeze.slot_bytes = LandingSlotBytes(whole, segment_bytes_);
  for (int32_t rank : state.members) outbox->push_back({Rank{rank}, freeze});
  Freezing& freezing = freezing_[{group, id}];
  freezing.members = state.members;
  freezing.freeze = std::move(freeze);
  freezing.answers.resize(state.members.size());
}

void Planner::OnFrozen(Rank from, const Message& answer, std::vector<Envelope>* outbox) {
  const auto found = freezing_.find({answer.id.group, answer.entry});
  if (found == freezing_.end()) return;  // its group has lost a member
  Freezing& freezing = found->second;
  const auto member = std::find(freezing.members.begin(), freezing.members.end(), ToInt(from));
  if (member == freezing.members.end() || answer.blocks.size() != 1) return;  // malformed
  freezing.answers[static_cast<size_t>(member - freezing.members.begin())] = answer;
  const auto& answers = freezing.answers;
  // agree-N8: SWITCH comes once all members have answered, and is the same for all.
  if (!std::all_of(answers.begin(), answers.end(), [](const auto& a) { return a.has_value(); }))
    return;
  const Message plan = Switch(freezing);
  for (int32_t rank : freezing.members) outbox->push_back({Rank{rank}, plan});
  freezing_.erase(found);
}

Message Planner::Switch(const Freezing& freezing) {
  Message plan = freezing.freeze;
  plan.type = MessageType::kSwitch;
  bool room = true;
  uint64_t ahead = 0;  // of what was announced
  plan.depth = freezing.answers[0]->depth;
  for (const auto& answer : freezing.answers) {
    room = room && answer->blocks[0] != kNoBlock;
    plan.depth = std::min(plan.depth, answer->depth);
    plan.blocks.push_back(answer->blocks[0]);
    for (size_t i = 0; i < plan.members.size() && i < answer->members.size(); ++i)
      ahead = std::max(ahead, answer->members[i].occurrence - plan.members[i].occurrence);
  }
  // agree-N8: one distance for all streams, so that a step is bundled as a whole.
  for (PlanMember& member : plan.members) member.occurrence += ahead;
  if (!room) plan.blocks.clear();  // a member has no landing space left: the streams go on alone
  return plan;
}

bool Planner::IsPlanning(uint64_t group, const std::string& stream) const {
  const auto is_it = [&](const auto& item) { return item.stream == stream; };
  const auto found = groups_.find(group);
  if (found != groups_.end() &&
      std::any_of(found->second.candidates.begin(), found->second.candidates.end(), is_it))
    return true;
  return std::any_of(freezing_.begin(), freezing_.end(), [&](const auto& item) {
    const std::vector<PlanMember>& members = item.second.freeze.members;
    return item.first.first == group && std::any_of(members.begin(), members.end(), is_it);
  });
}

void Planner::Forget(uint64_t group, const std::string& stream) {
  const auto found = groups_.find(group);
  if (found != groups_.end()) found->second.considered.erase(stream);
}

void Planner::OnLoss(Rank lost) {
  const auto has_lost = [lost](const auto& item) {
    const auto& members = item.second.members;
    return std::find(members.begin(), members.end(), ToInt(lost)) != members.end();
  };
  std::erase_if(groups_, has_lost);
  std::erase_if(freezing_, has_lost);
}

}  // namespace covey
