// Messages of replicas as a mailbox takes them: cut into frames and put together again, between the
// replicas of one bundle, which are a channel.
//
// A sliding window: a frame says how many frames its writer has taken from its reader. To each
// replica at most kWindow are under way that it has not taken: one that is stopped costs its peers
// and their network no more than these, and other messages pass it by.
//
// Frames of a pair come whole and in order. Their content is checked all the same: memory is taken
// for bytes that have come, never for a length that a frame announces, and a message that is longer
// than it or than its reader's limit, or not as long as announced, is dropped whole; the next one
// comes.
//
// A message that goes in one frame is not copied: its writer gives the frame in parts, from where
// they lie, and its reader keeps the frame. Sans-IO; one thread.
#ifndef COVEY_CORE_REPLICATED_FRAGMENTER_H_
#define COVEY_CORE_REPLICATED_FRAGMENTER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/base/counted_bytes.h"
#include "core/base/wire.h"

namespace covey {

class Fragmenter {
 public:
  static constexpr uint64_t kWindow = 16;
  // A mailbox of 256 KiB (ops/transports/shm_job.h) has room for two: one is read meanwhile.
  static constexpr size_t kMostFrameBytes = size_t{124} << 10;

  Fragmenter(uint64_t channel, int32_t size, size_t frame_bytes);

  // Whether what a mailbox has is a frame, of whatever channel; and of which. REQUIRES for the
  // second, and for OnFrame: it is.
  static bool IsFrame(std::span<const std::byte> mail);
  static uint64_t ChannelOf(std::span<const std::byte> frame);

  // `head`, then `body`.
  void Enqueue(int32_t to, Bytes head, Slice body = {});
  // The last one, in one frame: where the window is full it goes beyond it, instead of what was not
  // sent; else after that. Nothing comes after it.
  void EnqueueLeave(int32_t to, Bytes message);
  // To all: nothing comes after this.
  void EnqueueClosing();

  // The frame to `to` that is to be sent now, the same until OnSent; empty: none.
  Parts Next(int32_t to);
  void OnSent(int32_t to);

  enum class Received : uint8_t {
    kNothing,  // the message goes on, or it was none
    kMessage,
    kClosing,
    kMalformed,  // it is of no message of at most `longest_bytes`
  };
  // *message begins where elements of any type may.
  Received OnFrame(int32_t from, Bytes frame, size_t longest_bytes, Slice* message);

  // Nothing more goes there.
  void OnLoss(int32_t member);

  // Everything queued was sent.
  bool IsEmpty() const;
  // A message has come in part.
  bool IsInMessage() const;

 private:
  enum class Kind : uint8_t { kTaken = 1, kPart, kLast, kClosing, kLeave };
  struct Message {
    Bytes head;
    Slice body;
    size_t size() const { return head.size() + body.size(); }
  };
  static constexpr size_t kHeadBytes = 32;
  struct Peer {
    std::deque<Message> messages;
    Bytes leave;
    size_t offset = 0;  // of the first that is not sent
    // The next frame: its head, and what it has of a message's head and body.
    std::array<std::byte, kHeadBytes> head = {};
    std::array<std::span<const std::byte>, 3> parts = {};
    size_t parts_made = 0;  // 0: it is not made yet
    Kind kind = Kind::kTaken;
    uint64_t sent = 0, taken_there = 0;  // frames of messages to it,
    uint64_t taken = 0, told = 0;        // from it, and as far as it knows
    bool is_closing = false, is_lost = false;
    Bytes message;              // that comes,
    uint64_t length_bytes = 0;  // and as long as it says it will be
    bool is_dropping = false;   // frames of this message, up to its end
  };

  void Make(Peer* peer, Kind kind, std::span<const std::byte> head, const Slice& body);
  void MakePart(Peer* peer);
  static Received TakePart(Peer* peer, Kind kind, Bytes frame, Slice* message);

  uint64_t channel_;
  size_t data_bytes_;  // of a frame at most
  std::vector<Peer> peers_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_FRAGMENTER_H_
