#include "ops/transports/tcp/lanes.h"

#include <openssl/crypto.h>

#include <algorithm>

namespace covey::tcp {
namespace {

// Parts are whole records of TLS, but for the last.
size_t PartOf(size_t length, size_t count) {
  constexpr size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH;
  return ((length + count - 1) / count + kRecord - 1) / kRecord * kRecord;
}

}  // namespace

int32_t CountLanes(int32_t streams, int64_t cores, int64_t ranks) {
  constexpr int64_t kMost = Lanes::kMost;
  if (streams == 1) return 0;
  if (streams > 0) return static_cast<int32_t>(std::min<int64_t>(streams, kMost));
  const int64_t spare = cores / ranks - 1;
  return spare < 2 ? 0 : static_cast<int32_t>(std::min(spare, kMost));
}

void Lanes::Agree(const Common* common, Rank peer, const Wire& first, bool dials) {
  common_ = common;
  peer_ = peer;
  count_ = std::min(static_cast<size_t>(first.lanes), kMost);
  dials_ = dials;
  place_.binding = first.binding;
}

void Lanes::Land(std::span<std::byte> memory) {
  memory_ = memory;
  for (const std::unique_ptr<Lane>& lane : lanes_)
    if (lane != nullptr) lane->Land(memory);
}

// Without all workers the first connection remains.
void Lanes::Meet(Time now) {
  state_ = State::kMeeting;
  for (size_t i = 0; i < count_; ++i)
    if (common_->crew.Of(i) == nullptr) return;
  for (size_t i = 0; dials_ && i < count_; ++i) DialAt(i, now);
}

uint64_t Lanes::KeyOf(size_t place) const {
  return common_->first_key + kMost * static_cast<uint64_t>(ToInt(peer_)) + place;
}

void Lanes::DialAt(size_t place, Time now) {
  Dial& dial = dialing_[place];
  const Terms& terms = common_->terms;
  Socket socket;
  dial.again = now + std::min(kAgain, terms.lease / 8);
  const Address& address = common_->addresses[static_cast<size_t>(ToInt(peer_))];
  if (Socket::Dial(address, terms.lease, &socket) == Outcome::kEnded) return;
  dial.again = kNever;
  common_->poller.Add(socket.fd(), KeyOf(place), true);
  Place of = place_;
  of.lane = static_cast<int32_t>(place);
  dial.handshake = std::make_unique<Handshake>(terms, std::move(socket), peer_, of);
}

void Lanes::StopDial(size_t place) {
  Dial& dial = dialing_[place];
  if (dial.handshake != nullptr) common_->poller.Remove(dial.handshake->fd());
  dial.handshake.reset();
  dial.again = kNever;
}

void Lanes::Step(size_t place, Time now) {
  Dial& dial = dialing_[place];
  if (dial.handshake == nullptr) return;
  const bool connecting = dial.handshake->is_connecting();
  const Outcome outcome = dial.handshake->Step();
  if (outcome == Outcome::kWait) {
    if (connecting && !dial.handshake->is_connecting())
      common_->poller.Watch(dial.handshake->fd(), KeyOf(place), false);
    return;
  }
  common_->poller.Remove(dial.handshake->fd());
  const std::unique_ptr<Handshake> ended = std::move(dial.handshake);
  if (outcome == Outcome::kDone) return Open(place, ended->Take());
  dial.again = now + std::min(kAgain, common_->terms.lease / 8);
}

void Lanes::Tick(Time now) {
  for (size_t i = 0; i < count_; ++i)
    if (now >= dialing_[i].again) DialAt(i, now);
}

Time Lanes::Next() const {
  Time next = kNever;
  for (const Dial& dial : dialing_) next = std::min(next, dial.again);
  return next;
}

bool Lanes::Adopt(Handshake* known, bool* is_second) {
  const Place& place = known->place();
  const auto at = static_cast<size_t>(place.lane);
  *is_second = false;
  if (dials_ || at >= count_ || common_->crew.Of(at) == nullptr) return false;
  if (CRYPTO_memcmp(place.binding.data(), place_.binding.data(), place.binding.size()) != 0)
    return false;
  *is_second = lanes_[at] != nullptr;
  if (*is_second || !known->Agree()) return false;
  Open(at, known->Take());
  return true;
}

void Lanes::Open(size_t place, std::unique_ptr<Wire> wire) {
  if (state_ == State::kNone) state_ = State::kMeeting;
  lanes_[place] = std::make_unique<Lane>(std::move(wire), memory_);
  common_->crew.Of(place)->Add(lanes_[place].get());
  const auto end = lanes_.begin() + static_cast<ptrdiff_t>(count_);
  if (std::find(lanes_.begin(), end, nullptr) == end) state_ = State::kOpen;
}

void Lanes::Close() {
  for (size_t i = 0; i < count_; ++i) {
    StopDial(i);
    if (lanes_[i] != nullptr) common_->crew.Of(i)->Remove(lanes_[i].get());
    lanes_[i].reset();
  }
  count_ = 0;
  state_ = State::kNone;
}

bool Lanes::Put(uint64_t offset, std::span<const std::byte> data) {
  for (size_t i = 0; i < count_; ++i)
    if (!lanes_[i]->HasRoom()) return false;
  const size_t parts = std::clamp<size_t>(data.size() / kLeastPart, 1, count_);
  const size_t length = PartOf(data.size(), parts);
  for (size_t begin = 0; begin < data.size(); begin += length) {
    const size_t lane = given_++ % count_;
    lanes_[lane]->Put(offset + begin, data.subspan(begin, std::min(length, data.size() - begin)));
    common_->crew.Of(lane)->Kick();
  }
  return true;
}

Lanes::Landing Lanes::HasLanded(uint64_t count) {
  Landing landing = Landing::kDone;
  for (size_t i = 0; i < count_; ++i) {
    const uint64_t share = (count + count_ - 1 - i) / count_;
    if (share == 0) break;
    const bool ended = lanes_[i] != nullptr && lanes_[i]->end() != Lane::End::kNone;
    if (lanes_[i] != nullptr && lanes_[i]->HasLanded(share)) continue;
    if (ended) return Landing::kEnded;
    landing = Landing::kWait;
  }
  return landing;
}

bool Lanes::IsConfirmed() {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return lane == nullptr || lane->IsConfirmed(); });
}

bool Lanes::IsSilent(Time lease) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [lease](const auto& lane) {
    return lane != nullptr && lane->end() == Lane::End::kNone && lane->IsSilent(lease);
  });
}

bool Lanes::IsMalformed() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
    return lane != nullptr && lane->end() == Lane::End::kMalformed;
  });
}

int Lanes::error() const {
  int error = 0;
  for (const std::unique_ptr<Lane>& lane : lanes_)
    if (lane != nullptr && error == 0) error = lane->error();
  return error;
}

}  // namespace covey::tcp
