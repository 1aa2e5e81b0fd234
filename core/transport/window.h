// The windows of ranks (core/transport/seqlock.h), by where they lie in their rank's region.
//
// REQUIRES: the ranks share memory (SharedRegions::words is not null). Any thread.
#ifndef COVEY_CORE_TRANSPORT_WINDOW_H_
#define COVEY_CORE_TRANSPORT_WINDOW_H_

#include <cstdint>
#include <span>

#include "core/transport/seqlock.h"
#include "core/transport/transport.h"

namespace covey {

// The result of a look; the first four as SeqLock::Found has them.
enum class WindowState : uint8_t {
  kWhole,
  kNothing,
  kChanging,
  kClosed,
  kLost,  // the rank has died, or left without closing it
  // There is no window: the rank shares no memory with this one, and is asked for its model.
  kAsked,
};

SeqLock WindowAt(Transport* transport, Rank rank, uint64_t offset);

// SeqLock::Peek of the window of `rank`. *version is 0 with kClosed and kLost.
WindowState LookAtWindow(Transport* transport, Rank rank, uint64_t offset,
                         std::span<void* const> to, std::span<const uint64_t> lengths_bytes,
                         uint64_t* version);

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_WINDOW_H_
