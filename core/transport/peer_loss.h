// News of a peer that will take no further part.
#ifndef COVEY_CORE_TRANSPORT_PEER_LOSS_H_
#define COVEY_CORE_TRANSPORT_PEER_LOSS_H_

#include <string>

#include "core/base/types.h"

namespace covey {

struct PeerLoss {
  Rank rank = kNoRank;
  std::string how;  // completes the sentence "rank 3 ...": "has left (shut down)"
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_PEER_LOSS_H_
