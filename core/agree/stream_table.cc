#include "core/agree/stream_table.h"

namespace covey {
namespace {

constexpr uint64_t kMorePatience = 8;  // after each time that a name has come again

}  // namespace

Stream* StreamTable::Use(const Request& request) {
  Stream* stream = request.memo != nullptr ? static_cast<Stream*>(request.memo->stream) : nullptr;
  if (stream == nullptr) {
    stream = FindOrMake(request);
    if (request.memo != nullptr) {
      request.memo->stream = stream;
      stream->memo = request.memo;
    }
  }
  stream->last_used = ++submissions_;
  return stream;
}

Stream* StreamTable::Known(const Request& request) const {
  if (request.memo != nullptr) return static_cast<Stream*>(request.memo->stream);
  const auto found = by_key_.find(Key{request.group->key, request.name});
  return found == by_key_.end() ? nullptr : found->second;
}

Stream* StreamTable::ToRepeat(const Request& request) const {
  Stream* stream = Known(request);
  if (stream == nullptr || stream->state != StreamState::kIdle || stream->Front() != nullptr)
    return nullptr;
  // engine-E6: what Negotiator::Advance would begin in-band; agree-N7, agree-N8: and alone.
  if (stream->bundle != nullptr || stream->occurrence >= stream->frozen_from) return nullptr;
  return stream->channel.Exists() ? stream : nullptr;
}

void StreamTable::OnRepeated(Stream* stream) {
  // engine-E6: agree-N1: as every exchange, it uses one occurrence.
  ++stream->occurrence;
  stream->last_used = ++submissions_;
}

Stream* StreamTable::FindOrMake(const Request& request) {
  const auto found = by_key_.find(Key{request.group->key, request.name});
  if (found != by_key_.end()) return found->second;
  streams_.push_back(std::make_unique<Stream>());
  Stream* stream = streams_.back().get();
  stream->group = request.group;
  stream->name = request.name;
  by_key_.emplace(Key{stream->group->key, stream->name}, stream);
  OnNewName(stream);
  return stream;
}

// A new name of this group: more patience if it was dropped before, and a look now and then.
void StreamTable::OnNewName(Stream* stream) {
  const Group& group = *stream->group;
  if (rules_.patience == 0 || stream->name.empty()) return;
  if (group.Coordinator() != self_) return;
  stream->patience = rules_.patience;
  const uint64_t hash = KeyHash()({group.key, stream->name});
  const Dropped& before = dropped_[hash % dropped_.size()];
  if (before.hash == hash) stream->patience = before.patience * kMorePatience;
  if (++new_names_[group.key] < rules_.batch) return;
  new_names_[group.key] = 0;
  look_at_.push_back(&group);
}

Stream* StreamTable::Find(const OperationId& id) const {
  const auto found = by_key_.find(Key{id.group, id.stream});
  return found == by_key_.end() ? nullptr : found->second;
}

const Group* StreamTable::TakeGroup() {
  if (look_at_.empty()) return nullptr;
  const Group* group = look_at_.back();
  look_at_.pop_back();
  return group;
}

void StreamTable::Drop(Stream* stream) {
  if (stream->patience != 0) {
    const uint64_t hash = KeyHash()({stream->group->key, stream->name});
    dropped_[hash % dropped_.size()] = {hash, stream->patience};
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

void StreamTable::Sweep() {
  std::erase_if(streams_, [](const auto& stream) { return stream->is_gone; });
}

}  // namespace covey
