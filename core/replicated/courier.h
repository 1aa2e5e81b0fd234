// Letters as a mailbox takes them: cut into frames and put together again, between the seats of one
// bundle, which are a channel.
//
// A frame says how many frames its writer has taken from its reader. To each seat at most kWindow
// are under way that it has not taken: one that is stopped costs its peers and their network no
// more than these, and what is meant for others passes it by.
//
// Frames of a pair come whole and in order. What they say is checked all the same: memory is taken
// for what has come, never for what a frame announces, and a letter that is longer than it or than
// its reader's limit, or not as long as announced, is dropped whole; the next one comes.
//
// Sans-IO; one thread.
#ifndef COVEY_CORE_REPLICATED_COURIER_H_
#define COVEY_CORE_REPLICATED_COURIER_H_

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/base/wire.h"

namespace covey {

class Courier {
 public:
  static constexpr uint64_t kWindow = 8;
  static constexpr size_t kMostFrameBytes = size_t{256} << 10;

  Courier(uint64_t channel, int32_t size, size_t frame_bytes);

  // Whether a message is a frame, of whatever channel; and of which. REQUIRES for the second, and
  // for OnFrame: it is.
  static bool IsFrame(std::span<const std::byte> message);
  static uint64_t ChannelOf(std::span<const std::byte> frame);

  void Post(int32_t to, Bytes letter);
  // The last one, in one frame: where the window is full it goes beyond it, instead of what was not
  // sent; else after that. Nothing comes after it.
  void PostWord(int32_t to, Bytes letter);
  // To all: nothing comes after this.
  void PostClosing();

  // The frame to `to` that is to be sent now, the same until OnSent; empty: none.
  std::span<const std::byte> Next(int32_t to);
  void OnSent(int32_t to);

  enum class Came : uint8_t {
    kNothing,  // the letter goes on, or it was none
    kLetter,
    kClosing,
    kMalformed,  // it is of no letter of at most `longest_bytes`
  };
  Came OnFrame(int32_t from, std::span<const std::byte> frame, size_t longest_bytes, Bytes* letter);

  // Nothing more goes there.
  void OnLoss(int32_t member);

  // Everything posted was sent.
  bool IsEmpty() const;
  // A letter has come in part.
  bool IsInLetter() const;

 private:
  enum class Kind : uint8_t { kTaken = 1, kPart, kLast, kClosing, kWord };
  struct Peer {
    std::deque<Bytes> letters;
    Bytes word;
    size_t offset = 0;  // of the first that is not sent
    Bytes frame;        // the next one; empty: not made yet
    Kind kind = Kind::kTaken;
    uint64_t sent = 0, taken_there = 0;  // frames of letters to it,
    uint64_t taken = 0, told = 0;        // from it, and as far as it knows
    bool is_closing = false, is_lost = false;
    Bytes letter;               // that comes,
    uint64_t length_bytes = 0;  // and as long as it says it will be
    bool is_dropping = false;   // what comes of this letter, up to its end
  };

  void Make(Peer* peer, Kind kind, std::span<const std::byte> data);
  static Came TakePart(Peer* peer, Kind kind, std::span<const std::byte> data, Bytes* letter);

  uint64_t channel_;
  size_t data_bytes_;  // of a frame at most
  std::vector<Peer> peers_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_COURIER_H_
