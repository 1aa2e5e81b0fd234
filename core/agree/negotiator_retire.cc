// The negotiator's half of agree-N14 (retire.h): picking what is idle, and dropping it.
#include <algorithm>

#include "core/agree/negotiator.h"

namespace covey {
namespace {

// So that a request and its answers fit in one message.
constexpr size_t kMostItems = 1024;
constexpr size_t kMostNameBytes = 64 * 1024;

bool LiesOnCpu(const Stream& stream) {
  return std::all_of(stream.entries.begin(), stream.entries.end(),
                     [](const Entry& entry) { return entry.signature.device == DeviceType::kCpu; });
}

}  // namespace

bool Negotiator::IsIdle(const Stream& stream) const {
  return stream.state == StreamState::kIdle && stream.Front() == nullptr &&
         stream.frozen_from == kNoOccurrence && LossIn(*stream.group).ok();
}

bool Negotiator::IsForgotten(const Stream& stream) const {
  return IsIdle(stream) && LiesOnCpu(stream) && streams_.IsUnused(stream);
}

// Items are listed as PlanMember: of a bundle its number, then its streams with that number.
bool Negotiator::TakeIdle(Message* idle) {
  const Group* group = streams_.TakeGroup();
  if (group == nullptr) return false;
  *idle = {.id = {group->key, "", 0}};
  for (Rank r : group->members) idle->ranks.push_back(ToInt(r));
  size_t name_bytes = 0;
  const auto add = [&](const std::vector<PlanMember>& unit) {
    size_t more_bytes = 0;
    for (const PlanMember& item : unit) more_bytes += item.stream.size();
    const bool fits = idle->members.size() + unit.size() <= kMostItems &&
                      name_bytes + more_bytes <= kMostNameBytes;
    if (!fits) return;
    name_bytes += more_bytes;
    idle->members.insert(idle->members.end(), unit.begin(), unit.end());
  };
  for (const auto& [key, bundle] : bundles_.all()) {
    if (key.first != group->key || !bundle->IsIdle()) continue;
    std::vector<PlanMember> unit = {{"", bundle->id, 0}};
    bool all = true;
    for (const Stream* member : bundle->members) {
      all = all && IsForgotten(*member);
      unit.push_back({member->name, bundle->id, 0});
    }
    if (all) add(unit);
  }
  for (const auto& stream : streams_.all())
    if (stream->group->key == group->key && stream->bundle == nullptr && IsForgotten(*stream))
      add({{stream->name, 0, 0}});
  return !idle->members.empty();
}

// The next occurrence of what is idle here; else kNoOccurrence.
uint64_t Negotiator::IdleAt(uint64_t group, const PlanMember& item) const {
  const Bundle* bundle = bundles_.Find({group, item.entry});
  // agree-N14: a bundle goes with all its streams, or none of them does.
  if (bundle != nullptr && !bundle->IsIdle()) return kNoOccurrence;
  if (item.stream.empty()) return bundle == nullptr ? kNoOccurrence : bundle->carrier.occurrence;
  const Stream* stream = streams_.Find({group, item.stream, 0});
  if (stream == nullptr || stream->bundle != bundle || !IsIdle(*stream)) return kNoOccurrence;
  return stream->occurrence;
}

void Negotiator::OnRetire(const Message& message) {
  if (message.ranks.empty()) return;  // malformed
  Message answer = message;
  answer.type = MessageType::kIdle;
  for (PlanMember& item : answer.members) item.occurrence = IdleAt(message.id.group, item);
  for (const PlanMember& item : answer.members)
    if (!item.stream.empty() && item.occurrence != kNoOccurrence)
      // agree-N14: after IDLE nothing of the stream begins before DROP: its block may be freed by
      // then.
      streams_.Find({message.id.group, item.stream, 0})->frozen_from = item.occurrence;
  outbox_.push_back({Rank{message.ranks[0]}, std::move(answer)});
}

void Negotiator::OnDrop(const Message& message) {
  if (message.ranks.empty()) return;  // malformed
  std::vector<Stream*> held;
  for (const PlanMember& item : message.members) {
    Stream* stream =
        item.stream.empty() ? nullptr : streams_.Find({message.id.group, item.stream, 0});
    // agree-N14: a stream that this member did not declare idle is not dropped.
    if (stream == nullptr || stream->frozen_from == kNoOccurrence) continue;
    stream->frozen_from = kNoOccurrence;
    if (stream->state == StreamState::kHeld) held.push_back(stream);
    if (item.occurrence != kNoOccurrence) Drop(stream);
  }
  for (const PlanMember& item : message.members) {
    const BundleTable::Key key{message.id.group, item.entry};
    const Bundle* bundle = bundles_.Find(key);
    if (!item.stream.empty() || item.occurrence == kNoOccurrence) continue;
    if (bundle == nullptr || !bundle->IsIdle()) continue;  // malformed
    FreeBlock(bundle->carrier);
    bundles_.Drop(key);
  }
  streams_.Sweep();
  if (message.id.group == 0) ++world_drops_;
  Message done{.type = MessageType::kDropped, .id = message.id, .entry = message.entry};
  outbox_.push_back({Rank{message.ranks[0]}, std::move(done)});
  for (Stream* stream : held) Apply(stream, Event::kThaw, nullptr, {});
}

void Negotiator::FreeBlock(const Stream& stream) {
  if (!stream.channel.Exists()) return;
  blocks_->Free(stream.channel.blocks[static_cast<size_t>(ToInt(stream.group->my_index))]);
}

// A stream that holds a request stays, as the stream of a new name.
void Negotiator::Drop(Stream* stream) {
  stream->bundle = nullptr;
  if (stream->state == StreamState::kBroken) return;  // for good, with its block
  FreeBlock(*stream);
  stream->channel = {};
  stream->entries.clear();
  stream->last_entry = 0;
  stream->occurrence = 0;
  stream->missing = {};
  streams_.Drop(stream);
}

}  // namespace covey
