// A Link (core/transport/link.h) over TCP: a connection for each pair of ranks, made when one of
// them first sends to the other, and lanes for large puts, where the machine has cores for their
// threads (lanes.h).
//
//   idle -> dialing (again and again) -> open -> lost
//        -> open: the peer has dialed
//
// Invariants:
//  1. When both dial at once the connection of the lower rank stays, on both sides.
//  2. What is dialed fails for good once it has failed for a lease: only then is the peer lost. A
//     handshake that waits for a peer to begin has no limit here.
//  3. A pair has one first connection for all time: a peer that is lost or dropped is refused.
//
// One thread at a time. Nothing blocks; descriptor() becomes readable when Receive has something to
// do.
#ifndef COVEY_OPS_TRANSPORTS_TCP_TCP_LINK_H_
#define COVEY_OPS_TRANSPORTS_TCP_TCP_LINK_H_

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/transport/peer_book.h"
#include "ops/transports/tcp/door.h"
#include "ops/transports/tcp/lanes.h"
#include "ops/transports/tcp/poller.h"
#include "ops/transports/tcp/stream.h"

namespace covey::tcp {

class TcpLink {
 public:
  struct Options {
    Rank rank = kNoRank;
    int listener = -1;  // the link's
    Time lease = 0;
    int32_t streams = 0;  // connections for large puts; 0: by the cores, 1: the first one
  };
  static Status Open(const Options& options, const PeerBook& book, std::unique_ptr<TcpLink>* link);

  int descriptor() const { return poller_.fd(); }
  int32_t size() const { return terms_.size; }
  const int32_t* hosts() const { return hosts_.data(); }

  // As of Link.
  bool Send(int32_t to, std::span<const std::byte> message);
  bool Put(int32_t to, uint64_t offset, std::span<const std::byte> data);
  void Land(int32_t from, std::span<std::byte> memory);
  bool Receive(int32_t* from, std::span<const std::byte>* message);
  bool Flushed();
  void Drop(int32_t peer);
  // False: no other. `how` is valid until the next call.
  bool Lost(int32_t* peer, const char** how);
  size_t strangers() const { return door_->size(); }  // that are at the door

 private:
  enum class State { kIdle, kDialing, kOpen, kLost };
  struct Peer {
    State state = State::kIdle;
    Stream stream;
    Lanes lanes;
    bool is_held =
        false;  // `held`, until the puts before it have landed; nothing is read meanwhile
    std::span<const std::byte> held;
    bool is_listed = false;           // in unsent_
    std::unique_ptr<Handshake> dial;  // null: until `again`
    Time again = kNever;              // of the next dial
    Time began = 0;                   // the current dial, or its handshake
    Time trouble = kNever;            // since when dials fail
    std::string how;                  // it failed last
  };
  struct Loss {
    int32_t peer;
    std::string how;
  };
  // Below so many open connections each is looked at without asking the poller.
  static constexpr size_t kFew = 4;
  static constexpr Time kLook = 50 * kMicrosecond;  // then the poller is asked, too
  static constexpr Time kAgain = 50 * kMillisecond;
  static constexpr uint64_t kBell = UINT64_MAX - 1;

  TcpLink(const Options& options, const PeerBook& book);
  bool Want(int32_t to);
  void Dial(int32_t to, Time now);
  void StopDial(int32_t to);
  void StepDial(int32_t to, Time now);
  void Redial(int32_t to, Time now, int error);
  void Adopt(std::unique_ptr<Handshake> known);
  void Open(int32_t peer, std::unique_ptr<Wire> wire, bool dials);
  void Meet(int32_t peer);
  void TurnDoor();
  void Flush(int32_t peer);
  void Watch(int32_t peer);
  void Hold(int32_t peer, bool is_held);
  bool Next(int32_t from, std::span<const std::byte>* message);
  void HearWorkers();
  void FlushAll();
  void BeginPass();
  void Serve(uint64_t key, Time now);
  void Tick(Time now);
  void LoseSilent(Time now);
  void Lose(int32_t peer, std::string how);
  void End(int32_t peer);
  std::string HowEnded(int error, bool is_malformed) const;

  Terms terms_;
  std::vector<Address> addresses_;  // by rank
  std::vector<int32_t> hosts_;
  Poller poller_;
  Crew crew_;
  Lanes::Common common_;
  std::unique_ptr<Door> door_;
  std::vector<Peer> peers_;       // by rank
  std::vector<int32_t> dialing_;  // peers
  std::vector<int32_t> open_;     // peers
  std::vector<int32_t> unsent_;   // peers that have got a put since they were flushed
  std::vector<int32_t> pass_;     // peers whose turn it is, from turn_ on
  size_t turn_ = 0;
  bool in_pass_ = false;
  Time look_ = 0;   // when the poller is asked again, at the latest
  Time check_ = 0;  // when peers are looked at that may be silent
  Time next_ = 0;   // when Tick has something to do
  std::deque<Loss> losses_;
  std::vector<Stream> ended_;  // closed by the next Receive: a message of it may be in use
  std::string how_;
};

}  // namespace covey::tcp
#endif  // COVEY_OPS_TRANSPORTS_TCP_TCP_LINK_H_
