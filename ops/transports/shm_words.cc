#include "ops/transports/shm_words.h"

#include <atomic>

#include "core/base/clock.h"
#include "ops/transports/shm_job.h"

namespace covey {
namespace {

// A rank that was killed asleep is counted for ever: its peers then ring in vain, which costs them
// a system call and is never wrong.
struct EventCount {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> sleepers;
};
static_assert(sizeof(EventCount) == sizeof(uint64_t) && std::atomic<uint32_t>::is_always_lock_free);

EventCount* EventCountOf(uint64_t* word) { return reinterpret_cast<EventCount*>(word); }
const EventCount* EventCountOf(const uint64_t* word) {
  return reinterpret_cast<const EventCount*>(word);
}

}  // namespace

uint64_t ShmWords::Load(const uint64_t* word) {
  // shm-O2: earlier reads stay before it. shm-O1: later reads stay behind it.
  std::atomic_thread_fence(std::memory_order_acquire);
  return std::atomic_ref(*const_cast<uint64_t*>(word)).load();
}

void ShmWords::Store(uint64_t* word, uint64_t value) {
  // shm-O1: earlier writes stay before it. shm-O2: later writes stay behind it.
  std::atomic_ref(*word).store(value);
  std::atomic_thread_fence(std::memory_order_release);
}

bool ShmWords::CompareExchange(uint64_t* word, uint64_t expected, uint64_t desired) {
  // shm-O1, shm-O2: as a store. A seq_cst exchange alone lets later writes pass: on aarch64 without
  // LSE between its load and its store.
  const bool is_done = std::atomic_ref(*word).compare_exchange_strong(expected, desired);
  std::atomic_thread_fence(std::memory_order_release);
  return is_done;
}

uint32_t ShmWords::Ticket(const uint64_t* event_count) {
  // shm-O3: who has the ticket of a ring sees what was stored before it.
  return EventCountOf(event_count)->rings.load();
}

void ShmWords::Sleep(uint64_t* event_count, uint32_t ticket, Time until) {
  // shm-M3: Dekker with Ring: the ringer sees the sleeper, or the futex sees another count.
  EventCountOf(event_count)->sleepers.fetch_add(1);
  FutexWait(&EventCountOf(event_count)->rings, ticket, until - MonotonicNow());
  EventCountOf(event_count)->sleepers.fetch_sub(1);
}

void ShmWords::Ring(uint64_t* event_count) {
  EventCountOf(event_count)->rings.fetch_add(1);
  // shm-M3: the ring is counted first, so a sleeper that is not seen here does not sleep.
  if (EventCountOf(event_count)->sleepers.load() > 0) FutexWake(&EventCountOf(event_count)->rings);
}

}  // namespace covey
