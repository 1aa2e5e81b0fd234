// How two ranks that have a TCP connection come to know each other.
//
//   dialing                               accepting
//   ClientHello: the key's name    --->   another name: closed
//                                  <---   ServerHello .. Finished, by the key
//   Finished; Hello{from, to, ..}  --->   not this rank, not of this job: closed
//                                  <---   Hello{from, to, ..}, once the link wants this connection
//
// A pair's first connection is followed by lanes (lanes.h). The Hello of a lane names its place and
// proves that it belongs to the first connection: by a value that TLS derives from that one's
// handshake (RFC 8446, section 7.5), which only its two ends have.
//
// Keys are drawn for each start of a job and made of `size` and the mode, too. Random values of
// both sides enter TLS's keys, so a record of one handshake opens no other; and each side names
// both ranks under the key, so that no rank takes another's place.
//
// Nothing blocks, and the dialing side has no limit of time: its peer may not have begun to listen
// to the connections in its backlog. One thread.
#ifndef COVEY_OPS_TRANSPORTS_TCP_HANDSHAKE_H_
#define COVEY_OPS_TRANSPORTS_TCP_HANDSHAKE_H_

#include <array>
#include <memory>
#include <span>

#include "ops/transports/tcp/socket.h"
#include "ops/transports/tcp/tls.h"

namespace covey::tcp {

// The terms that all connections of a rank have in common. Outlives them.
struct Terms {
  Rank rank = kNoRank;
  int32_t size = 0;
  Time lease = 0;
  bool encrypts = true;  // else TLS ends with the handshake
  std::unique_ptr<TlsKey> key;
  int32_t lanes = 0;  // that this rank would have with each peer
};

// Which connection of its pair.
struct Place {
  int32_t lane = -1;                        // -1: the first one
  std::array<unsigned char, 16> binding{};  // of a lane: the first connection's
};

// A connection between ranks that know each other. Stays where it is.
struct Wire {
  Socket socket;
  std::unique_ptr<Tls> tls;                 // null: in the clear
  int32_t lanes = 0;                        // that both sides would have
  std::array<unsigned char, 16> binding{};  // for the lanes of a first connection
};

class Handshake {
 public:
  // Dials `to`; the socket connects.
  Handshake(const Terms& terms, Socket socket, Rank to, const Place& place = {});
  // Accepts; `greeting` has been read from the socket.
  Handshake(const Terms& terms, Socket socket, std::span<const std::byte> greeting);

  // kDone: peer() is known, and an accepting side may Agree. kEnded: it is to be closed.
  Outcome Step();
  // The accepting side's Hello. False: the connection is over.
  bool Agree();
  // REQUIRES: Step said kDone and, on the accepting side, Agree has succeeded.
  std::unique_ptr<Wire> Take();

  Rank peer() const { return peer_; }
  const Place& place() const { return place_; }
  int fd() const { return wire_->socket.fd(); }
  int error() const { return wire_->socket.error(); }
  bool is_connecting() const { return stage_ == Stage::kConnecting; }

 private:
  enum class Stage { kConnecting, kShaking, kHearing, kKnown };
  struct Hello {
    std::array<char, 8> title;
    int32_t from, to, size, lanes;
    Place place;
  };
  bool Greet();
  bool Accepts(const Hello& hello);

  const Terms& terms_;
  const bool dials_;
  Stage stage_;
  Rank peer_;
  Place place_;
  std::unique_ptr<Wire> wire_;
  Hello hello_{};     // the other side's
  size_t heard_ = 0;  // bytes of it
};

}  // namespace covey::tcp
#endif  // COVEY_OPS_TRANSPORTS_TCP_HANDSHAKE_H_
