// Reading and writing flat little-endian messages, bounded and checked.
//
// Not a general serializer: fixed-width integers, doubles, integers in as few bytes as they need
// ("varint": seven bits in each, the lowest first), and byte strings with a 32-bit length. A Reader
// never reads beyond its span and never allocates more than the span holds; after the first short
// read it stays failed and returns zeros, so a decoder checks ok() once at its end. Any thread; no
// state outside the object.
#ifndef COVEY_CORE_BASE_WIRE_H_
#define COVEY_CORE_BASE_WIRE_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace covey {

using Bytes = std::vector<std::byte>;
// A message in parts, one after the other, where they lie.
using Parts = std::span<const std::span<const std::byte>>;

inline size_t LengthOf(Parts parts) {
  size_t length = 0;
  for (const std::span<const std::byte> part : parts) length += part.size();
  return length;
}
inline void Append(Bytes* to, Parts parts) {
  to->reserve(to->size() + LengthOf(parts));
  for (const std::span<const std::byte> part : parts)
    to->insert(to->end(), part.begin(), part.end());
}

class Writer {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Put(T value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof(T));
  }
  void PutString(std::string_view s) {
    Put(static_cast<uint32_t>(s.size()));
    const auto* p = reinterpret_cast<const std::byte*>(s.data());
    bytes_.insert(bytes_.end(), p, p + s.size());
  }
  template <typename T>
  void PutList(const std::vector<T>& values) {
    Put(static_cast<uint32_t>(values.size()));
    for (T v : values) Put(v);
  }
  void PutVarint(uint64_t value) {
    for (; value >= 128; value >>= 7) Put(static_cast<uint8_t>(value | 128));
    Put(static_cast<uint8_t>(value));
  }
  size_t size() const { return bytes_.size(); }
  void Reserve(size_t length_bytes) { bytes_.reserve(length_bytes); }
  // With zeros to a multiple of `length_bytes`.
  void Pad(size_t length_bytes) {
    bytes_.resize((bytes_.size() + length_bytes - 1) / length_bytes * length_bytes);
  }
  Bytes Take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes), all_(bytes.size()) {}

  template <typename T>
  requires std::is_arithmetic_v<T> T Get() {
    T value{};
    if (!Has(sizeof(T))) return value;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }
  std::string GetString() {
    const auto length = Get<uint32_t>();
    if (!Has(length)) return {};
    std::string s(reinterpret_cast<const char*>(rest_.data()), length);
    rest_ = rest_.subspan(length);
    return s;
  }
  template <typename T>
  std::vector<T> GetList() {
    const auto count = Get<uint32_t>();
    std::vector<T> values;
    if (!Has(size_t{count} * sizeof(T))) return values;
    values.reserve(count);
    for (uint32_t i = 0; i < count; ++i) values.push_back(Get<T>());
    return values;
  }
  // As PutVarint writes it; anything longer is a short read.
  uint64_t GetVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = Get<uint8_t>();
      const uint64_t bits = byte & 127;
      value |= bits << shift;
      if (byte >= 128) continue;
      const bool is_short = (bits > 0 || shift == 0) && bits << shift >> shift == bits;
      ok_ = ok_ && is_short;
      return ok_ ? value : 0;
    }
    ok_ = false;
    return 0;
  }
  // To a multiple of `length_bytes` from the beginning, as of Writer::Pad.
  void Pad(size_t length_bytes) {
    const size_t read = all_ - rest_.size();
    const size_t padding = (length_bytes - read % length_bytes) % length_bytes;
    if (Has(padding)) rest_ = rest_.subspan(padding);
  }
  // The unread bytes.
  std::span<const std::byte> rest() const { return rest_; }
  bool ok() const { return ok_; }
  bool AtEnd() const { return ok_ && rest_.empty(); }

 private:
  bool Has(size_t length_bytes) {
    ok_ = ok_ && rest_.size() >= length_bytes;
    return ok_;
  }

  std::span<const std::byte> rest_;
  size_t all_;
  bool ok_ = true;
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_WIRE_H_
