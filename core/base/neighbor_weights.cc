#include "core/base/neighbor_weights.h"

#include <bit>

#include "core/base/channel.h"

namespace covey {

std::vector<uint64_t> NewPeerTable(size_t members, size_t me) {
  std::vector<uint64_t> table(TableWords(members), 0);
  SetWeight(me, 1, &table);
  return table;
}

void SetWeight(size_t from, double weight, std::vector<uint64_t>* table) {
  (*table)[from] = std::bit_cast<uint64_t>(weight);
}

void SetReceiver(size_t members, size_t to, std::vector<uint64_t>* table) {
  (*table)[members + to / 64] |= uint64_t{1} << (to % 64);
}

double WeightOf(PeerTable table, size_t from) { return std::bit_cast<double>(table[from]); }

bool SendsTo(PeerTable table, size_t members, size_t to) {
  return (table[members + to / 64] >> (to % 64) & 1) != 0;
}

bool FindConflict(std::span<const PeerTable> tables, PeerConflict* conflict) {
  const size_t members = tables.size();
  for (size_t i = 0; i < members; ++i) {
    for (size_t j = 0; j < members; ++j) {
      if (i == j || SendsToAny(tables[j], members, j)) continue;
      const bool takes = WeightOf(tables[i], j) != 0;
      if (takes == SendsTo(tables[j], members, i)) continue;
      *conflict = {.receiver = i, .sender = j, .takes = takes};
      return true;
    }
  }
  return false;
}

std::string Describe(const PeerConflict& conflict, std::span<const int32_t> ranks) {
  const std::string receiver = "rank " + std::to_string(ranks[conflict.receiver]);
  const std::string sender = "rank " + std::to_string(ranks[conflict.sender]);
  return conflict.takes
             ? receiver + " takes from " + sender + ", which does not send to " + receiver
             : sender + " sends to " + receiver + ", which does not take from " + sender;
}

}  // namespace covey
