// How the members of a group agree on what is opened, with a block of each one's memory: what
// rounds and pairs have in common.
#ifndef COVEY_CORE_API_C_API_OFFERS_H_
#define COVEY_CORE_API_C_API_OFFERS_H_

#include <string>
#include <vector>

#include "core/api/covey.h"
#include "core/api/runtime_handle.h"
#include "core/base/status.h"
#include "core/base/tensor.h"
#include "core/partial/layout.h"
#include "core/transport/transport.h"

namespace covey {

// As the caller gives them.
struct SpanList {
  int32_t count;
  const covey_dtype* dtypes;
  const int64_t* counts;
};

// `what` begins the message: "rounds".
Status CheckSpans(const char* what, const SpanList& spans);
std::string TextOf(const SpanList& spans);  // "spans float32[10], float32[20]"
RoundLayout LayoutOf(const SpanList& spans);

// Rounds or pairs that this rank is about to open.
struct Proposal {
  const char* kind;        // "rounds"
  const char* name;        // as the caller has it
  covey_group group = 0;   // of which this rank is a member
  std::string text;        // one line: all that must agree
  Status enough;           // an error: it needs more memory than is allowed; alike on all members
  bool has_block = false;  // `offset` is that of a block of this rank's region, or of none,
  uint64_t offset = Transport::kNoOffset;  // else a channel for all
};

// The group of this number, of which this rank is a member.
Status FindOwnGroup(const Use& use, covey_group number, const Group** group);

// Blocks until all members have proposed theirs. If they agree, and all have room: the offsets of
// all, by index. Else the same error on each, and the block is given back.
Status Agree(const Use& use, covey_runtime* runtime, const Proposal& mine,
             std::vector<uint64_t>* offsets);

}  // namespace covey
#endif  // COVEY_CORE_API_C_API_OFFERS_H_
