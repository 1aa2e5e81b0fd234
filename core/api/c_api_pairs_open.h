// The pairs of a part of a training: agrees on them, and opens them.
#ifndef COVEY_CORE_API_C_API_PAIRS_OPEN_H_
#define COVEY_CORE_API_C_API_PAIRS_OPEN_H_

#include <string>

#include "core/api/c_api_offers.h"
#include "core/api/covey.h"
#include "core/api/runtime_handle.h"
#include "core/base/status.h"

namespace covey {

struct PairsConfig {
  std::string name;  // members open the same names in the same order
  covey_group group = 0;
  const covey_method* method = nullptr;  // null: the knob `method`
  int64_t from = 0;  // they are those of the part of the method that holds at this version
  SpanList spans;
};

// By their numbers in the session.
struct OpenedPairs {
  uint64_t pairs = 0;
  uint64_t mean = 0;  // rounds, of members that do not all share memory; 0: there are none
};

// Every member calls it; waits for all. PairsPort::Begin is to come. kMismatch on every member
// when name, method or spans differ, kExhausted when one has no room; kUnsupported: Covey's thread
// may not use the network between them.
Status OpenPairs(const Use& use, covey_runtime* runtime, const PairsConfig& config,
                 OpenedPairs* opened);

}  // namespace covey
#endif  // COVEY_CORE_API_C_API_PAIRS_OPEN_H_
