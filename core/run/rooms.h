// Host memory for messages of device tensors: pieces of this rank's arena, pinned, used again and
// again.
//
// Slabs are pinned once and cut into rooms; what was cut stays a room of its size. Of the arena no
// more than `arena_bytes` are taken, so that landing blocks find theirs; what does not fit comes
// from the heap, where peers reach it more slowly. Baton held.
//
// Invariant: a room is handed out again only after the device has reached the marks it was given
// back with (rule F4 of core/run/ferry.h).
#ifndef COVEY_CORE_RUN_ROOMS_H_
#define COVEY_CORE_RUN_ROOMS_H_

#include <map>
#include <memory>
#include <vector>

#include "core/run/device.h"
#include "core/run/transport.h"

namespace covey {

struct Room {
  std::byte* data = nullptr;  // 64-byte aligned
  size_t length_bytes = 0;    // at least what was asked for
  // Given back with: the last work of each queue on it; 0 = none.
  uint64_t to_host = 0;
  uint64_t to_device = 0;
};

class Rooms {
 public:
  // Both outlive the rooms.
  Rooms(Device* device, Transport* transport, uint64_t arena_bytes)
      : device_(device), transport_(transport), arena_bytes_(arena_bytes) {}
  // REQUIRES: the device has drained.
  ~Rooms();

  Room* Take(size_t length_bytes);
  void GiveBack(Room* room);

  uint64_t pinned_bytes() const { return pinned_bytes_; }  // of slabs
  size_t arena_slabs() const { return arena_slabs_; }      // what is allocated in the arena

 private:
  static constexpr size_t kSlabBytes = size_t{4} << 20;
  static constexpr size_t kPageBytes = 4096;

  struct Slab {
    std::byte* data = nullptr;  // page-aligned
    size_t length_bytes = 0;
    size_t used_bytes = 0;
    uint64_t offset = Transport::kNoOffset;  // in the arena
    std::unique_ptr<std::byte[]> heap;       // if not there
    bool pinned = false;
  };

  void TakeReturned();
  std::byte* Cut(size_t length_bytes);
  Slab NewSlab(size_t length_bytes);

  Device* device_;
  Transport* transport_;
  const uint64_t arena_bytes_;
  uint64_t arena_used_ = 0;
  uint64_t pinned_bytes_ = 0;
  size_t arena_slabs_ = 0;
  std::vector<Slab> slabs_;
  std::vector<std::unique_ptr<Room>> all_;
  std::multimap<size_t, Room*> free_;  // by length
  std::vector<Room*> returning_;       // given back, not yet free
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_ROOMS_H_
