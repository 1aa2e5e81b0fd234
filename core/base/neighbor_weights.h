// The neighbors of one member of a neighbor_allreduce, as its engine tells the others.
//
// A table of words, TableWords(members) of them (core/base/channel.h), by group index: for each
// member the weight of what comes from it, as the bits of a double (0: nothing comes; the own
// weight stands there, too); then one bit for each member it sends to. The own bit says that it
// sends to all members that take from it, and no other bit counts then.
//
// Rules:
//  neighbors-G1. The table goes with the begin, and where a begin was void with the announcement:
//      peers and weights may change from one occurrence to the next, without a message. When all
//      have begun every member looks at all tables. Where two do not say the same of each other the
//      exchange is void (agree-N5), on all, and the coordinator answers with an error that names
//      them. A row that is wrong by itself begins void.
//  neighbors-G2. A rank's result is the sum, in rank order, of what those its own row names have
//      handed in, each times its weight there; in the accumulator type, rounded once.
//  neighbors-G3. Where memory is mirrored, the staged data of a begin goes to those the own table
//      sends to.
//  neighbors-G4. With a codec Q a result is what the rank itself has handed in, moved by the sum of
//      weights times differences: Q of a peer's less Q of the own. All round with the same draws.
//      So the sum of all stays where columns of weights sum to 1, and equal ones are not moved.
//
// Pure; any thread.
#ifndef COVEY_CORE_BASE_NEIGHBOR_WEIGHTS_H_
#define COVEY_CORE_BASE_NEIGHBOR_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace covey {

using PeerTable = std::span<const uint64_t>;

// The table of member `me`, which takes from none and sends to none.
std::vector<uint64_t> NewPeerTable(size_t members, size_t me);
void SetWeight(size_t from, double weight, std::vector<uint64_t>* table);
void SetReceiver(size_t members, size_t to, std::vector<uint64_t>* table);

double WeightOf(PeerTable table, size_t from);
// Whether member `me` sends to `to`; whether it sends to all that take from it.
bool SendsTo(PeerTable table, size_t members, size_t to);
inline bool SendsToAny(PeerTable table, size_t members, size_t me) {
  return SendsTo(table, members, me);
}

// Two members that do not say the same of each other: `receiver` takes from `sender`, which does
// not send to it, or (`takes` false) the other way round. The first in the order of receivers.
struct PeerConflict {
  size_t receiver = 0;
  size_t sender = 0;
  bool takes = false;
};
// False: all agree. `tables` by group index.
bool FindConflict(std::span<const PeerTable> tables, PeerConflict* conflict);
// "rank 0 takes from rank 1, which does not send to rank 0"; `ranks` by group index.
std::string Describe(const PeerConflict& conflict, std::span<const int32_t> ranks);

}  // namespace covey
#endif  // COVEY_CORE_BASE_NEIGHBOR_WEIGHTS_H_
