#include "core/transport/window.h"

namespace covey {

SeqLock WindowAt(Transport* transport, Rank rank, uint64_t offset) {
  return {reinterpret_cast<uint64_t*>(transport->Base(rank) + offset), transport->words()};
}

WindowState LookAtWindow(Transport* transport, Rank rank, uint64_t offset,
                         std::span<void* const> to, std::span<const uint64_t> lengths_bytes,
                         uint64_t* version) {
  const SeqLock window = WindowAt(transport, rank, offset);
  const std::byte* base = transport->Base(rank);
  uint64_t seen = 0;
  *version = 0;
  if (transport->IsLost(rank)) {
    // An owner that leaves in good order closes it, or gives the memory back, which is zero then.
    const bool is_open = window.Peek(base, {}, {}, &seen) == SeqLock::Found::kWhole;
    return is_open ? WindowState::kLost : WindowState::kClosed;
  }
  const SeqLock::Found found = window.Peek(base, to, lengths_bytes, &seen);
  if (found != SeqLock::Found::kClosed) *version = seen;
  return static_cast<WindowState>(found);
}

}  // namespace covey
