#include "core/base/copy_on_write.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/base/check.h"

namespace covey {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kAtOnce = 4096;  // pages that are asked for
// Of an entry of pagemap (Linux, Documentation/admin-guide/mm/pagemap.rst).
constexpr uint64_t kPresent = uint64_t{1} << 63;
constexpr uint64_t kSwapped = uint64_t{1} << 62;
constexpr uint64_t kShared = uint64_t{1} << 61;  // of a file, or of shared memory

bool IsOwn(uint64_t entry) {
  // base-V1: a page that was only read is still of the shared file.
  return (entry & (kPresent | kSwapped)) != 0 && (entry & kShared) == 0;
}

}  // namespace

std::unique_ptr<CopyOnWrite> CopyOnWrite::Map(int fd, size_t length_bytes) {
  if (sysconf(_SC_PAGESIZE) != static_cast<long>(kPageBytes)) return nullptr;
  const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (pagemap < 0) return nullptr;
  void* base =
      mmap(nullptr, length_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) {
    close(pagemap);
    return nullptr;
  }
  std::unique_ptr<CopyOnWrite> view(new CopyOnWrite(static_cast<std::byte*>(base), length_bytes,
                                                    fcntl(fd, F_DUPFD_CLOEXEC, 0), pagemap));
  return view->TellsWhatWasWritten() ? std::move(view) : nullptr;
}

CopyOnWrite::~CopyOnWrite() {
  munmap(base_, length_bytes_);
  close(fd_);
  close(pagemap_);
}

// There are systems with a pagemap that says nothing.
bool CopyOnWrite::TellsWhatWasWritten() {
  volatile std::byte* first = base_;
  *first = *first;
  if (Refresh(0, 1) != 1) return false;
  const std::byte read = *first;
  static_cast<void>(read);
  return Refresh(0, 1) == 0;
}

// Whole pages.
void CopyOnWrite::Renew(size_t begin, size_t length_bytes) {
  // base-V2: locked pages are not given back: the others' content is copied over them.
  if (madvise(base_ + begin, length_bytes, MADV_DONTNEED) == 0) return;
  for (size_t done = 0; done < length_bytes;) {
    const ssize_t got =
        pread(fd_, base_ + begin + done, length_bytes - done, static_cast<off_t>(begin + done));
    CHECK(got > 0, "shared memory cannot be read by its descriptor");
    done += static_cast<size_t>(got);
  }
}

size_t CopyOnWrite::Refresh(size_t offset, size_t length_bytes) {
  std::array<uint64_t, kAtOnce> entries;
  const size_t end = (offset + length_bytes + kPageBytes - 1) / kPageBytes;
  const size_t first = reinterpret_cast<uintptr_t>(base_) / kPageBytes;
  size_t written = 0;
  for (size_t page = offset / kPageBytes; page < end;) {
    const size_t count = std::min(kAtOnce, end - page);
    const size_t bytes = count * sizeof(uint64_t);
    const auto at = static_cast<off_t>((first + page) * sizeof(uint64_t));
    if (pread(pagemap_, entries.data(), bytes, at) != static_cast<ssize_t>(bytes))
      entries.fill(kPresent);  // Not known: as if all were.
    for (size_t i = 0; i < count; ++i) {
      size_t run = 0;
      while (i + run < count && IsOwn(entries[i + run])) ++run;
      if (run == 0) continue;
      // base-V2: a page that was written is this process's own until it is renewed.
      Renew((page + i) * kPageBytes, run * kPageBytes);
      written += run;
      i += run;
    }
    // base-V1: all pages are asked for, some at a time.
    page += count;
  }
  return written;
}

}  // namespace covey
