// The negotiator's half of bundles: agree-N5 to agree-N8.
#include <algorithm>

#include "core/agree/negotiator.h"

namespace covey {

// Answers at once: waits for no exchange, so it cannot deadlock.
void Negotiator::OnFreeze(const Message& message) {
  std::vector<Stream*> streams;
  for (const PlanMember& member : message.members) {
    Stream* stream = streams_.Find({message.id.group, member.stream, 0});
    if (stream == nullptr) return;  // malformed: a plan names what every member has announced
    streams.push_back(stream);
  }
  if (streams.empty()) return;
  Message answer{.type = MessageType::kFrozen,
                 .id = message.id,
                 .entry = message.entry,
                 .slot_bytes = message.slot_bytes,
                 .members = message.members};
  for (size_t i = 0; i < streams.size(); ++i) {
    // agree-N8: from the answered occurrence on nothing begins until SWITCH, so all change plans
    // there.
    streams[i]->frozen_from = NextUnbegun(*streams[i]);
    answer.members[i].occurrence = streams[i]->frozen_from;
  }
  const Group* group = streams[0]->group;
  auto bundle = std::make_unique<Bundle>(message, group, std::move(streams));
  bundle->carrier.proposed_slot_bytes = message.slot_bytes;
  // agree-N9: the landing space of the bundle is reserved before the answer.
  bundle->carrier.proposed_block =
      blocks_->Alloc(message.slot_bytes, group->members.size(), &answer.depth);
  answer.blocks = {bundle->carrier.proposed_block};
  bundles_.Add({message.id.group, message.entry}, std::move(bundle));
  outbox_.push_back({group->Coordinator(), std::move(answer)});
}

void Negotiator::OnSwitch(const Message& message) {
  Bundle* bundle = bundles_.Find({message.id.group, message.entry});
  if (bundle == nullptr || message.members.size() != bundle->members.size()) return;
  const std::vector<Stream*> streams = bundle->members;
  const uint64_t block = bundle->carrier.proposed_block;
  // agree-N9: a member has no landing space: the plan is dropped and streams go on alone.
  if (message.blocks.empty()) {
    if (block != kNoBlock) blocks_->Free(block);
    bundles_.Cancel({message.id.group, message.entry});
    bundle = nullptr;
  } else {
    bundle->Switch(message);
  }
  for (Stream* stream : streams) {
    stream->frozen_from = kNoOccurrence;
    if (stream->state == StreamState::kHeld) Apply(stream, Event::kThaw, nullptr, {});
  }
  if (bundle != nullptr && bundle->broken_at == bundle->carrier.occurrence) Break(bundle, false);
}

// The front belongs to the exchange its bundle waits for.
void Negotiator::Hold(Stream* stream) {
  Bundle* bundle = stream->bundle;
  const Entry* entry = MatchingEntry(stream, *stream->Front());
  // agree-N5: the front fits another entry than the planned one: this bundle begins void.
  if (entry == nullptr || entry->id != stream->planned_entry) return Break(bundle, true);
  bundles_.Hold(bundle, *stream->Front());
  // agree-N7: the bundle begins when all its members are here.
  if (!bundle->Full() || bundle->carrier.state != StreamState::kIdle) return;
  bundle->Concatenate();
  for (Stream* member : bundle->members) Apply(member, Event::kMove, nullptr, {});
  Apply(&bundle->carrier, Event::kKnown, nullptr, {});
}

// This rank will not begin the bundle's next exchange as planned: it begins it void, which every
// member sees in the begin headers. Members that still wait for others hear it from BREAK.
void Negotiator::Break(Bundle* bundle, bool tell) {
  Stream& carrier = bundle->carrier;
  if (!bundle->switched || bundle->dissolved || carrier.state != StreamState::kIdle) return;
  Apply(&carrier, Event::kDeviates, nullptr, {});
  if (!tell) return;
  const Message broken{.type = MessageType::kBreak,
                       .id = {carrier.group->key, "", carrier.occurrence},
                       .entry = bundle->id};
  for (Rank member : carrier.group->members)
    if (member != options_.self) outbox_.push_back({member, broken});
}

void Negotiator::OnBreak(const Message& message) {
  Bundle* bundle = bundles_.Find({message.id.group, message.entry});
  // agree-N5: a BREAK of an exchange that is over says nothing.
  if (bundle == nullptr || message.id.occurrence < bundle->carrier.occurrence) return;
  bundle->broken_at = message.id.occurrence;
  if (bundle->broken_at == bundle->carrier.occurrence) Break(bundle, false);
}

void Negotiator::OnBundleEnd(Bundle* bundle, ExchangeEnd end, const Status& why) {
  const Status lost = end == ExchangeEnd::kVoid ? LossIn(*bundle->carrier.group) : Status::Ok();
  if (end == ExchangeEnd::kAborted || !lost.ok()) {
    bundle->carrier.state = StreamState::kBroken;
    for (Stream* member : bundle->members) {
      if (member->state == StreamState::kMoving)
        Apply(member, Event::kAborted, nullptr, lost.ok() ? why : lost);
    }
    return;
  }
  const bool was_void = end == ExchangeEnd::kVoid;
  bundles_.OnEnd(bundle);
  bundle->Next(was_void);
  for (Stream* member : bundle->members) {
    // agree-N7: dissolved: its streams travel alone from here on.
    if (bundle->dissolved) member->bundle = nullptr;
    if (member->state == StreamState::kMoving)
      Apply(member, was_void ? Event::kThaw : Event::kDone, nullptr, {});
    else if (member->state == StreamState::kHeld)
      Apply(member, Event::kThaw, nullptr, {});
  }
  if (bundle->dissolved) bundle->members.clear();  // they may be dropped before it
  if (bundle->broken_at == bundle->carrier.occurrence) Break(bundle, false);
}

template <typename Predicate>
void Negotiator::BreakIf(Predicate is_due) {
  const std::vector<Bundle*>& filling = bundles_.filling();
  for (size_t i = 0; i < filling.size(); ++i)
    if (filling[i]->carrier.state == StreamState::kIdle && is_due(*filling[i]))
      Break(filling[i], true);
}

void Negotiator::BreakAwaited() {
  BreakIf([](const Bundle& bundle) {
    // agree-N6: a bundle that is not full is broken when a caller waits for a member that is held.
    return std::any_of(bundle.members.begin(), bundle.members.end(), [](const Stream* member) {
      return member->state == StreamState::kHeld && member->Front()->awaited;
    });
  });
}

void Negotiator::OnTick(Time now) {
  // agree-N6: a member with a callback has no waiting caller: its bundle is broken after a time.
  BreakIf([now](const Bundle& bundle) { return now >= bundle.Patience(); });
}

}  // namespace covey
