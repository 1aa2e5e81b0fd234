#include "core/base/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "core/base/check.h"

namespace covey {
namespace {

constexpr uint64_t kAlign = 64;
// Pieces from here on get fresh pages instead of zeros, so that a large one that is handed out
// again costs nothing until used, either.
constexpr uint64_t kLargeBytes = 64 << 20;

// Stands before every piece of AllocData, so that FreeData needs nothing but the pointer.
struct alignas(kAlign) DataHeader {
  Arena* arena;
  uint64_t offset;
};
static_assert(sizeof(DataHeader) == kAlign);

}  // namespace

Status Arena::Map(int fd, size_t mapping_bytes, uint64_t heap_begin, uint64_t heap_end,
                  Arena** arena) {
  void* base =
      mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED)
    return Status::Exhausted("cannot map " + std::to_string(mapping_bytes >> 20) +
                             " MiB of shared memory: " + ErrnoText(errno) +
                             "; lower COVEY_ARENA_BYTES");
  *arena = new Arena(fcntl(fd, F_DUPFD_CLOEXEC, 0), static_cast<std::byte*>(base), mapping_bytes,
                     heap_begin, heap_end);
  return Status::Ok();
}

Arena::Arena(int fd, std::byte* base, size_t mapping_bytes, uint64_t heap_begin, uint64_t heap_end)
    : base_(base),
      mapping_bytes_(mapping_bytes),
      heap_begin_(heap_begin),
      heap_end_(heap_end),
      fd_(fd),
      page_bytes_(static_cast<uint64_t>(sysconf(_SC_PAGESIZE))),
      high_water_(heap_begin) {
  CHECK(heap_begin % kAlign == 0, "the heap begins on a cache line");
}

Arena::~Arena() {
  munmap(base_, mapping_bytes_);
  close(fd_);
}

void Arena::BecomePrivate() {
  if (std::exchange(is_private_, true)) return;
  void* base = mmap(base_, mapping_bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, fd_, 0);
  CHECK(base == base_, "a child of fork() cannot map its parent's memory");
}

std::byte* Arena::PrivateOf(const std::byte* data, size_t length_bytes, size_t* written) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(has_view_, true)) view_ = CopyOnWrite::Map(fd_, mapping_bytes_);
  if (view_ == nullptr) return nullptr;
  const auto offset = static_cast<size_t>(data - base_);
  *written = view_->Refresh(offset, length_bytes);
  return view_->base() + offset;
}

uint64_t Arena::Alloc(size_t length_bytes) {
  const uint64_t length = std::max<uint64_t>(kAlign, (length_bytes + kAlign - 1) / kAlign * kAlign);
  if (length < length_bytes) return kFull;
  const std::lock_guard lock(mutex_);
  // Smallest piece that fits: optimizer buckets and landing blocks come in few sizes.
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it)
    if (it->second >= length && (best == free_.end() || it->second < best->second)) best = it;
  uint64_t offset = high_water_;
  if (best != free_.end()) {
    offset = best->first;
    if (best->second > length) free_.emplace(offset + length, best->second - length);
    free_.erase(best);
    Zero(offset, length);
  } else {
    // A free piece at the very end grows into untouched memory.
    const auto last = free_.empty() ? free_.end() : std::prev(free_.end());
    const bool grows = last != free_.end() && last->first + last->second == high_water_;
    if (grows) offset = last->first;
    if (length > heap_end_ - offset) return kFull;
    if (grows) {
      Zero(offset, last->second);
      free_.erase(last);
    }
    high_water_ = offset + length;
  }
  in_use_.emplace(offset, length);
  return offset;
}

void Arena::Zero(uint64_t offset, uint64_t length) {
  if (length < kLargeBytes) {
    std::memset(base_ + offset, 0, length);
  } else {
    Renew(offset, offset + length);
  }
}

// The kernel frees whole pages: of one that holds another's bytes, too, only ours become zero.
void Arena::Renew(uint64_t begin, uint64_t end) {
  const uint64_t first = std::min((begin + page_bytes_ - 1) / page_bytes_ * page_bytes_, end);
  const uint64_t last = std::max(end / page_bytes_ * page_bytes_, first);
  std::memset(base_ + begin, 0, first - begin);
  std::memset(base_ + last, 0, end - last);
  if (first == last) return;
  // Emulators, such as qemu-user, answer that pages are freed, and keep them: one byte shows it.
  base_[first] = std::byte{1};
  if (madvise(base_ + first, last - first, MADV_REMOVE) != 0 || base_[first] != std::byte{0})
    std::memset(base_ + first, 0, last - first);
}

void Arena::Free(uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto used = in_use_.find(offset);
  CHECK(used != in_use_.end(), "freed what was not allocated");
  auto [piece, inserted] = free_.emplace(offset, used->second);
  CHECK(inserted, "freed twice");
  in_use_.erase(used);
  const auto next = std::next(piece);
  if (next != free_.end() && piece->first + piece->second == next->first) {
    piece->second += next->second;
    free_.erase(next);
  }
  if (piece == free_.begin()) return;
  const auto previous = std::prev(piece);
  if (previous->first + previous->second != piece->first) return;
  previous->second += piece->second;
  free_.erase(piece);
}

void* Arena::AllocData(size_t length_bytes) {
  if (length_bytes > heap_end_) return nullptr;  // the sum below could wrap around
  const uint64_t offset = Alloc(length_bytes + sizeof(DataHeader));
  if (offset == kFull) return nullptr;
  {
    const std::lock_guard lock(mutex_);
    ++references_;
  }
  auto* header = new (base_ + offset) DataHeader{this, offset};
  return header + 1;
}

void Arena::FreeData(void* data) {
  const DataHeader header = *(static_cast<DataHeader*>(data) - 1);
  header.arena->Free(header.offset);
  header.arena->Unref();
}

uint64_t Arena::OffsetOf(const std::byte* data, size_t length_bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(data);
  const auto begin = reinterpret_cast<uintptr_t>(base_) + heap_begin_;
  const auto end = reinterpret_cast<uintptr_t>(base_) + heap_end_;
  if (at < begin || at > end || length_bytes > end - at) return kFull;
  return at - reinterpret_cast<uintptr_t>(base_);
}

uint64_t Arena::NextHeapBegin() {
  const std::lock_guard lock(mutex_);
  return references_ > 1 ? high_water_ : heap_begin_;
}

// An emulator does this call, and need not write the whole heap.
void Arena::DropPages() {
  constexpr int kHole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  const uint64_t length = heap_end_ - heap_begin_;
  if (fallocate(fd_, kHole, static_cast<off_t>(heap_begin_), static_cast<off_t>(length)) != 0)
    Renew(heap_begin_, heap_end_);
}

void Arena::Unref() {
  {
    const std::lock_guard lock(mutex_);
    if (--references_ > 0) return;
  }
  delete this;
}

}  // namespace covey
