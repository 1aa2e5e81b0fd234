// The results of the last versions, shared by all ranks of a host (partial-W10, first part).
//
// Version v is found through log word v % log until version v + log has ended; a version of all
// models until the next of these has. A result is never changed while it can be found, and a buffer
// is used again only when it can neither be found nor is pinned or held. Readers that copy pin
// nothing: they read and look whether it can still be found. A reader in place holds the buffer,
// one at a time, and then looks whether it can be found.
#ifndef COVEY_CORE_PARTIAL_LOG_H_
#define COVEY_CORE_PARTIAL_LOG_H_

#include <span>
#include <vector>

#include "core/base/kernels.h"
#include "core/partial/eager_copy.h"
#include "core/partial/memory.h"

namespace covey {

// The record of a version that has ended; equal on all ranks.
struct RoundRecord {
  RecordHeader header;
  std::vector<Contribution> contributions;  // by member
  std::vector<uint64_t> missing;            // by member: Suspicion::missing, after the version
  std::vector<double> hypers;               // the leader's, or the most steps; empty without one
};

// The record that lies at `from`; its layout is that of `memory`, which need not be mapped.
void ReadRecord(const RoundMemory& memory, const std::byte* from, RoundRecord* record);

enum class Found : uint8_t { kYes, kNotYet, kGone };

class ResultLog {
 public:
  ResultLog(const RoundMemory* memory, SharedAtomics* words, const Kernels* kernels)
      : memory_(memory), words_(words), kernels_(kernels) {}

  // A buffer for the version that comes. REQUIRES: nothing has fired since the state was read for
  // which this is used, else the answer is worthless (and the exchange of the state word refused).
  uint32_t FreeBuffer() const;

  // `version` lies in `buffer` from now on; nothing when that is so, or was.
  void Enter(uint64_t version, uint32_t buffer);
  bool Has(uint64_t version) const;

  // Copies the spans of `version` to to[0], to[1], ... (`to` may be empty, an address null), and
  // the record (which may be null). Nothing of it is to be used unless kYes. `eager`: what of it
  // lies there already; null: nothing.
  Found Read(uint64_t version, std::span<void* const> to, RoundRecord* record,
             const EagerCopy* eager = nullptr) const;

  // Member `self` holds the result of `version` from now on, *result, instead of what it has held:
  // it stays as it is. Unless kYes it holds none.
  Found Hold(int32_t self, uint64_t version, const std::byte** result) const;
  void Release(int32_t self) const { words_->Store(memory_->HoldAt(self), 0); }

 private:
  void CopySpans(uint64_t version, const std::byte* from, std::span<void* const> to,
                 const EagerCopy* eager) const;

  const RoundMemory* memory_;
  SharedAtomics* words_;
  const Kernels* kernels_;
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_LOG_H_
