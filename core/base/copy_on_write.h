// Shared memory at a second address, where this process may write unseen by others. Pages not
// written there read as others write them; a page that is written becomes this process's own (copy
// on write) until it is refreshed.
//
// So tensors of a framework can lie in what all ranks read, and an operation in place spoils
// nothing. It is for memory that is seldom written: a written page costs a fault, a thousandfold of
// a write. Which pages those are is asked of the kernel (/proc/self/pagemap), so that no way of
// writing goes unnoticed. Any thread; not in a forked child.
#ifndef COVEY_CORE_BASE_COPY_ON_WRITE_H_
#define COVEY_CORE_BASE_COPY_ON_WRITE_H_

#include <cstddef>
#include <memory>

namespace covey {

class CopyOnWrite {
 public:
  // Of all of `fd`, which may be closed afterwards: the view keeps a descriptor of its own. Null
  // where the system does not allow it, or does not tell what was written.
  static std::unique_ptr<CopyOnWrite> Map(int fd, size_t length_bytes);
  ~CopyOnWrite();
  CopyOnWrite(const CopyOnWrite&) = delete;
  CopyOnWrite& operator=(const CopyOnWrite&) = delete;

  std::byte* base() const { return base_; }

  // The pages that [offset, offset + length_bytes) lies in are what they are in shared memory. The
  // kernel does not drop those that the process has locked (mlock): they are copied from there.
  // Returns how many of them had been written here, or were locked.
  size_t Refresh(size_t offset, size_t length_bytes);

 private:
  CopyOnWrite(std::byte* base, size_t length_bytes, int fd, int pagemap)
      : base_(base), length_bytes_(length_bytes), fd_(fd), pagemap_(pagemap) {}
  bool TellsWhatWasWritten();
  void Renew(size_t begin, size_t length_bytes);

  std::byte* const base_;
  const size_t length_bytes_;
  const int fd_;
  const int pagemap_;
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_COPY_ON_WRITE_H_
