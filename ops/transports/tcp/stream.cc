#include "ops/transports/tcp/stream.h"

#include <algorithm>
#include <cstring>

namespace covey::tcp {

void Stream::Open(std::unique_ptr<Wire> wire) {
  wire_ = std::move(wire);
  wire_->socket.LimitSilence(0);  // the link asks IsSilent
  stage_.resize(kStage);
}

bool Stream::HasRoom() const {
  return parcels_.size() < kMostParcels && (parcels_.empty() || copied_ < kMostCopied);
}

bool Stream::Send(std::span<const std::byte> message, uint64_t after) {
  if (is_deaf_) return true;
  if (!HasRoom()) return false;
  parcels_.push_back({{Kind::kMessage, 0, message.size(), after}, message.data(), {}, 0});
  if (!watches_room) Flush();
  if (parcels_.empty()) return true;
  Parcel& last = parcels_.back();
  last.copy.assign(message.begin(), message.end());
  last.data = last.copy.data();
  copied_ += message.size();
  return true;
}

void Stream::AskForLanes() {
  if (!is_deaf_) parcels_.push_back({{Kind::kLanes, 0, 0, 0}, nullptr, {}, 0});
}

bool Stream::Put(uint64_t offset, std::span<const std::byte> data) {
  if (is_deaf_) return true;
  if (parcels_.size() >= kMostParcels) return false;
  parcels_.push_back({{Kind::kPut, 0, data.size(), offset}, data.data(), {}, 0});
  return true;
}

bool Stream::IsConfirmed() const {
  return is_deaf_ || (!HasUnsent() && (!is_open() || IsAcknowledged()));
}

void Stream::Flush() {
  if (!is_open() || !HasUnsent()) return;
  if ((wire_->tls ? FlushSealed() : FlushClear()) != Outcome::kEnded) return;
  // Its last words may wait in the socket: reading says that the connection is over.
  error_ = wire_->socket.error();
  is_deaf_ = true;
  parcels_.clear();
  copied_ = 0;
}

void Stream::Sent(size_t bytes) {
  while (bytes > 0) {
    Parcel& first = parcels_.front();
    const size_t part = std::min(bytes, first.left());
    first.sent += part;
    bytes -= part;
    if (first.left() > 0) return;
    copied_ -= first.copy.size();
    parcels_.pop_front();
  }
}

Outcome Stream::FlushClear() {
  size_t most = kChunk;
  while (!parcels_.empty() && most > 0) {
    iovec parts[kParts];
    size_t count = 0;
    size_t bytes = 0;
    for (auto p = parcels_.begin(); p != parcels_.end() && count + 2 <= kParts && bytes < most;
         ++p) {
      size_t at = p->sent;
      if (at < sizeof(Head)) {
        parts[count++] = {reinterpret_cast<char*>(&p->head) + at, sizeof(Head) - at};
        bytes += sizeof(Head) - at;
        at = sizeof(Head);
      }
      const size_t body =
          std::min(sizeof(Head) + p->head.length - at, most - std::min(most, bytes));
      if (body == 0) continue;
      parts[count++] = {const_cast<std::byte*>(p->data) + (at - sizeof(Head)), body};
      bytes += body;
    }
    size_t sent = 0;
    const Outcome outcome = wire_->socket.Send(parts, count, &sent);
    if (outcome != Outcome::kDone) return outcome;
    Sent(sent);
    if (sent < bytes) return Outcome::kWait;
    most -= std::min(most, sent);
  }
  return Outcome::kDone;
}

// The next bytes of the parcels, up to those of a record.
size_t Stream::Gather(std::span<std::byte> record) const {
  size_t filled = 0;
  for (auto p = parcels_.begin(); p != parcels_.end() && filled < record.size(); ++p) {
    size_t at = p->sent;
    if (at < sizeof(Head)) {
      const size_t part = std::min(sizeof(Head) - at, record.size() - filled);
      std::memcpy(record.data() + filled, reinterpret_cast<const char*>(&p->head) + at, part);
      filled += part;
      at += part;
    }
    if (at < sizeof(Head)) break;
    const size_t part = std::min(sizeof(Head) + p->head.length - at, record.size() - filled);
    if (part > 0) std::memcpy(record.data() + filled, p->data + (at - sizeof(Head)), part);
    filled += part;
  }
  return filled;
}

Outcome Stream::FlushSealed() {
  std::byte record[SSL3_RT_MAX_PLAIN_LENGTH];
  for (size_t made = 0; made < kChunk;) {
    // Between two pieces the socket takes what there is, so that little waits encrypted.
    const Outcome flushed = wire_->tls->Flush();
    if (flushed != Outcome::kDone || parcels_.empty()) return flushed;
    for (size_t piece = 0; piece < kSealed && !parcels_.empty();) {
      const Parcel& first = parcels_.front();
      const std::byte* from = record;
      size_t length = 0;
      if (first.sent >= sizeof(Head) && first.left() >= sizeof(record)) {
        from = first.data + (first.sent - sizeof(Head));
        length = std::min(first.left(), kSealed - piece);
        length = std::max(length - length % sizeof(record), sizeof(record));
      } else {
        length = Gather(record);
      }
      if (!wire_->tls->Write(from, length)) return Outcome::kEnded;
      Sent(length);
      piece += length;
      made += length;
    }
  }
  return wire_->tls->Flush();
}

// The head is whole. False: no rank sends this.
bool Stream::Begin() {
  got_ = 0;
  in_body_ = true;
  if (head_.kind == Kind::kMessage) {
    if (message_.size() > kMostCopied) message_ = {};
    return head_.length <= kMostMessage;
  }
  if (head_.kind == Kind::kLanes) {
    is_asked_ = true;
    return head_.length == 0;
  }
  return head_.kind == Kind::kPut && head_.offset <= landing_.size() &&
         head_.length <= landing_.size() - head_.offset;
}

// Where the body goes on; of a message as much as there is memory for, twice as much each time.
std::span<std::byte> Stream::Rest() {
  const size_t left = head_.length - got_;
  if (head_.kind == Kind::kPut) return landing_.subspan(head_.offset + got_, left);
  if (message_.size() < head_.length && got_ == message_.size())
    message_.resize(std::min<size_t>(head_.length, std::max(kStage, 2 * message_.size())));
  return std::span(message_).subspan(got_, std::min(left, message_.size() - got_));
}

// Parses the stage. kDone: a message; kWait: more has to come.
Outcome Stream::Parse(std::span<const std::byte>* message) {
  for (;;) {
    if (!in_body_) {
      if (end_ - begin_ < sizeof(Head)) return Outcome::kWait;
      std::memcpy(&head_, stage_.data() + begin_, sizeof(Head));
      begin_ += sizeof(Head);
      is_malformed_ = !Begin();
      if (is_malformed_) return Outcome::kEnded;
      if (head_.kind == Kind::kMessage && head_.length <= end_ - begin_) {
        *message = std::span<const std::byte>(stage_).subspan(begin_, head_.length);
        begin_ += head_.length;
        in_body_ = false;
        return Outcome::kDone;
      }
    }
    while (got_ < head_.length && begin_ < end_) {
      const std::span<std::byte> rest = Rest();
      const size_t part = std::min(rest.size(), end_ - begin_);
      std::memcpy(rest.data(), stage_.data() + begin_, part);
      begin_ += part;
      got_ += part;
    }
    if (got_ < head_.length) return Outcome::kWait;
    in_body_ = false;
    landed_ += head_.kind == Kind::kPut ? 1 : 0;
    if (head_.kind != Kind::kMessage) continue;
    *message = std::span<const std::byte>(message_).first(head_.length);
    return Outcome::kDone;
  }
}

// The stage is understood as far as it goes: a body goes straight to its place, and what follows it
// to the stage. kDone: there may be more.
Outcome Stream::Read() {
  if (begin_ > 0) std::memmove(stage_.data(), stage_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  iovec parts[2];
  size_t count = 0;
  size_t direct = 0;
  if (in_body_) {
    const std::span<std::byte> rest = Rest();
    // Beyond the budget a record at a time, as what has been decrypted cannot wait in the socket.
    direct = std::min(rest.size(), std::max<size_t>(budget_, SSL3_RT_MAX_PLAIN_LENGTH));
    parts[count++] = {rest.data(), direct};
  }
  if (!in_body_ || (!wire_->tls && got_ + direct == head_.length))
    parts[count++] = {stage_.data() + end_, stage_.size() - end_};
  size_t bytes = 0;
  const Outcome outcome = wire_->tls ? wire_->tls->Read(parts[0].iov_base, parts[0].iov_len, &bytes)
                                     : wire_->socket.Receive(parts, count, &bytes);
  if (outcome != Outcome::kDone) return outcome;
  budget_ -= std::min(budget_, bytes);
  size_t room = 0;
  for (size_t i = 0; i < count; ++i) room += parts[i].iov_len;
  const size_t placed = std::min(bytes, direct);
  got_ += placed;
  end_ += bytes - placed;
  // The socket had no more.
  if (!wire_->tls && bytes < room) budget_ = 0;
  return Outcome::kDone;
}

Outcome Stream::Receive(std::span<const std::byte>* message) {
  for (;;) {
    const Outcome parsed = Parse(message);
    if (parsed != Outcome::kWait) return parsed;
    if (budget_ == 0 && (!wire_->tls || wire_->tls->IsDrained())) return Outcome::kWait;
    const Outcome read = Read();
    if (read == Outcome::kDone) continue;
    if (error_ == 0) error_ = wire_->socket.error();
    is_malformed_ = read == Outcome::kEnded && wire_->tls && !wire_->tls->is_cut();
    return read;
  }
}

}  // namespace covey::tcp
