#include "core/replicated/replica_message.h"

#include <array>
#include <utility>

#include "core/replicated/packed_record.h"
#include "core/replicated/packed_words.h"

namespace covey {
namespace {

// A body begins at a multiple of this, where elements of any type may.
constexpr size_t kAligned = 16;
// The length of most heads.
constexpr size_t kUsualHeadBytes = 128;
constexpr size_t kMostLists = 4;  // that are packed
constexpr size_t kByteBits = 8;
constexpr uint8_t kTellsOfSettling = 0x80;  // of the flags

// The words of a head, in order.
template <typename Message>
auto WordsOf(Message* message) {
  auto* content = &message->content;
  return std::array{&message->term,
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
                    &message->relay,
                    &message->cut};
}

// Those of settling, which most messages do not have.
template <typename Message>
auto SettlingOf(Message* message) {
  return std::array{&message->settled, &message->goes_on, &message->dropped};
}

// A bit of the byte of flags, in order.
template <typename Message>
auto FlagsOf(Message* message) {
  return std::array{&message->left,         &message->quiet,
                    &message->is_no_op,     &message->lacks_committed,
                    &message->has_ended,    &message->are_any_there,
                    &message->is_any_behind};
}

void PutBits(const std::vector<bool>& bits, Writer* writer) {
  writer->PutVarint(bits.size());
  for (size_t i = 0; i < bits.size(); i += kByteBits) {
    uint8_t byte = 0;
    for (size_t j = i; j < bits.size() && j < i + kByteBits; ++j)
      byte = static_cast<uint8_t>(byte | (bits[j] ? 1 << (j - i) : 0));
    writer->Put(byte);
  }
}

std::vector<bool> GetBits(Reader* reader) {
  std::vector<bool> bits;
  const uint64_t count = reader->GetVarint();
  uint8_t byte = 0;
  for (uint64_t i = 0; i < count && reader->ok(); ++i) {
    if (i % kByteBits == 0) byte = reader->Get<uint8_t>();
    bits.push_back((byte >> i % kByteBits & 1) != 0);
  }
  return bits;
}

}  // namespace

ReplicaMessage ReplicaMessage::Of(Kind kind, const ReplicatedEntry& entry,
                                  const RoundMemory& geometry) {
  ReplicaMessage message{.kind = kind, .version = entry.version, .made = entry.made};
  message.list = entry.consumed;
  message.missing = entry.missing;
  message.roles = entry.roles;
  message.hub = static_cast<uint64_t>(entry.hub + 1);
  message.body = entry.body;
  message.Pack(geometry);
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

// The lists that are packed, in order.
std::vector<std::vector<uint64_t>*> ReplicaMessage::Packed() {
  if (kind == Kind::kHeartbeat) return {&list, &needs, &mets, &silences};
  if (kind == Kind::kFastForward) return {&list, &missing};
  if (HasEntry()) return {&list, &missing, &roles};
  return {};
}

void ReplicaMessage::Pack(const RoundMemory& geometry) {
  const auto lists = Packed();
  if (lists.empty()) return;
  Writer writer;
  for (const std::vector<uint64_t>* words : lists) PackWords(*words, &writer);
  if (HasEntry()) PackRecord(geometry, {list, missing}, body.data(), &writer);
  for (std::vector<uint64_t>* words : lists) words->clear();
  body = writer.Take();
}

bool ReplicaMessage::Unpack(const RoundMemory& geometry) {
  const auto lists = Packed();
  if (lists.empty()) return true;
  Reader reader({body.data(), body.size()});
  for (std::vector<uint64_t>* words : lists) {
    words->resize(static_cast<size_t>(geometry.size()));
    if (!UnpackWords(&reader, *words)) return false;
  }
  Bytes record;
  if (HasEntry() && !UnpackRecord(geometry, {list, missing}, &reader, &record)) return false;
  const bool is_all = reader.AtEnd();
  body = std::move(record);
  return is_all;
}

size_t ReplicaMessage::MostHeadBytes(const RoundMemory& geometry) {
  ReplicaMessage longest{.max_wait = -1};
  for (uint64_t* word : WordsOf(&longest)) *word = ~uint64_t{0};
  for (uint64_t* word : SettlingOf(&longest)) *word = ~uint64_t{0};
  longest.holders.resize(static_cast<size_t>(geometry.size()));
  longest.hypers.resize(geometry.hypers());
  return longest.EncodeHead().size();
}

size_t ReplicaMessage::MostPackedBytes(const RoundMemory& geometry) {
  const size_t words = kMostLists * static_cast<size_t>(geometry.size());
  return words * kMostPackedBytes + MostPackedRecordBytes(geometry);
}

Bytes ReplicaMessage::EncodeHead() const {
  Writer writer;
  writer.Reserve(kUsualHeadBytes);
  writer.Put(static_cast<uint8_t>(kind));
  writer.Put(static_cast<uint8_t>(stage));
  const auto flags = FlagsOf(this);
  uint8_t bits = TellsOfSettling() ? kTellsOfSettling : 0;
  for (size_t i = 0; i < flags.size(); ++i)
    bits = static_cast<uint8_t>(bits | (*flags[i] ? 1 << i : 0));
  writer.Put(bits);
  for (const uint64_t* word : WordsOf(this)) writer.PutVarint(*word);
  if (TellsOfSettling())
    for (const uint64_t* word : SettlingOf(this)) writer.PutVarint(*word);
  writer.PutVarint(static_cast<uint64_t>(max_wait));
  PutBits(holders, &writer);
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
  Reader reader({bytes.data(), bytes.size()});
  const auto kind = reader.Get<uint8_t>();
  const auto stage = reader.Get<uint8_t>();
  const auto flags = reader.Get<uint8_t>();
  message->kind = static_cast<Kind>(kind);
  message->stage = static_cast<ShardStage>(stage);
  const auto of_flags = FlagsOf(message);
  for (size_t i = 0; i < of_flags.size(); ++i) *of_flags[i] = (flags >> i & 1) != 0;
  for (uint64_t* word : WordsOf(message)) *word = reader.GetVarint();
  if ((flags & kTellsOfSettling) != 0)
    for (uint64_t* word : SettlingOf(message)) *word = reader.GetVarint();
  message->max_wait = static_cast<Time>(reader.GetVarint());
  message->holders = GetBits(&reader);
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
