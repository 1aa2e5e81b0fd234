#include "core/replicated/replica_message.h"

#include <utility>

namespace covey {
namespace {

// A body begins at a multiple of this, where elements of any type may.
constexpr size_t kAligned = 16;
// The length of most heads.
constexpr size_t kUsualHeadBytes = 512;

}  // namespace

ReplicaMessage ReplicaMessage::Of(Kind kind, const ReplicatedEntry& entry, size_t record_bytes) {
  ReplicaMessage message{.kind = kind, .version = entry.version, .made = entry.made};
  message.list = entry.consumed;
  message.missing = entry.missing;
  message.roles = entry.roles;
  message.hub = static_cast<uint64_t>(entry.hub + 1);
  message.body = Bytes(entry.body.begin(), entry.body.begin() + record_bytes);
  return message;
}

ReplicatedEntry ReplicaMessage::TakeEntry() {
  return {.version = version,
          .made = made,
          .roles = std::move(roles),
          .hub = static_cast<int32_t>(hub) - 1,
          .consumed = std::move(list),
          .missing = std::move(missing),
          .body = std::move(body)};
}

Bytes ReplicaMessage::EncodeHead() const {
  Writer writer;
  writer.Reserve(kUsualHeadBytes);
  writer.Put(static_cast<uint8_t>(kind));
  for (const uint64_t word : {term,
                              executed,
                              known_committed,
                              known_made.term,
                              known_made.attempt,
                              version,
                              made.term,
                              made.attempt,
                              accepted_term,
                              attempt,
                              shard,
                              offset_bytes,
                              length_bytes,
                              number,
                              member_status,
                              applied,
                              tries,
                              over,
                              content.first,
                              content.last,
                              content.count,
                              content.arrived,
                              consumed,
                              met,
                              need,
                              snapshot_to,
                              snapshot_version,
                              hub,
                              relay})
    writer.Put(word);
  writer.Put(static_cast<int64_t>(max_wait));
  writer.Put(static_cast<uint8_t>(stage));
  writer.Put(static_cast<uint8_t>((left ? 1 : 0) | (quiet ? 2 : 0) | (is_no_op ? 4 : 0) |
                                  (lacks_committed ? 8 : 0)));
  for (const std::vector<uint64_t>* words :
       {&list, &missing, &roles, &holders, &needs, &mets, &silences})
    writer.PutList(*words);
  writer.PutList(hypers);
  writer.Pad(kAligned);
  return writer.Take();
}

Bytes ReplicaMessage::Encode() const {
  Bytes bytes = EncodeHead();
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

bool ReplicaMessage::Decode(Slice bytes, ReplicaMessage* message) {
  Reader reader(bytes);
  const auto kind = reader.Get<uint8_t>();
  message->kind = static_cast<Kind>(kind);
  Contribution* content = &message->content;
  for (uint64_t* word : {&message->term,
                         &message->executed,
                         &message->known_committed,
                         &message->known_made.term,
                         &message->known_made.attempt,
                         &message->version,
                         &message->made.term,
                         &message->made.attempt,
                         &message->accepted_term,
                         &message->attempt,
                         &message->shard,
                         &message->offset_bytes,
                         &message->length_bytes,
                         &message->number,
                         &message->member_status,
                         &message->applied,
                         &message->tries,
                         &message->over,
                         &content->first,
                         &content->last,
                         &content->count,
                         &content->arrived,
                         &message->consumed,
                         &message->met,
                         &message->need,
                         &message->snapshot_to,
                         &message->snapshot_version,
                         &message->hub,
                         &message->relay})
    *word = reader.Get<uint64_t>();
  message->max_wait = reader.Get<int64_t>();
  const auto stage = reader.Get<uint8_t>();
  message->stage = static_cast<ShardStage>(stage);
  const auto flags = reader.Get<uint8_t>();
  message->left = (flags & 1) != 0;
  message->quiet = (flags & 2) != 0;
  message->is_no_op = (flags & 4) != 0;
  message->lacks_committed = (flags & 8) != 0;
  for (std::vector<uint64_t>* words :
       {&message->list, &message->missing, &message->roles, &message->holders, &message->needs,
        &message->mets, &message->silences})
    *words = reader.GetList<uint64_t>();
  message->hypers = reader.GetList<double>();
  reader.Pad(kAligned);
  const bool known = kind >= static_cast<uint8_t>(Kind::kRequestVote) &&
                     kind <= static_cast<uint8_t>(Kind::kRelay) &&
                     stage <= static_cast<uint8_t>(ShardStage::kSummed);
  if (!reader.ok() || !known) return false;
  message->body = bytes.From(bytes.size() - reader.rest().size());
  return true;
}

}  // namespace covey
