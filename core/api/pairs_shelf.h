// The pairs of a runtime, by number. Any thread; Close while nobody uses those.
#ifndef COVEY_CORE_API_PAIRS_SHELF_H_
#define COVEY_CORE_API_PAIRS_SHELF_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/gossip/pairs_port.h"

namespace covey {

class PairsShelf {
 public:
  // Its number. Numbers begin at the time, so that one of an earlier life is not taken for one of
  // this.
  uint64_t Keep(std::unique_ptr<PairsPort> port, Time now);
  PairsPort* Find(uint64_t number);  // null: none
  void Close(uint64_t number);
  // The blocks of closed ones that no member can touch any more; they are the caller's.
  std::vector<uint64_t> TakeUnused();
  // Of all that there are and were.
  CodedCounters Coded();
  // Waits in all of them end.
  void Interrupt();

 private:
  std::mutex mutex_;
  // Protected by mutex_.
  std::map<uint64_t, std::unique_ptr<PairsPort>> open_;
  std::vector<std::unique_ptr<PairsPort>> closed_;
  CodedCounters past_;  // of those that are no more
  uint64_t last_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_API_PAIRS_SHELF_H_
