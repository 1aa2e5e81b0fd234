// The cases of orders_test: what a few threads do with the shared words of one part of Covey, and
// what the headers of that part promise of it.
#ifndef COVEY_TESTS_ORDERS_CASES_H_
#define COVEY_TESTS_ORDERS_CASES_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/orders/execution.h"

namespace covey {

struct NamedCase {
  std::string name;
  std::unique_ptr<OrdersCase> (*make)();
  OrdersBounds bounds;  // of every run of the tests
};

// core/transport: windows, mailboxes and sleepers in shared memory.
std::vector<NamedCase> TransportCases();
// core/transport/event_count.h: threads that sleep at an event count.
std::vector<NamedCase> WaiterCases();
// core/engine: threads that wait for operations, and the progress lock.
std::vector<NamedCase> EngineCases();
// core/partial: versions of a bundle, read from the log.
std::vector<NamedCase> PartialCases();
// core/partial: versions of models, and snapshots for those that have fallen out of the log.
std::vector<NamedCase> ModelCases();
// core/transport/one_shot.h: a descriptor that wakes a thread once.
std::vector<NamedCase> OneShotCases();
// core/transport/mirrored.h: threads that sleep at a network.
std::vector<NamedCase> MirroredCases();
// core/gossip: models averaged in pairs.
std::vector<NamedCase> GossipCases();

// Mappings for the threads of a case, and one for its Begin and End.
class Mappings {
 public:
  Mappings(Execution* execution, int threads, size_t length_bytes);
  std::byte* operator[](int thread) const { return mappings_[static_cast<size_t>(thread)]; }

 private:
  std::vector<std::vector<uint64_t>> memory_;
  std::vector<std::byte*> mappings_;
};

}  // namespace covey
#endif  // COVEY_TESTS_ORDERS_CASES_H_
