#include "core/replicated/packed_words.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

namespace covey {
namespace {

// A dictionary has so many words at most.
constexpr size_t kMostIndexed = 64;
// A shorter run takes more bytes than its words in a dictionary would, and the head of another one.
constexpr size_t kLeastRun = 16;
constexpr int kByteBits = 8;

uint64_t Zigzag(uint64_t difference) { return difference << 1 ^ (0 - (difference >> 63)); }
uint64_t Unzigzag(uint64_t value) { return value >> 1 ^ (0 - (value & 1)); }

int BitsOf(size_t values) { return static_cast<int>(std::bit_width(values - 1)); }

// How many of the first `most` words are a run.
size_t RunOf(std::span<const uint64_t> words, size_t most) {
  const size_t end = std::min(most, words.size());
  size_t count = std::min<size_t>(2, end);
  while (count < end && words[count] - words[count - 1] == words[1] - words[0]) ++count;
  return count;
}

// How many words there are before the next run, if that is worth a group, or the end.
size_t IndexedOf(std::span<const uint64_t> words) {
  const size_t end = std::min(kMostIndexed, words.size());
  size_t count = 1;
  while (count < end && RunOf(words.subspan(count), kLeastRun) < kLeastRun) ++count;
  return count;
}

void PutRun(std::span<const uint64_t> words, uint64_t last, Writer* writer) {
  writer->PutVarint(uint64_t{words.size()} << 1);
  writer->PutVarint(Zigzag(words[0] - last));
  writer->PutVarint(words.size() > 1 ? Zigzag(words[1] - words[0]) : 0);
}

void PutDictionary(std::span<const uint64_t> words, uint64_t last, Writer* writer) {
  std::vector<uint64_t> values(words.begin(), words.end());
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  writer->PutVarint(uint64_t{words.size()} << 1 | 1);
  writer->PutVarint(values.size());
  writer->PutVarint(Zigzag(values[0] - last));
  for (size_t i = 1; i < values.size(); ++i) writer->PutVarint(values[i] - values[i - 1]);
  uint32_t bits = 0;
  int pending = 0;
  for (const uint64_t word : words) {
    const auto at = std::lower_bound(values.begin(), values.end(), word);
    bits |= static_cast<uint32_t>(at - values.begin()) << pending;
    pending += BitsOf(values.size());
    for (; pending >= kByteBits; pending -= kByteBits, bits >>= kByteBits)
      writer->Put(static_cast<uint8_t>(bits));
  }
  if (pending > 0) writer->Put(static_cast<uint8_t>(bits));
}

bool GetRun(Reader* reader, uint64_t last, std::span<uint64_t> words) {
  words[0] = last + Unzigzag(reader->GetVarint());
  const uint64_t step = Unzigzag(reader->GetVarint());
  for (size_t i = 1; i < words.size(); ++i) words[i] = words[i - 1] + step;
  return reader->ok();
}

bool GetDictionary(Reader* reader, uint64_t last, std::span<uint64_t> words) {
  const uint64_t number = reader->GetVarint();
  if (words.size() > kMostIndexed || number == 0 || number > words.size()) return false;
  std::array<uint64_t, kMostIndexed> values;
  values[0] = last + Unzigzag(reader->GetVarint());
  for (size_t i = 1; i < number; ++i) {
    values[i] = values[i - 1] + reader->GetVarint();
    if (values[i] <= values[i - 1]) return false;
  }
  const int width = BitsOf(number);
  uint32_t bits = 0;
  int pending = 0;
  for (uint64_t& word : words) {
    if (pending < width) {
      bits |= uint32_t{reader->Get<uint8_t>()} << pending;
      pending += kByteBits;
    }
    const size_t index = bits & ((uint32_t{1} << width) - 1);
    if (index >= number) return false;
    word = values[index];
    bits >>= width;
    pending -= width;
  }
  return reader->ok() && bits == 0;
}

}  // namespace

void PackWords(std::span<const uint64_t> words, Writer* writer) {
  for (uint64_t last = 0; !words.empty();) {
    size_t count = RunOf(words, words.size());
    if (count >= kLeastRun || count == words.size()) {
      PutRun(words.first(count), last, writer);
    } else {
      count = IndexedOf(words);
      PutDictionary(words.first(count), last, writer);
    }
    last = words[count - 1];
    words = words.subspan(count);
  }
}

bool UnpackWords(Reader* reader, std::span<uint64_t> words) {
  for (uint64_t last = 0; !words.empty();) {
    const uint64_t head = reader->GetVarint();
    const uint64_t count = head >> 1;
    // No group is empty, and none is longer than what is left.
    if (count == 0 || count > words.size()) return false;
    const std::span<uint64_t> group = words.first(count);
    const bool is_run = head % 2 == 0;
    if (!(is_run ? GetRun(reader, last, group) : GetDictionary(reader, last, group))) return false;
    last = group.back();
    words = words.subspan(count);
  }
  return reader->ok();
}

}  // namespace covey
