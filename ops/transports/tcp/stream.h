// Messages and puts to and from one peer, in order, over a Wire.
//
//   Head{kind, length, offset}, then `length` bytes; the next Head follows
//
// A pair has several: its first one, for messages and for puts, and lanes, for parts of large puts
// (lanes.h). A message says how many parts went before it.
//
// Puts are sent from where they lie and received where they go; under TLS they are encrypted from
// there. Short parcels travel together. What was given before there is a wire waits for it.
//
// Bounds: kMostParcels wait, and kMostCopied bytes of messages, or one message of any length. One
// pass moves about kChunk bytes each way.
//
// One thread. Nothing blocks.
#ifndef COVEY_OPS_TRANSPORTS_TCP_STREAM_H_
#define COVEY_OPS_TRANSPORTS_TCP_STREAM_H_

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/wire.h"
#include "ops/transports/tcp/handshake.h"

namespace covey::tcp {

class Stream {
 public:
  static constexpr size_t kMostParcels = 1024, kMostCopied = size_t{4} << 20;
  static constexpr size_t kMostMessage = size_t{1} << 30;

  void Open(std::unique_ptr<Wire> wire);
  bool is_open() const { return wire_ != nullptr; }
  int fd() const { return wire_->socket.fd(); }

  // The peer's puts go there.
  void Land(std::span<std::byte> memory) { landing_ = memory; }

  // False: no room. A message is copied, unless the socket takes it at once; a put waits for the
  // next Flush or Send.
  bool Send(std::span<const std::byte> message, uint64_t after = 0);
  // The pair is to have lanes.
  void AskForLanes();
  bool Put(uint64_t offset, std::span<const std::byte> data);
  // Sends what the socket takes.
  void Flush();
  bool HasUnsent() const { return !parcels_.empty() || HasCipher(); }
  size_t unsent() const { return parcels_.size() + (HasCipher() ? 1 : 0); }  // about, in parcels
  // Its host has answered nothing for a lease.
  bool IsSilent(Time lease) const { return is_open() && wire_->socket.IsSilent(lease); }
  // All of it has reached the peer's kernel.
  bool IsConfirmed() const;
  // All bytes that the socket took have reached the peer's kernel.
  bool IsAcknowledged() const { return wire_->socket.Unconfirmed() == 0; }

  // Receive may ask the socket for so many bytes.
  void BeginPass(size_t bytes = kChunk) { budget_ = bytes; }
  // kDone: *message is valid until the next call. kWait: no whole one. kEnded: `how` says why.
  Outcome Receive(std::span<const std::byte>* message);
  // The number of the parts before the message received last.
  uint64_t after() const { return head_.offset; }
  // Puts received so far.
  uint64_t landed() const { return landed_; }
  // Whether the peer has asked for lanes.
  bool is_asked() const { return is_asked_; }
  // The kernel's word for the end; 0: the peer closed the connection.
  int error() const { return error_; }
  bool is_malformed() const { return is_malformed_; }

  // Whether the poller has been told that room is waited for.
  bool watches_room = false;

 private:
  enum class Kind : uint32_t { kMessage = 1, kPut = 2, kLanes = 3 };
  struct Head {
    Kind kind;
    uint32_t unused;
    uint64_t length;
    uint64_t offset;  // of a put; of a message: the parts before it
  };
  struct Parcel {
    Head head;
    const std::byte* data;
    Bytes copy;       // of a message, once it has to wait
    size_t sent = 0;  // bytes of head and data
    size_t left() const { return sizeof(Head) + head.length - sent; }
  };
  static constexpr size_t kChunk = size_t{1} << 20, kSealed = size_t{256} << 10;
  static constexpr size_t kStage = size_t{16} << 10, kParts = 64;

  bool HasCipher() const { return wire_ != nullptr && wire_->tls && wire_->tls->HasUnsent(); }
  bool HasRoom() const;
  Outcome FlushClear();
  Outcome FlushSealed();
  size_t Gather(std::span<std::byte> record) const;
  void Sent(size_t bytes);
  Outcome Parse(std::span<const std::byte>* message);
  bool Begin();
  std::span<std::byte> Rest();
  Outcome Read();

  std::unique_ptr<Wire> wire_;
  std::span<std::byte> landing_;
  int error_ = 0;
  bool is_malformed_ = false;
  bool is_deaf_ = false;  // the peer takes nothing any more; what it sent may still be there

  std::deque<Parcel> parcels_;
  size_t copied_ = 0;  // bytes in them

  size_t budget_ = 0;
  std::vector<std::byte> stage_;  // bytes received, [begin_, end_) of which are not understood
  size_t begin_ = 0, end_ = 0;
  bool in_body_ = false;  // of head_, of which got_ bytes are in place
  Head head_{};
  size_t got_ = 0;
  Bytes message_;  // grows as its bytes come
  uint64_t landed_ = 0;
  bool is_asked_ = false;
};

}  // namespace covey::tcp
#endif  // COVEY_OPS_TRANSPORTS_TCP_STREAM_H_
