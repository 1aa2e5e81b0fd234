#include "core/replicated/fragmenter.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace covey {
namespace {

// No message of core/agree begins so.
constexpr uint8_t kMark = 0xc7;
constexpr size_t kWord = sizeof(uint64_t);

}  // namespace

Fragmenter::Fragmenter(uint64_t channel, int32_t size, size_t frame_bytes)
    : channel_(channel),
      data_bytes_(std::min(frame_bytes, kMostFrameBytes) - kHeadBytes),
      peers_(static_cast<size_t>(size)) {
  CHECK(frame_bytes > kHeadBytes, "a frame holds something");
}

bool Fragmenter::IsFrame(std::span<const std::byte> mail) {
  return mail.size() >= kHeadBytes && mail[0] == std::byte{kMark};
}

uint64_t Fragmenter::ChannelOf(std::span<const std::byte> frame) {
  return Reader(frame.subspan(kWord)).Get<uint64_t>();
}

void Fragmenter::Enqueue(int32_t to, Bytes head, Slice body) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  if (!peer.is_lost) peer.messages.push_back({std::move(head), std::move(body)});
}

void Fragmenter::EnqueueLeave(int32_t to, Bytes message) {
  CHECK(message.size() <= data_bytes_, "it goes in one frame");
  Peer& peer = peers_[static_cast<size_t>(to)];
  if (!peer.is_lost) peer.leave = std::move(message);
}

void Fragmenter::EnqueueClosing() {
  for (Peer& peer : peers_) peer.is_closing = !peer.is_lost;
}

// Mark and kind, in a word; channel; frames taken; length of the whole message. So a frame's data
// begins as aligned as the frame.
void Fragmenter::Make(Peer* peer, Kind kind, std::span<const std::byte> head, const Slice& body) {
  Writer writer;
  writer.Reserve(kHeadBytes);
  writer.Put(kMark);
  writer.Put(static_cast<uint8_t>(kind));
  writer.Pad(kWord);
  writer.Put(channel_);
  writer.Put(peer->taken);
  writer.Put(uint64_t{peer->messages.empty() ? 0 : peer->messages.front().size()});
  const Bytes made = writer.Take();
  std::copy(made.begin(), made.end(), peer->head.begin());
  peer->parts = {peer->head, head, body};
  peer->parts_made = peer->parts.size();
  peer->kind = kind;
  peer->told = peer->taken;
}

// The rest of the first message, as far as it goes in a frame.
void Fragmenter::MakePart(Peer* peer) {
  const Message& message = peer->messages.front();
  const size_t rest = message.size() - peer->offset;
  const size_t length = std::min(rest, data_bytes_);
  const size_t begin = std::min(peer->offset, message.head.size());
  const size_t of_head = std::min(message.head.size() - begin, length);
  const size_t in_body = peer->offset - begin;
  Make(peer, length == rest ? Kind::kLast : Kind::kPart,
       std::span(message.head).subspan(begin, of_head),
       message.body.Part(in_body, length - of_head));
}

Parts Fragmenter::Next(int32_t to) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  if (peer.parts_made == 0 && !peer.is_lost) {
    // replicated-L1: a replica that takes none gets no more frames than its window.
    if (!peer.messages.empty() && peer.sent - peer.taken_there < kWindow) {
      MakePart(&peer);
    } else if (!peer.leave.empty()) {
      Make(&peer, Kind::kLeave, peer.leave, {});
    } else if (peer.messages.empty() && peer.is_closing) {
      Make(&peer, Kind::kClosing, {}, {});
    } else if (peer.taken - peer.told >= kWindow / 2) {
      Make(&peer, Kind::kTaken, {}, {});
    }
  }
  return Parts(peer.parts).first(peer.parts_made);
}

void Fragmenter::OnSent(int32_t to) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  peer.parts_made = 0;
  if (peer.kind == Kind::kClosing) peer.is_closing = false;
  if (peer.kind == Kind::kLeave) return OnLoss(to);
  if (peer.kind != Kind::kPart && peer.kind != Kind::kLast) return;
  ++peer.sent;
  peer.offset += data_bytes_;
  if (peer.kind == Kind::kPart) return;
  peer.messages.pop_front();
  peer.offset = 0;
}

Fragmenter::Received Fragmenter::OnFrame(int32_t from, Bytes frame, size_t longest_bytes,
                                         Slice* message) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  Reader reader(frame);
  reader.Get<uint8_t>();
  const auto kind = static_cast<Kind>(reader.Get<uint8_t>());
  reader.Pad(kWord);
  reader.Get<uint64_t>();
  if (const auto taken = reader.Get<uint64_t>(); taken <= peer.sent)
    peer.taken_there = std::max(peer.taken_there, taken);
  const auto length = reader.Get<uint64_t>();
  if (kind == Kind::kTaken) return Received::kNothing;
  if (kind == Kind::kClosing) return Received::kClosing;
  if (kind == Kind::kLeave) {
    *message = Slice(std::move(frame)).From(kHeadBytes);
    // replicated-L2: it takes nothing any more, and where its process lives on no loss is told.
    OnLoss(from);
    return Received::kMessage;
  }
  if (kind != Kind::kPart && kind != Kind::kLast) return Received::kMalformed;
  ++peer.taken;
  if (!peer.is_dropping && peer.message.empty()) {
    peer.length_bytes = length;
    // replicated-L1: a message that is longer than its reader allows is dropped whole.
    peer.is_dropping = length > longest_bytes;
  }
  return TakePart(&peer, kind, std::move(frame), message);
}

Fragmenter::Received Fragmenter::TakePart(Peer* peer, Kind kind, Bytes frame, Slice* message) {
  const std::span<const std::byte> data = std::span(frame).subspan(kHeadBytes);
  const uint64_t rest = peer->length_bytes - peer->message.size();
  const bool is_last = kind == Kind::kLast;
  const bool fits = is_last ? data.size() == rest : !data.empty() && data.size() < rest;
  if (peer->is_dropping || !fits) {
    peer->message = {};
    peer->is_dropping = !is_last;
    return Received::kMalformed;
  }
  if (is_last && peer->message.empty()) {
    *message = Slice(std::move(frame)).From(kHeadBytes);
    return Received::kMessage;
  }
  // Twice as much each time, but no more than the message.
  const uint64_t room = peer->message.size() + std::max(peer->message.size(), data.size());
  if (peer->message.capacity() - peer->message.size() < data.size())
    peer->message.reserve(std::min(peer->length_bytes, room));
  peer->message.insert(peer->message.end(), data.begin(), data.end());
  if (!is_last) return Received::kNothing;
  *message = Slice(std::exchange(peer->message, {}));
  return Received::kMessage;
}

void Fragmenter::OnLoss(int32_t member) { peers_[static_cast<size_t>(member)] = {.is_lost = true}; }

bool Fragmenter::IsEmpty() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.messages.empty() && peer.parts_made == 0 && peer.leave.empty() && !peer.is_closing;
  });
}

bool Fragmenter::IsInMessage() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return !peer.message.empty(); });
}

}  // namespace covey
