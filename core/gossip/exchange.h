// How two models become their mean at once, though two words say where they lie: an exchange.
//
//   record      event                                            record after
//   -           Commit: both means are written, both found free  open
//   open        both model words are engaged, lower member first committed
//   open        one of them is no longer what the record says    aborted
//   committed   model words: the initiator's buffers
//   aborted     model words: as before, with the next number
//
// A rank that meets an engaged word carries the exchange to its end, by words alone, so no rank
// waits for an initiator that was stopped, and none is blocked. The exchange is aborted only when a
// rank has changed one of the two models meanwhile: that change stands.
//
// (The conditional multi-word exchange of Harris, Fraser, Pratt: A Practical Multi-Word
// Compare-and-Swap Operation, DISC 2002, doi:10.1007/3-540-36108-1_18, of two words; numbers that
// only grow stand for its conditional step.)
#ifndef COVEY_CORE_GOSSIP_EXCHANGE_H_
#define COVEY_CORE_GOSSIP_EXCHANGE_H_

#include "core/gossip/memory.h"
#include "core/transport/shared_atomics.h"

namespace covey {

class PairExchange {
 public:
  // Both outlive it. One for each rank, whose number is `self`.
  PairExchange(int32_t self, const PairMemory* memory, SharedAtomics* words)
      : self_(self), memory_(memory), words_(words) {}

  // Where model i lies, when no exchange is being decided about it: free.
  ModelWord Settled(int32_t i);

  // Both models are what lies in this rank's two buffers (or one: their mean), if they still are
  // what `record` says. REQUIRES: no model word names those buffers.
  bool Commit(const PairRecord& record);

 private:
  void Help(const ModelWord& engaged);
  void Decide(int32_t initiator, uint64_t number, const PairRecord& record);
  bool Engage(int32_t i, const ModelWord& expected, const ModelWord& engaged);

  int32_t self_;
  const PairMemory* memory_;
  SharedAtomics* words_;
  uint64_t number_ = 0;  // of the last one that this rank has begun
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_EXCHANGE_H_
