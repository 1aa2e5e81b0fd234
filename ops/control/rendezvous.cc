#include "ops/control/rendezvous.h"

#include <algorithm>
#include <bit>
#include <set>

namespace covey {
namespace {

std::string Counted(int32_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string RanksText(const Node& node) {
  const std::string first = std::to_string(node.first_rank);
  if (node.slots == 1) return "rank " + first;
  return "ranks " + first + "-" + std::to_string(node.first_rank + node.slots - 1);
}

Rendezvous::Decision No(std::string reason) { return {false, std::move(reason)}; }

std::string SecondsText(Time time) { return std::to_string(time / kMillisecond) + " ms"; }

}  // namespace

std::string NodeText(const Node& node) {
  std::string text = node.node >= 0 ? "node " + std::to_string(node.node) : "a node";
  text += " on " + node.host + " (process " + std::to_string(node.process);
  if (node.first_rank >= 0) text += ", " + RanksText(node);
  return text + ")";
}

Rendezvous::Decision Rendezvous::Join(Time now, const Offer& offer, int32_t* ticket) {
  if (Decision judged = Judge(offer); !judged.accepted) return judged;
  *ticket = next_ticket_++;
  members_[*ticket] = {.node = offer.node, .heard = now};
  members_[*ticket].node.first_rank = -1;
  if (Present() == options_.nodes) {
    Complete();
  } else {
    TellOthers(-1, {.kind = ControlEvent::Kind::kWaiting, .text = WhoIsMissing()});
  }
  return {};
}

Rendezvous::Decision Rendezvous::Judge(const Offer& offer) const {
  const Node& node = offer.node;
  if (offer.build != options_.build)
    return No("this node has " + offer.build + ", the rendezvous " + options_.build +
              ": install the same build of Covey on every node");
  if (phase_ == Phase::kEnded) return No("the job at this rendezvous is over");
  if (offer.nodes != 0 && offer.nodes != options_.nodes)
    return No("this node was told of " + Counted(offer.nodes, "node") + ", the rendezvous of " +
              std::to_string(options_.nodes) + ": give both the same number");
  if (phase_ != Phase::kWaiting)
    return No("all " + Counted(options_.nodes, "node") +
              " of the job have joined already: this would be one more");
  if (node.slots < 1) return No("a node brings at least 1 rank, not " + std::to_string(node.slots));
  if (node.node < -1 || node.node >= options_.nodes)
    return No("there is no node " + std::to_string(node.node) + " in a job of " +
              Counted(options_.nodes, "node") + " (they are numbered from 0)");
  int64_t ranks = node.slots;
  for (const auto& [ticket, member] : members_) {
    if (node.node >= 0 && member.node.node == node.node)
      return No("node " + std::to_string(node.node) + " is taken by process " +
                std::to_string(member.node.process) + " on " + member.node.host +
                ": give every node another number, or none");
    ranks += member.node.slots;
  }
  if (ranks > kMaxControlRanks)
    return No("with this node the job would have " + std::to_string(ranks) + " ranks; at most " +
              std::to_string(kMaxControlRanks) + " are possible");
  return {};
}

void Rendezvous::Complete() {
  GiveNumbers();
  phase_ = Phase::kComplete;
  ControlEvent view{.kind = ControlEvent::Kind::kView, .text = options_.job};
  for (const auto& [number, member] : ByNumber()) view.nodes.push_back(member->node);
  for (const auto& [ticket, member] : members_) {
    view.node = member.node.node;
    Tell(ticket, view);
  }
}

void Rendezvous::GiveNumbers() {
  std::set<int32_t> free;
  for (int32_t node = 0; node < options_.nodes; ++node) free.insert(node);
  for (const auto& [ticket, member] : members_) free.erase(member.node.node);
  for (auto& [ticket, member] : members_)  // in the order of arrival
    if (member.node.node < 0) member.node.node = free.extract(free.begin()).value();
  int32_t next_rank = 0;
  for (auto& [number, member] : ByNumber()) {
    member->node.first_rank = next_rank;
    next_rank += member->node.slots;
  }
}

std::map<int32_t, Rendezvous::Member*> Rendezvous::ByNumber() {
  std::map<int32_t, Member*> found;
  for (auto& [ticket, member] : members_) found[member.node.node] = &member;
  return found;
}

std::string Rendezvous::WhoIsMissing() const {
  std::string text = std::to_string(Present()) + " of " + Counted(options_.nodes, "node") +
                     " have joined; waiting for " + std::to_string(options_.nodes - Present()) +
                     " more. Here:";
  for (const auto& [ticket, member] : members_)
    text += (text.ends_with(':') ? " " : ", ") + NodeText(member.node);
  text.resize(std::min(text.size(), kMaxControlTextBytes));
  if (strangers_ > 0)
    text += "; turned away without the job's secret: " + std::to_string(strangers_);
  return text;
}

Rendezvous::Decision Rendezvous::Report(Time now, int32_t ticket, const ControlReport& report) {
  const auto found = members_.find(ticket);
  if (found == members_.end() || found->second.presence == Presence::kLost)
    return No("this node was given up: nothing was heard of it for " + SecondsText(options_.lease) +
              ", or its connection broke");
  Member* member = &found->second;
  member->heard = now;
  const bool began = phase_ != Phase::kWaiting;
  switch (report.kind) {
    case ControlReport::Kind::kBeat:
      return {};
    case ControlReport::Kind::kShare:
      return TakeShare(member, report.text);
    case ControlReport::Kind::kReady:
      return TakeReady(member);
    case ControlReport::Kind::kFailed:
      if (!began) return No("the job has not begun");
      TellOthers(
          ticket,
          {.kind = ControlEvent::Kind::kFailed, .node = member->node.node, .text = report.text});
      return {};
    case ControlReport::Kind::kLeft:
      TakeLeft(ticket, member);
      return {};
  }
  return No("not a report");
}

Rendezvous::Decision Rendezvous::TakeShare(Member* member, const std::string& text) {
  if (phase_ == Phase::kEnded) return {};
  if (phase_ != Phase::kComplete) return No("it is not the time to share");
  if (member->shared.has_value()) return No("this node has shared, and not all others have");
  size_t bytes = text.size();
  for (const auto& [ticket, other] : members_) bytes += other.shared.value_or("").size();
  if (bytes > kMaxSharedBytes)
    return No("the nodes share more than " + std::to_string(kMaxSharedBytes) + " bytes");
  member->shared = text;
  ControlEvent shared{.kind = ControlEvent::Kind::kShared};
  for (const auto& [number, other] : ByNumber()) {
    if (!other->shared.has_value()) return {};
    shared.texts.push_back(*other->shared);
  }
  for (auto& [ticket, other] : members_) other.shared.reset();
  TellOthers(-1, std::move(shared));
  return {};
}

Rendezvous::Decision Rendezvous::TakeReady(Member* member) {
  if (phase_ != Phase::kComplete) return No("it is not the time to be ready");
  member->ready = true;
  const bool all = std::all_of(members_.begin(), members_.end(),
                               [](const auto& item) { return item.second.ready; });
  if (all) phase_ = Phase::kRunning;
  return {};
}

void Rendezvous::TakeLeft(int32_t ticket, Member* member) {
  if (phase_ == Phase::kWaiting) {
    Lose(ticket, "has left");
    return;
  }
  member->presence = Presence::kLeft;
  EndIfEmpty();
}

void Rendezvous::Lose(int32_t ticket, const std::string& how) {
  const auto found = members_.find(ticket);
  if (found == members_.end() || found->second.presence != Presence::kThere) return;
  if (phase_ == Phase::kWaiting) {
    members_.erase(found);
    TellOthers(-1, {.kind = ControlEvent::Kind::kWaiting, .text = WhoIsMissing()});
    return;
  }
  found->second.presence = Presence::kLost;
  phase_ = Phase::kEnded;
  const Node& node = found->second.node;
  TellOthers(ticket, {.kind = ControlEvent::Kind::kLost,
                      .node = node.node,
                      .text = NodeText(node) + " " + how,
                      .nodes = {node}});
  EndIfEmpty();
}

void Rendezvous::Tick(Time now) {
  std::vector<int32_t> silent;
  for (const auto& [ticket, member] : members_)
    if (member.presence == Presence::kThere && now - member.heard > options_.lease)
      silent.push_back(ticket);
  for (int32_t ticket : silent)
    Lose(ticket, "is silent for longer than " + SecondsText(options_.lease) + " (COVEY_LEASE)");
}

void Rendezvous::NoteStranger() {
  ++strangers_;
  if (phase_ == Phase::kWaiting && std::has_single_bit(strangers_))
    TellOthers(-1, {.kind = ControlEvent::Kind::kWaiting, .text = WhoIsMissing()});
}

int32_t Rendezvous::Present() const {
  return static_cast<int32_t>(std::count_if(members_.begin(), members_.end(), [](const auto& item) {
    return item.second.presence == Presence::kThere;
  }));
}

void Rendezvous::Tell(int32_t ticket, ControlEvent event) {
  mail_.push_back({ticket, std::make_shared<const ControlEvent>(std::move(event))});
}

void Rendezvous::TellOthers(int32_t ticket, ControlEvent event) {
  const auto told = std::make_shared<const ControlEvent>(std::move(event));
  for (const auto& [other, member] : members_)
    if (other != ticket && member.presence != Presence::kLost) mail_.push_back({other, told});
}

void Rendezvous::EndIfEmpty() {
  if (Present() > 0) return;
  phase_ = Phase::kEnded;
  TellOthers(-1, {.kind = ControlEvent::Kind::kEnded});
}

}  // namespace covey
