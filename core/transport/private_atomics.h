// Words that one process alone reaches, one thread at a time.
#ifndef COVEY_CORE_TRANSPORT_PRIVATE_ATOMICS_H_
#define COVEY_CORE_TRANSPORT_PRIVATE_ATOMICS_H_

#include "core/transport/shared_atomics.h"

namespace covey {

class PrivateAtomics : public SharedAtomics {
 public:
  uint64_t Load(const uint64_t* word) override { return *word; }
  void Store(uint64_t* word, uint64_t value) override { *word = value; }
  bool CompareExchange(uint64_t* word, uint64_t expected, uint64_t desired) override {
    if (*word != expected) return false;
    *word = desired;
    return true;
  }
  uint32_t Ticket(const uint64_t*) override { return 0; }
  void Sleep(uint64_t*, uint32_t, Time) override {}
  void Ring(uint64_t*) override {}
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_PRIVATE_ATOMICS_H_
