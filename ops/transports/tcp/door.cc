#include "ops/transports/tcp/door.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string_view>
#include <tuple>

namespace covey::tcp {
namespace {

// Measured on an AMD EPYC with OpenSSL 3.0: 19 us for a stranger that is accepted, heard and
// closed, 171 us for a handshake. So a flood takes 4 and 9 percent of a core at most.
constexpr Time kArrivals = kSecond / 2000, kShakes = kSecond / 500;
constexpr int kBurst = 64;
constexpr int kBacklog = 4096;  // every peer may connect at once; the system has a limit of its own
constexpr int kAtOnce = 16;     // accepted in one pass of the engine

enum class Greeting { kPart, kStranger, kNamed };

// RFC 8446, sections 4.1.2 and 5.1: one record with a ClientHello in it, which holds the name.
Greeting GreetingOf(std::span<const std::byte> bytes, std::string_view name) {
  constexpr size_t kHead = 5;
  constexpr std::byte kHandshake{22}, kClientHello{1}, kVersion{3};
  if (!bytes.empty() && bytes[0] != kHandshake) return Greeting::kStranger;
  if (bytes.size() > 1 && bytes[1] != kVersion) return Greeting::kStranger;
  if (bytes.size() <= kHead) return Greeting::kPart;
  if (bytes[kHead] != kClientHello) return Greeting::kStranger;
  const size_t length =
      kHead + (std::to_integer<size_t>(bytes[3]) << 8) + std::to_integer<size_t>(bytes[4]);
  if (length > Door::kGreeting || bytes.size() > length) return Greeting::kStranger;
  if (bytes.size() < length) return Greeting::kPart;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.find(name) == std::string_view::npos ? Greeting::kStranger : Greeting::kNamed;
}

std::string TextOf(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = "";
  const bool v4 = from.ss_family == AF_INET;
  const void* at = &reinterpret_cast<const sockaddr_in6*>(&from)->sin6_addr;
  if (v4) at = &reinterpret_cast<const sockaddr_in*>(&from)->sin_addr;
  inet_ntop(from.ss_family, at, text, sizeof(text));
  return text;
}

}  // namespace

bool Pace::Take(Time now) {
  next_ = std::max(next_, now - span_);
  if (next_ > now) return false;
  next_ += interval_;
  return true;
}

Door::Door(int listener, const Terms& terms, Poller* poller, uint64_t first_key)
    : terms_(terms),
      poller_(poller),
      first_key_(first_key),
      listener_(listener),
      arrivals_(kArrivals, kBurst),
      shakes_(kShakes, kBurst) {
  Open();
}

// The launcher's descriptor of the listener stays: the process may open another link.
Door::~Door() {
  Shut();
  if (listener_ >= 0) close(listener_);
}

void Door::Open() {
  if (is_open_ || listener_ < 0) return;
  is_open_ = true;
  listen(listener_, kBacklog);
  Pause(0);
}

// While it is shut no more than the peers' connections wait there.
void Door::Shut() {
  if (is_open_) listen(listener_, terms_.size);
  is_open_ = false;
  Pause(kNever);
  for (size_t i = 0; i < kPlaces; ++i) Dismiss(i);
}

void Door::Dismiss(size_t place) {
  if (guests_[place] == nullptr) return;
  const Guest& guest = *guests_[place];
  if (guest.socket.is_open()) poller_->Remove(guest.socket.fd());
  if (guest.handshake != nullptr) poller_->Remove(guest.handshake->fd());
  guests_[place].reset();
}

size_t Door::size() const {
  return static_cast<size_t>(std::count_if(guests_.begin(), guests_.end(),
                                           [](const auto& guest) { return guest != nullptr; }));
}

void Door::Pause(Time until) {
  if (listens_) poller_->Remove(listener_);
  listens_ = false;
  again_ = until;
}

void Door::Accept(Time now) {
  for (int i = 0; i < kAtOnce && is_open_; ++i) {
    if (!arrivals_.Take(now)) return Pause(arrivals_.next());
    sockaddr_storage from{};
    socklen_t length = sizeof(from);
    const int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&from), &length,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      Seat(fd, TextOf(from), now);
      continue;
    }
    if (errno == ECONNABORTED || errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    // Mostly: no descriptor is free.
    if (const size_t victim = Victim(); victim < kPlaces) Dismiss(victim);
    return Pause(now + kBreath);
  }
}

// The guest that goes when others need its place; kPlaces: there is none.
size_t Door::Victim() const {
  std::map<std::string_view, int> of_address;
  for (const std::unique_ptr<Guest>& guest : guests_)
    if (guest != nullptr) ++of_address[guest->address];
  size_t victim = kPlaces;
  for (size_t i = 0; i < kPlaces; ++i) {
    if (guests_[i] == nullptr) continue;
    const auto standing = [&of_address, this](size_t place) {
      const Guest& guest = *guests_[place];
      return std::tuple(guest.stage, -of_address[guest.address], guest.since);
    };
    if (victim == kPlaces || standing(i) < standing(victim)) victim = i;
  }
  return victim;
}

void Door::Seat(int fd, const std::string& address, Time now) {
  const auto free = std::find(guests_.begin(), guests_.end(), nullptr);
  const size_t place = free == guests_.end() ? Victim() : free - guests_.begin();
  Dismiss(place);
  guests_[place] = std::make_unique<Guest>();
  Guest& guest = *guests_[place];
  guest.socket = Socket(fd, terms_.lease);
  guest.address = address;
  guest.since = now;
  poller_->Add(fd, first_key_ + place);
}

// False: a stranger, or it has left.
bool Door::Hear(Guest* guest) {
  for (;;) {
    iovec part{guest->greeting.data() + guest->heard, kGreeting - guest->heard};
    size_t bytes = 0;
    const Outcome outcome = guest->socket.Receive(&part, 1, &bytes);
    if (outcome == Outcome::kWait) return true;
    if (outcome == Outcome::kEnded || guest->stage == Stage::kWaiting) return false;
    guest->heard += bytes;
    const std::span<const std::byte> heard(guest->greeting.data(), guest->heard);
    const Greeting greeting = GreetingOf(heard, terms_.key->name());
    if (greeting == Greeting::kStranger) return false;
    if (greeting == Greeting::kNamed) guest->stage = Stage::kWaiting;
  }
}

std::unique_ptr<Handshake> Door::Serve(uint64_t key, Time now) {
  const size_t place = key - first_key_;
  if (place == kPlaces) {
    if (listens_) Accept(now);
    return nullptr;
  }
  if (guests_[place] == nullptr) return nullptr;
  Guest& guest = *guests_[place];
  if (guest.stage != Stage::kShaking && !Hear(&guest)) {
    Dismiss(place);
    return nullptr;
  }
  if (guest.stage == Stage::kWaiting && shakes_.Take(now)) {
    const std::span<const std::byte> heard(guest.greeting.data(), guest.heard);
    guest.handshake = std::make_unique<Handshake>(terms_, std::move(guest.socket), heard);
    guest.stage = Stage::kShaking;
  }
  if (guest.stage != Stage::kShaking) return nullptr;
  const Outcome outcome = guest.handshake->Step();
  if (outcome == Outcome::kWait) return nullptr;
  std::unique_ptr<Handshake> known;
  if (outcome == Outcome::kDone) {
    poller_->Remove(guest.handshake->fd());
    known = std::move(guest.handshake);
  }
  Dismiss(place);
  return known;
}

void Door::Tick(Time now) {
  if (is_open_ && !listens_ && now >= again_) {
    poller_->Add(listener_, first_key_ + kPlaces);
    listens_ = true;
    again_ = kNever;
  }
  for (size_t i = 0; i < kPlaces; ++i) {
    if (guests_[i] == nullptr) continue;
    if (now >= guests_[i]->since + kPatience)
      Dismiss(i);
    else if (guests_[i]->stage == Stage::kWaiting)
      Serve(first_key_ + i, now);
  }
}

Time Door::Next() const {
  Time next = again_;
  for (const std::unique_ptr<Guest>& guest : guests_) {
    if (guest == nullptr) continue;
    next = std::min(next, guest->since + kPatience);
    if (guest->stage == Stage::kWaiting) next = std::min(next, shakes_.next());
  }
  return next;
}

}  // namespace covey::tcp
