// Memory that the ranks of a host share, and the heap in this rank's own part of it.
//
// An Arena owns one mapping of the job's shared memory and hands out pieces of one region of it. It
// outlives the runtime while tensors still use it: each allocation through Alloc holds a reference,
// and the last Free (or Unref) unmaps. Any thread (one mutex around the free list).
//
// Invariants:
//  1. Pieces are 64-byte aligned, disjoint, zero-filled when handed out.
//  2. Pages never handed out are never touched: a large region costs nothing until used.
#ifndef COVEY_CORE_BASE_ARENA_H_
#define COVEY_CORE_BASE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "core/base/copy_on_write.h"
#include "core/base/status.h"

namespace covey {

class Arena {
 public:
  // Maps all of `fd` (mapping_bytes) shared. The heap is [heap_begin, heap_end) of the mapping. The
  // caller holds the first reference. `fd` may be closed afterwards.
  static Status Map(int fd, size_t mapping_bytes, uint64_t heap_begin, uint64_t heap_end,
                    Arena** arena);

  std::byte* base() const { return base_; }

  // Offset in the mapping, or kFull. Free takes what Alloc returned.
  static constexpr uint64_t kFull = ~uint64_t{0};
  uint64_t Alloc(size_t length_bytes);
  void Free(uint64_t offset);

  // The same for memory that leaves the runtime (framework tensors): holds a reference until
  // FreeData.
  void* AllocData(size_t length_bytes);  // null when full
  static void FreeData(void* data);

  // The offset of `data` in the mapping, or kFull when [data, data + length_bytes) is not inside
  // the heap.
  uint64_t OffsetOf(const std::byte* data, size_t length_bytes) const;

  // [data, data + length_bytes) of the mapping, also of others' regions, where this process alone
  // sees what it writes (copy_on_write.h), refreshed. *written: pages of it had been; null: not
  // possible here. It lies there as long as the arena.
  std::byte* PrivateOf(const std::byte* data, size_t length_bytes, size_t* written);

  // In a child of fork(): pages of the mapping that this process writes are its own from now on.
  // Takes no lock: a thread that the child does not have may have held it. Once; its children
  // inherit it.
  void BecomePrivate();

  // Where an arena made later over the same memory may begin its heap: past the tensors still in
  // use, or at this one's begin when there are none.
  uint64_t NextHeapBegin();
  // Gives the pages of the heap back; they read as zeros. REQUIRES: nothing allocated.
  void DropPages();

  void Unref();

 private:
  Arena(int fd, std::byte* base, size_t mapping_bytes, uint64_t heap_begin, uint64_t heap_end);
  ~Arena();
  void Zero(uint64_t offset, uint64_t length);
  void Renew(uint64_t begin, uint64_t end);  // zeros, which need no memory until written

  std::byte* const base_;
  const size_t mapping_bytes_;
  const uint64_t heap_begin_;
  const uint64_t heap_end_;
  const int fd_;
  const uint64_t page_bytes_;  // on aarch64 the kernel's choice: 4, 16 or 64 KiB
  bool is_private_ = false;

  std::mutex mutex_;
  // Protected by mutex_.
  uint64_t high_water_;                  // nothing at or above it was ever handed out
  std::map<uint64_t, uint64_t> free_;    // offset -> length, below high_water_, merged
  std::map<uint64_t, uint64_t> in_use_;  // offset -> length
  int references_ = 1;
  bool has_view_ = false;  // null where it is not possible
  std::unique_ptr<CopyOnWrite> view_;
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_ARENA_H_
