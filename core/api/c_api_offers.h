// How the members of a group agree on what is opened, with a block of each one's memory: what
// rounds and pairs have in common.
#ifndef COVEY_CORE_API_C_API_OFFERS_H_
#define COVEY_CORE_API_C_API_OFFERS_H_

#include <string>
#include <vector>

#include "core/api/covey.h"
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

// What every member tells the others: the offset of its block, or a channel for all, and one line
// that says all that must agree.
struct BlockOffer {
  uint64_t offset = Transport::kNoOffset;
  std::string text;
};

// Gathers those of every member, by index, under `name`. Blocks.
Status Gather(covey_runtime* runtime, covey_group group, const std::string& name,
              const BlockOffer& mine, std::vector<BlockOffer>* offers);

// Alike on all members: whether they agree. `what`: "rounds 'NAME'"; `enough`: whether the shape,
// once agreed, is allowed.
Status Judge(const Group& group, const std::string& what, const std::vector<BlockOffer>& offers,
             const Status& enough);

}  // namespace covey
#endif  // COVEY_CORE_API_C_API_OFFERS_H_
