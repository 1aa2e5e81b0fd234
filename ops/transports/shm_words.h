// Shared words between processes of one host: atomics, and a futex for each event count.
#ifndef COVEY_OPS_TRANSPORTS_SHM_WORDS_H_
#define COVEY_OPS_TRANSPORTS_SHM_WORDS_H_

#include "core/transport/shared_atomics.h"

namespace covey {

class ShmWords final : public SharedAtomics {
 public:
  uint64_t Load(const uint64_t* word) override;
  void Store(uint64_t* word, uint64_t value) override;
  bool CompareExchange(uint64_t* word, uint64_t expected, uint64_t desired) override;

  uint32_t Ticket(const uint64_t* event_count) override;
  void Sleep(uint64_t* event_count, uint32_t ticket, Time until) override;
  void Ring(uint64_t* event_count) override;
};

}  // namespace covey
#endif  // COVEY_OPS_TRANSPORTS_SHM_WORDS_H_
