#include "ops/transports/tcp/handshake.h"

#include <algorithm>

namespace covey::tcp {
namespace {

constexpr std::array<char, 8> kTitle = {'c', 'o', 'v', 'e', 'y', 't', 'c', '2'};

}  // namespace

Handshake::Handshake(const Terms& terms, Socket socket, Rank to, const Place& place)
    : terms_(terms),
      dials_(true),
      stage_(Stage::kConnecting),
      peer_(to),
      place_(place),
      wire_(std::make_unique<Wire>()) {
  wire_->socket = std::move(socket);
  wire_->tls = std::make_unique<Tls>(*terms.key, &wire_->socket, true);
}

Handshake::Handshake(const Terms& terms, Socket socket, std::span<const std::byte> greeting)
    : terms_(terms),
      dials_(false),
      stage_(Stage::kShaking),
      peer_(kNoRank),
      wire_(std::make_unique<Wire>()) {
  wire_->socket = std::move(socket);
  wire_->tls = std::make_unique<Tls>(*terms.key, &wire_->socket, false);
  wire_->tls->Heard(greeting);
}

Outcome Handshake::Step() {
  if (stage_ == Stage::kConnecting) {
    const Outcome connected = wire_->socket.Connected();
    if (connected != Outcome::kDone) return connected;
    stage_ = Stage::kShaking;
  }
  if (stage_ == Stage::kShaking) {
    const Outcome shaken = wire_->tls->Shake();
    if (shaken != Outcome::kDone) return shaken;
    stage_ = Stage::kHearing;
    if (!wire_->tls->Export(wire_->binding)) return Outcome::kEnded;
    if (dials_ && !Greet()) return Outcome::kEnded;
  }
  while (stage_ == Stage::kHearing) {
    size_t read = 0;
    auto* to = reinterpret_cast<char*>(&hello_) + heard_;
    const Outcome heard = wire_->tls->Read(to, sizeof(hello_) - heard_, &read);
    if (heard != Outcome::kDone) return heard;
    heard_ += read;
    if (heard_ < sizeof(hello_)) continue;
    if (!Accepts(hello_)) return Outcome::kEnded;
    stage_ = Stage::kKnown;
  }
  return Outcome::kDone;
}

bool Handshake::Accepts(const Hello& hello) {
  const bool sound = hello.title == kTitle && hello.size == terms_.size &&
                     hello.to == ToInt(terms_.rank) && hello.from >= 0 &&
                     hello.from < terms_.size && hello.from != ToInt(terms_.rank);
  const bool same_place = hello.place.lane == place_.lane && hello.place.binding == place_.binding;
  if (!sound || (dials_ && (hello.from != ToInt(peer_) || !same_place))) return false;
  peer_ = Rank{hello.from};
  place_ = hello.place;
  wire_->lanes = std::clamp(hello.lanes, 0, terms_.lanes);
  return true;
}

// An empty socket takes it whole.
bool Handshake::Greet() {
  const Hello hello{kTitle, ToInt(terms_.rank), ToInt(peer_), terms_.size, terms_.lanes, place_};
  return wire_->tls->Write(&hello, sizeof(hello)) && wire_->tls->Flush() == Outcome::kDone;
}

bool Handshake::Agree() { return Greet(); }

// In the clear, neither side has anything under TLS left: the accepting one was sent nothing behind
// the Hello it read, the dialing one has read to the end of the Hello and no further.
std::unique_ptr<Wire> Handshake::Take() {
  if (terms_.encrypts)
    wire_->tls->ReadAhead();
  else
    wire_->tls.reset();
  return std::move(wire_);
}

}  // namespace covey::tcp
