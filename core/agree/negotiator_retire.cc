// The negotiator's half of agree-N14 (retire.h): picking what is idle, and dropping it.
#include <algorithm>

#include "core/agree/negotiator.h"

namespace covey {
namespace {

// So that a request and its answers fit in one message.
constexpr size_t kMostItems = 1024;
constexpr size_t kMostNameBytes = 64 * 1024;
constexpr uint64_t kMorePatience = 8;  // after each time that a name has come again

bool LiesOnCpu(const Stream& stream) {
  return std::all_of(stream.entries.begin(), stream.entries.end(),
                     [](const Entry& entry) { return entry.signature.device == DeviceType::kCpu; });
}

}  // namespace

// A new name of this group: more patience if it was dropped before, and a look now and then.
void Negotiator::OnNewName(Stream* stream) {
  const Group& group = *stream->group;
  if (options_.retire.patience == 0 || stream->name.empty()) return;
  if (group.Coordinator() != options_.self) return;
  stream->patience = options_.retire.patience;
  const uint64_t hash = KeyHash()({group.key, stream->name});
  const Returned& before = returned_[hash % returned_.size()];
  if (before.hash == hash) stream->patience = before.patience * kMorePatience;
  if (++new_names_[group.key] < options_.retire.batch) return;
  new_names_[group.key] = 0;
  look_at_.push_back(&group);
}

bool Negotiator::IsIdle(const Stream& stream) const {
  return stream.state == StreamState::kIdle && stream.Front() == nullptr &&
         stream.frozen_from == kNoOccurrence && LossIn(*stream.group).ok();
}

// Whether nothing of the bundle is begun or held on this rank.
bool Negotiator::IsIdle(const Bundle& bundle) {
  return bundle.switched && bundle.carrier.state == StreamState::kIdle && bundle.held == 0;
}

bool Negotiator::IsForgotten(const Stream& stream) const {
  return IsIdle(stream) && stream.patience != 0 && LiesOnCpu(stream) &&
         submissions_ - stream.last_used >= stream.patience;
}

// Items are listed as PlanMember: of a bundle its number, then its streams with that number.
bool Negotiator::TakeIdle(Message* idle) {
  if (look_at_.empty()) return false;
  const Group& group = *look_at_.back();
  look_at_.pop_back();
  *idle = {.id = {group.key, "", 0}};
  for (Rank r : group.members) idle->ranks.push_back(ToInt(r));
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
  for (const auto& [key, bundle] : bundles_) {
    if (key.first != group.key || !IsIdle(*bundle)) continue;
    std::vector<PlanMember> unit = {{"", bundle->id, 0}};
    bool all = true;
    for (const Stream* member : bundle->members) {
      all = all && IsForgotten(*member);
      unit.push_back({member->name, bundle->id, 0});
    }
    if (all) add(unit);
  }
  for (const auto& stream : streams_)
    if (stream->group->key == group.key && stream->bundle == nullptr && IsForgotten(*stream))
      add({{stream->name, 0, 0}});
  return !idle->members.empty();
}

// The next occurrence of what is idle here; else kNoOccurrence.
uint64_t Negotiator::IdleAt(uint64_t group, const PlanMember& item) const {
  const auto found = bundles_.find({group, item.entry});
  const Bundle* bundle = found == bundles_.end() ? nullptr : found->second.get();
  // agree-N14: a bundle goes with all its streams, or none of them does.
  if (bundle != nullptr && !IsIdle(*bundle)) return kNoOccurrence;
  if (item.stream.empty()) return bundle == nullptr ? kNoOccurrence : bundle->carrier.occurrence;
  const Stream* stream = Find({group, item.stream, 0});
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
      Find({message.id.group, item.stream, 0})->frozen_from = item.occurrence;
  outbox_.push_back({Rank{message.ranks[0]}, std::move(answer)});
}

void Negotiator::OnDrop(const Message& message) {
  if (message.ranks.empty()) return;  // malformed
  std::vector<Stream*> held;
  for (const PlanMember& item : message.members) {
    Stream* stream = item.stream.empty() ? nullptr : Find({message.id.group, item.stream, 0});
    // agree-N14: a stream that this member did not declare idle is not dropped.
    if (stream == nullptr || stream->frozen_from == kNoOccurrence) continue;
    stream->frozen_from = kNoOccurrence;
    if (stream->state == StreamState::kHeld) held.push_back(stream);
    if (item.occurrence != kNoOccurrence) Drop(stream);
  }
  for (const PlanMember& item : message.members) {
    const auto bundle = bundles_.find({message.id.group, item.entry});
    if (!item.stream.empty() || item.occurrence == kNoOccurrence) continue;
    if (bundle == bundles_.end() || !IsIdle(*bundle->second)) continue;  // malformed
    FreeBlock(bundle->second->carrier);
    bundles_.erase(bundle);
    ++dropped_bundles_;
  }
  std::erase_if(streams_, [](const auto& stream) { return stream->is_gone; });
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
  if (stream->patience != 0) {
    const uint64_t hash = KeyHash()({stream->group->key, stream->name});
    returned_[hash % returned_.size()] = {hash, stream->patience};
  }
  // agree-N14: a request that came between IDLE and DROP is the first of the new count.
  if (stream->Front() != nullptr) {
    stream->patience *= kMorePatience;
    return;
  }
  by_key_.erase(Key{stream->group->key, stream->name});
  if (stream->memo != nullptr) {
    stream->memo->stream = nullptr;
    forgotten_.push_back(stream->memo);
  }
  stream->is_gone = true;
}

}  // namespace covey
