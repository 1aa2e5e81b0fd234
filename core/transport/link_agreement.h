// The ranks of a job choose together between a link that all have and a faster one, before anything
// else goes over the former: the faster one is used if no rank has an obstacle.
//
// Each rank tells rank 0, which tells all. Other messages may come before its word: to a rank that
// hears late, of one that goes on already.
#ifndef COVEY_CORE_TRANSPORT_LINK_AGREEMENT_H_
#define COVEY_CORE_TRANSPORT_LINK_AGREEMENT_H_

#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/wire.h"
#include "core/transport/link.h"

namespace covey {

struct LinkVerdict {
  Rank hindered = kNoRank;  // the lowest rank that has an obstacle; kNoRank: there is none
  std::string obstacle;     // its words
  std::vector<std::pair<Rank, Bytes>> early;  // what has come besides, in order
};

// `obstacle` is this rank's, empty: none. Equal on all ranks: the verdict, but for what is early.
// Errors: a peer is lost, has not come at `deadline`, or does not take part.
Status AgreeOnLink(Link* link, std::string obstacle, Time deadline, LinkVerdict* verdict);

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_LINK_AGREEMENT_H_
