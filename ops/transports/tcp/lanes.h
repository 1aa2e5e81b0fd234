// The lanes of one peer: connections beside the first one, over which large puts travel in parts,
// so that several threads copy and encrypt them.
//
//   none -> meeting (one of the two has a large put) -> open, place by place
//
// Invariants:
//  1. A put that goes by lanes is cut into parts. All parts of a direction are counted, from 0 on,
//     and of L lanes the lane n mod L carries the part n. So a lane's parts land in order.
//  2. A message names the number of the parts that its sender gave before it. It is received once
//     each lane has landed its share of these. Later bytes of the first connection wait behind it.
//  3. A put goes by lanes once all of them are open here; until then, and if it is short, by the
//     first connection.
//  4. The side that dialed the first connection dials the lanes. A lane is accepted if it names
//     the binding of the first connection, once for each place. A second one for a place says that
//     the peer has lost the first: then the peer is lost.
//  5. A lane that ends while a message waits for its parts, or that brings what no rank sends, is
//     the end of the peer.
//
// The link's thread. Nothing blocks, but Close waits for a step of each worker.
#ifndef COVEY_OPS_TRANSPORTS_TCP_LANES_H_
#define COVEY_OPS_TRANSPORTS_TCP_LANES_H_

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "ops/transports/tcp/worker.h"

namespace covey::tcp {

// The lanes of a pair, by COVEY_TCP_STREAMS (0: auto) and the cores of a host with so many ranks. A
// thread of a rank that has no core to spare would only take the engine's.
int32_t CountLanes(int32_t streams, int64_t cores, int64_t ranks);

class Lanes {
 public:
  static constexpr size_t kMost = 4;
  // Below, a put costs less on the first connection than to wake workers on both sides.
  static constexpr size_t kLarge = size_t{128} << 10;
  enum class Landing { kDone, kWait, kEnded };

  // The parts that the lanes of all peers share. Outlives them.
  struct Common {
    const Terms& terms;
    const std::vector<Address>& addresses;  // by rank
    Poller& poller;
    Crew& crew;
    uint64_t first_key = 0;  // of dials: a peer's from kMost * its rank on
  };

  Lanes() = default;
  ~Lanes() { Close(); }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // The first connection to `peer` is open.
  void Agree(const Common* common, Rank peer, const Wire& first, bool dials);
  void Land(std::span<std::byte> memory);
  bool MayMeet() const { return state_ == State::kNone && count_ > 0; }
  void Meet(Time now);
  // The peer's connections are expected at the door.
  bool IsExpected() const { return state_ == State::kMeeting && !dials_; }
  // A dial has something to do: the one of `place`, or all that wait for `now`.
  void Step(size_t place, Time now);
  void Tick(Time now);
  Time Next() const;
  // False: it is no lane of this peer, or `*is_second` (invariant 4).
  bool Adopt(Handshake* known, bool* is_second);
  void Close();

  bool Takes(size_t length) const { return state_ == State::kOpen && length >= kLarge; }
  // False: no room.
  bool Put(uint64_t offset, std::span<const std::byte> data);
  uint64_t given() const { return given_; }  // parts
  // Whether the peer's first `count` parts have landed. kEnded: they never will.
  Landing HasLanded(uint64_t count);
  bool IsConfirmed();
  bool IsSilent(Time lease) const;
  // A lane brings what no rank sends.
  bool IsMalformed() const;
  // The kernel's word for the end of a lane; 0: the peer closed it.
  int error() const;

 private:
  enum class State { kNone, kMeeting, kOpen };
  struct Dial {
    std::unique_ptr<Handshake> handshake;  // null: until `again`
    Time again = kNever;
  };
  static constexpr Time kAgain = 50 * kMillisecond;
  static constexpr size_t kLeastPart = size_t{64} << 10;

  uint64_t KeyOf(size_t place) const;
  void DialAt(size_t place, Time now);
  void StopDial(size_t place);
  void Open(size_t place, std::unique_ptr<Wire> wire);

  const Common* common_ = nullptr;
  Rank peer_ = kNoRank;
  size_t count_ = 0;
  bool dials_ = false;
  Place place_;
  std::span<std::byte> memory_;
  State state_ = State::kNone;
  std::array<std::unique_ptr<Lane>, kMost> lanes_;  // null: not open
  std::array<Dial, kMost> dialing_;
  uint64_t given_ = 0;
};

}  // namespace covey::tcp
#endif  // COVEY_OPS_TRANSPORTS_TCP_LANES_H_
