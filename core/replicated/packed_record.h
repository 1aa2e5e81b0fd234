// The record of a version (core/partial/memory.h, results) in few bytes, beside what its entry says
// of the members (replicated_log.h).
//
// A column of words for each field of the contributions, and one of the members' suspicion, as
// packed_words.h has them, each as the difference from what it mostly is:
//
//   column   differs from
//   count    0
//   arrived  the member's last step in any version; for a count of 0 from 0
//   last     the same; for a count of 0 from `arrived`
//   first    the first of `count` steps up to `last`; for a count of 0 from `last`
//   missing  what the entry says
//
// So a record whose members differ only in whether they are in it takes a few bytes and a bit for
// each. Pure.
#ifndef COVEY_CORE_REPLICATED_PACKED_RECORD_H_
#define COVEY_CORE_REPLICATED_PACKED_RECORD_H_

#include <vector>

#include "core/base/wire.h"
#include "core/partial/memory.h"

namespace covey {

// The words of an entry (ReplicatedEntry), which writer and reader have beside the record.
struct MembersAfter {
  const std::vector<uint64_t>& consumed;
  const std::vector<uint64_t>& missing;
};

// `record`: of record_bytes().
void PackRecord(const RoundMemory& of, const MembersAfter& members, const std::byte* record,
                Writer* writer);
// False: there is none, and *record means nothing.
bool UnpackRecord(const RoundMemory& of, const MembersAfter& members, Reader* reader,
                  Bytes* record);
// The largest packed record, in bytes.
size_t MostPackedRecordBytes(const RoundMemory& of);

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_PACKED_RECORD_H_
