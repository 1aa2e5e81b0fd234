// Carries the messages of exchanges between the memory of a device and rooms of the host, in which
// everything else of core/run works on them as on any message.
//
// An exchange of device tensors has a Passage: Board takes a room and points the exchange's spans
// into it; Fetch hands the copies of the input to the device, in legs, so that what comes first can
// be used while the rest is under way; HasCome tells how far they are; Wrote hands over what the
// schedule has put into the output, again while the rest goes on; Leave ends it. Nothing here waits
// for the device: at an exchange's end copies to it may still be under way, and the user's streams
// have been told to come after them.
//
// Invariants:
//  device-F1. Tensor memory is touched only after all ready events of the request have completed.
//  device-F2. A byte of the input is read in its room, here or by a peer, only once it has come.
//  device-F3. What a stream of the request does after the exchange's end comes after every copy of
//      it, however it ended.
//  device-F4. A room serves another exchange only after the last copy from and to it is over.
//
// Progress lock held. After a failure of the device (device-V4) answers are kFailed or false.
#ifndef COVEY_CORE_DEVICE_FERRY_H_
#define COVEY_CORE_DEVICE_FERRY_H_

#include <memory>
#include <vector>

#include "core/base/spans.h"
#include "core/base/tensor.h"
#include "core/device/common_rooms.h"
#include "core/device/device.h"
#include "core/device/rooms.h"

namespace covey {

// One exchange's use of a ferry. Plain state of the Ferry.
struct Passage {
  // Copies to the host up to `end` bytes of the message, over once `mark` is reached.
  struct Leg {
    size_t end = 0;
    uint64_t mark = 0;
  };

  Room* room = nullptr;
  bool in_common = false;  // the room is on the device
  bool is_open = false;    // and peers' devices may be at work on it
  Spans from;  // on the device: the input, in the order of the message; empty: it is not read
  Spans to;    // on the device: the output; empty: the runtime allocates it
  std::byte* input = nullptr;  // in the room
  std::byte* output = nullptr;
  size_t events_complete = 0;  // of the tensors', inputs first: asked for once
  bool fetched = false;
  std::vector<Leg> legs;
  size_t legs_come = 0;
  // Of the output, in the room but not handed over.
  size_t written_begin = 0;
  size_t written_end = 0;
};

class Ferry {
 public:
  struct Counters {
    uint64_t to_host_bytes = 0;
    uint64_t to_device_bytes = 0;
  };

  // Both outlive the ferry.
  Ferry(Device* device, SharedRegions* regions, uint64_t arena_bytes)
      : device_(device), rooms_(device, regions, arena_bytes) {
    if (device->commons() != nullptr && regions->SharesWithAll())
      common_ = std::make_unique<CommonRooms>(device, device->commons(), regions);
  }
  ~Ferry() { device_->Drain(); }

  // `input` and `output` are the exchange's spans over device memory, which then lie in a room.
  Passage* Board(const Request& request, Spans* input, Spans* output);
  // The same in a room that peers' devices reach: the output lies where the input does, but for a
  // reducescatter's, which lies behind it. Null: there is no such room.
  Passage* BoardInCommon(const Request& request, Spans* input, Spans* output);

  Device::Answer IsReady(void* event) { return device_->IsReady(event); }
  // In legs of `leg_bytes` at least; 0: in one. REQUIRES: device-F1; once. False: the device has
  // failed.
  bool Fetch(Passage* passage, size_t leg_bytes);
  // Whether the first `end` bytes of the input are in the room. REQUIRES: Fetch, or end == 0.
  Device::Answer HasCome(Passage* passage, size_t end);
  // The host has written these bytes of the output. False: the device has failed.
  bool Wrote(Passage* passage, size_t begin, size_t length);
  // Hands over what is left if the exchange is done, and orders the streams of the request
  // (device-F3). The passage is gone. False: the device has failed.
  bool Leave(Passage* passage, const Request& request, bool done);

  std::string Failure() { return device_->Failure(); }
  uint64_t SynchronousCalls() const { return device_->SynchronousCalls(); }
  const Counters& counters() const { return counters_; }
  const Rooms& rooms() const { return rooms_; }
  // Null: no memory of the device is in common.
  CommonRooms* common() const { return common_.get(); }
  Device* device() { return device_; }

 private:
  Passage* NewPassage(const Request& request, const Spans& input, const Spans& output);
  void PointInto(Passage* passage, size_t output_offset, Spans* input, Spans* output);
  bool Copy(const Passage& passage, Device::Queue queue, std::byte* to, const std::byte* from,
            size_t length_bytes);
  bool HandOver(Passage* passage);

  Device* device_;
  Rooms rooms_;
  std::unique_ptr<CommonRooms> common_;
  std::vector<std::unique_ptr<Passage>> all_;
  std::vector<Passage*> free_;
  Counters counters_;
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_FERRY_H_
