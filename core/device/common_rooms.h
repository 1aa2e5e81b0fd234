// Rooms on the device (core/device/commons.h) for messages that the devices of a host reduce among
// themselves: those of this rank, and those of peers as seen from here.
//
// Slabs are allocated once, cut into rooms (core/device/room_pool.h) and never given back: peers
// have them open. A room has a word by which every rank of the host finds it: where its slab's key
// lies in its owner's region, and how far into the slab it is. Progress lock held.
#ifndef COVEY_CORE_DEVICE_COMMON_ROOMS_H_
#define COVEY_CORE_DEVICE_COMMON_ROOMS_H_

#include <map>
#include <utility>
#include <vector>

#include "core/device/commons.h"
#include "core/device/room_pool.h"
#include "core/transport/shared_regions.h"

namespace covey {

class CommonRooms {
 public:
  // All three outlive the rooms.
  CommonRooms(Device* device, Commons* commons, SharedRegions* regions)
      : device_(device),
        commons_(commons),
        regions_(regions),
        pool_(device, kLeastBytes, [this](size_t length_bytes) { return Cut(length_bytes); }) {}
  // REQUIRES: the device has drained.
  ~CommonRooms();

  // Null: the device has no memory left, or the arena none for a key.
  Room* Take(size_t length_bytes);
  void GiveBack(Room* room) { pool_.GiveBack(room); }

  // Even; 0: null was given.
  uint64_t WordOf(const Room* room) const;
  // A word of this rank's, with which peers find out whether they reach its rooms; 0: it has none.
  uint64_t Probe();
  // The room of `peer` with this word, opened if that is new. Null: it cannot be reached.
  std::byte* Find(Rank peer, uint64_t word);
  // The peer is gone: what is open of it is closed once the queues are through with it.
  void Forget(Rank peer);

  Commons* commons() const { return commons_; }
  size_t slabs() const { return slabs_.size(); }
  size_t open_slabs() const { return opened_.size() + closing_.size(); }  // of peers

 private:
  static constexpr size_t kLeastBytes = 4096;
  static constexpr size_t kUnit = 256;  // rooms begin at multiples of it

  struct Slab {
    std::byte* data = nullptr;
    size_t length_bytes = 0;
    size_t used_bytes = 0;
    uint64_t key_offset = 0;  // in the own region
  };
  struct Closing {
    std::byte* data;
    uint64_t mark;  // of the queue that reduces
  };

  void CloseForgotten();
  std::byte* Cut(size_t length_bytes);
  bool AddSlab(size_t length_bytes);

  Device* device_;
  Commons* commons_;
  SharedRegions* regions_;
  Room* probe_ = nullptr;
  std::vector<Slab> slabs_;
  RoomPool pool_;
  std::map<std::pair<Rank, uint64_t>, std::byte*> opened_;  // by owner and place of the key
  std::vector<Closing> closing_;
  std::vector<Rank> gone_;
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_COMMON_ROOMS_H_
