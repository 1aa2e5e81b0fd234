// Bytes that several messages hold, and pieces of them: the memory goes with the last holder.
//
// A sum goes to several members, and none of them knows when the network has taken it: no single
// owner outlives all of them. Holders of a piece only read it; a writer writes where no holder
// reads. Any thread may drop a holder.
#ifndef COVEY_CORE_BASE_COUNTED_BYTES_H_
#define COVEY_CORE_BASE_COUNTED_BYTES_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

#include "core/base/check.h"
#include "core/base/wire.h"

namespace covey {

class CountedBytes {
 public:
  CountedBytes() = default;  // none
  // Takes them over.
  explicit CountedBytes(Bytes bytes) : block_(new Block) {
    block_->bytes = std::move(bytes);
    block_->data = block_->bytes.data();
    block_->size = block_->bytes.size();
  }
  // On a cache line, with any content.
  static CountedBytes Uninitialized(size_t size) {
    CountedBytes made;
    made.block_ = new Block;
    made.block_->owned = static_cast<std::byte*>(::operator new(size, kAligned));
    made.block_->data = made.block_->owned;
    made.block_->size = size;
    return made;
  }
  static CountedBytes Zeroed(size_t size) {
    CountedBytes made = Uninitialized(size);
    std::fill_n(made.data(), size, std::byte{0});
    return made;
  }
  CountedBytes(const CountedBytes& other) : block_(other.block_) {
    if (block_ != nullptr) block_->holders.fetch_add(1, std::memory_order_relaxed);
  }
  CountedBytes(CountedBytes&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  CountedBytes& operator=(CountedBytes other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~CountedBytes() {
    if (block_ != nullptr && block_->holders.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete block_;
  }

  explicit operator bool() const { return block_ != nullptr; }
  std::byte* data() const { return block_ == nullptr ? nullptr : block_->data; }
  size_t size() const { return block_ == nullptr ? 0 : block_->size; }
  // False: this is the only holder, and what the others have read is over.
  bool IsShared() const {
    return block_ != nullptr && block_->holders.load(std::memory_order_acquire) > 1;
  }

 private:
  static constexpr std::align_val_t kAligned{64};
  struct Block {
    Block() = default;
    ~Block() { ::operator delete(owned, kAligned); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    std::atomic<uint32_t> holders{1};
    Bytes bytes;                 // of one that took them over
    std::byte* owned = nullptr;  // of another
    std::byte* data = nullptr;
    size_t size = 0;
  };
  Block* block_ = nullptr;
};

// Some of them, as their holder.
class Slice {
 public:
  Slice() = default;  // none
  // All of them.
  Slice(Bytes bytes) : Slice(CountedBytes(std::move(bytes))) {}
  Slice(CountedBytes all) : all_(std::move(all)), data_(all_.data()), size_(all_.size()) {}

  // REQUIRES: it lies within.
  Slice Part(size_t offset, size_t size) const {
    CHECK(offset <= size_ && size <= size_ - offset, "a part lies within");
    Slice part = *this;
    part.data_ += offset;
    part.size_ = size;
    return part;
  }
  Slice From(size_t offset) const { return Part(offset, size_ - offset); }

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::byte* begin() const { return data_; }
  const std::byte* end() const { return data_ + size_; }
  friend bool operator==(const Slice& a, const Slice& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  CountedBytes all_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_COUNTED_BYTES_H_
