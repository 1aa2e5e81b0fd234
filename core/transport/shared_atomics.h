// 64-bit words in memory that all ranks of a host reach, and event counts to sleep on: all that
// ranks waiting for each other in a round (core/partial) share besides plain bytes.
//
// A transport that shares memory has one of these. Words are 8-byte aligned, in some rank's region,
// zero at first. No call blocks except Sleep. Any thread.
//
// Contract:
//  1. Calls of all ranks on all words have one total order, which agrees with each rank's own.
//  2. A rank that loads a value sees all that was written before its Store or CompareExchange.
//     Reads before a Load stay before it: a reader that finds a word unchanged after reading knows
//     that the bytes were not replaced meanwhile.
//  3. Writes after a Store or CompareExchange stay after it: a reader that has found such bytes and
//     then Loads the word finds that value, or a later one.
//  4. A rank may stop, for ever, between any two calls. A sleeper wakes at `until` at the latest,
//     also when the rank that was to ring has stopped.
#ifndef COVEY_CORE_TRANSPORT_SHARED_ATOMICS_H_
#define COVEY_CORE_TRANSPORT_SHARED_ATOMICS_H_

#include <cstdint>

#include "core/base/types.h"

namespace covey {

class SharedAtomics {
 public:
  virtual ~SharedAtomics() = default;

  virtual uint64_t Load(const uint64_t* word) = 0;
  virtual void Store(uint64_t* word, uint64_t value) = 0;
  // Makes `expected` `desired`; false when the word is another.
  virtual bool CompareExchange(uint64_t* word, uint64_t expected, uint64_t desired) = 0;

  // An event count is a word for these three only. A sleeper takes a ticket, looks once more
  // whether there is work, and Sleeps: that returns when the event count was rung since the ticket,
  // at `until`, or for no reason.
  virtual uint32_t Ticket(const uint64_t* event_count) = 0;
  virtual void Sleep(uint64_t* event_count, uint32_t ticket, Time until) = 0;
  virtual void Ring(uint64_t* event_count) = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_SHARED_ATOMICS_H_
