#include "core/replicated/packed_record.h"

#include <array>
#include <cstring>

#include "core/replicated/packed_words.h"

namespace covey {
namespace {

constexpr size_t kWord = sizeof(uint64_t);
constexpr size_t kHeadWords = sizeof(RecordHeader) / kWord;
static_assert(kHeadWords * kWord == sizeof(RecordHeader));

// What a field of a contribution mostly is, from its member's last step in any version and the
// fields before it.
struct Field {
  uint64_t Contribution::*field;
  uint64_t (*usual)(const Contribution& one, uint64_t consumed);
};
constexpr std::array<Field, 4> kFields{{
    {&Contribution::count, [](const Contribution&, uint64_t) { return uint64_t{0}; }},
    {&Contribution::arrived,
     [](const Contribution& one, uint64_t consumed) { return one.count > 0 ? consumed : 0; }},
    {&Contribution::last, [](const Contribution& one,
                             uint64_t consumed) { return one.count > 0 ? consumed : one.arrived; }},
    {&Contribution::first,
     [](const Contribution& one, uint64_t) {
       return one.count > 0 ? one.last + 1 - one.count : one.last;
     }},
}};
constexpr size_t kColumns = kFields.size() + 1;  // and that of the members' suspicion

}  // namespace

void PackRecord(const RoundMemory& of, const MembersAfter& members, const std::byte* record,
                Writer* writer) {
  const auto size = static_cast<size_t>(of.size());
  std::array<uint64_t, kHeadWords> head;
  std::vector<Contribution> contributions(size);
  std::vector<uint64_t> column(size), hypers(of.hypers());
  std::memcpy(head.data(), record, sizeof(RecordHeader));
  record += sizeof(RecordHeader);
  std::memcpy(contributions.data(), record, size * sizeof(Contribution));
  record += size * sizeof(Contribution);
  for (const uint64_t word : head) writer->PutVarint(word);
  for (const auto& [field, usual] : kFields) {
    for (size_t i = 0; i < size; ++i)
      column[i] = contributions[i].*field - usual(contributions[i], members.consumed[i]);
    PackWords(column, writer);
  }
  std::memcpy(column.data(), record, size * kWord);
  record += size * kWord;
  for (size_t i = 0; i < size; ++i) column[i] -= members.missing[i];
  PackWords(column, writer);
  if (!hypers.empty()) std::memcpy(hypers.data(), record, hypers.size() * kWord);
  for (const uint64_t word : hypers) writer->Put(word);
}

bool UnpackRecord(const RoundMemory& of, const MembersAfter& members, Reader* reader,
                  Bytes* record) {
  const auto size = static_cast<size_t>(of.size());
  std::array<uint64_t, kHeadWords> head;
  std::vector<Contribution> contributions(size);
  std::vector<uint64_t> column(size), hypers(of.hypers());
  for (uint64_t& word : head) word = reader->GetVarint();
  for (const auto& [field, usual] : kFields) {
    if (!UnpackWords(reader, column)) return false;
    for (size_t i = 0; i < size; ++i)
      contributions[i].*field = column[i] + usual(contributions[i], members.consumed[i]);
  }
  if (!UnpackWords(reader, column)) return false;
  for (size_t i = 0; i < size; ++i) column[i] += members.missing[i];
  for (uint64_t& word : hypers) word = reader->Get<uint64_t>();
  record->assign(of.record_bytes(), std::byte{0});
  std::byte* at = record->data();
  const auto put = [&at](const auto& words) {
    const size_t length = words.size() * sizeof(words[0]);
    if (length > 0) std::memcpy(at, words.data(), length);
    at += length;
  };
  put(head);
  put(contributions);
  put(column);
  put(hypers);
  return reader->ok();
}

size_t MostPackedRecordBytes(const RoundMemory& of) {
  return (kHeadWords + kColumns * static_cast<size_t>(of.size()) + of.hypers()) * kMostPackedBytes;
}

}  // namespace covey
