#include "ops/control/admission.h"

#include <algorithm>

namespace covey {

Greeting GreetingOf(std::string_view bytes, std::string_view name) {
  // A record of TLS: kind, version (2 bytes), length (2 bytes), and so many bytes.
  constexpr size_t kHeadBytes = 5;
  constexpr std::string_view kBegin("\x16\x03", 2);
  const auto byte = [bytes](size_t at) { return static_cast<uint8_t>(bytes[at]); };
  if (!bytes.starts_with(kBegin.substr(0, bytes.size()))) return Greeting::kRubbish;
  if (bytes.find(name) != std::string_view::npos) return Greeting::kNamed;
  if (bytes.size() >= kMostGreetingBytes) return Greeting::kStranger;
  if (bytes.size() < kHeadBytes) return Greeting::kPart;
  const size_t length = kHeadBytes + byte(3) * size_t{256} + byte(4);
  return bytes.size() < length ? Greeting::kPart : Greeting::kStranger;
}

void Admission::Arrive(int fd, const std::string& peer, Time now, bool is_crowded, Orders* orders) {
  if (is_crowded || guests_.size() >= kPlaces) End(Victim(), orders);
  if (guests_.size() >= kPlaces) return orders->end.push_back(fd);
  size_t* of_address = &of_address_[peer.substr(0, peer.rfind(':'))];
  ++*of_address;
  guests_.push_back({.fd = fd, .peer = peer, .of_address = of_address, .since = now});
}

void Admission::Hear(int fd, Greeting greeting, Orders* orders) {
  const auto guest = Find(fd);
  if (guest == guests_.end() || guest->stage != Stage::kUnheard) return;
  guest->is_silent = false;
  if (greeting == Greeting::kRubbish) return End(guest, orders);
  if (greeting == Greeting::kNamed) guest->stage = Stage::kNamed;
  if (greeting == Greeting::kStranger) guest->stage = Stage::kStranger;
}

void Admission::Decide(Time now, Orders* orders) {
  while (!guests_.empty() && now - guests_.front().since >= kPatience) End(guests_.begin(), orders);
  for (Queue& queue : queues_) {
    if (now < queue.next || Count(queue.in_tls) >= queue.gate.most) continue;
    const auto guest = std::find_if(guests_.begin(), guests_.end(),
                                    [&](const Guest& one) { return one.stage == queue.waiting; });
    if (guest == guests_.end()) continue;
    guest->stage = queue.in_tls;
    queue.next = now + queue.gate.interval;
    orders->take.push_back(guest->fd);
  }
}

void Admission::EndAll(Orders* orders) {
  while (!guests_.empty()) End(guests_.begin(), orders);
}

int Admission::Welcome(const std::string& peer) {
  const auto guest = std::find_if(guests_.begin(), guests_.end(),
                                  [&](const Guest& one) { return one.peer == peer; });
  if (guest == guests_.end()) return -1;
  const int fd = guest->fd;
  Erase(guest);
  return fd;
}

std::vector<Admission::Watched> Admission::watched() const {
  std::vector<Watched> watched;
  watched.reserve(guests_.size());
  for (const Guest& guest : guests_)
    watched.push_back({guest.fd, guest.is_silent, guest.stage != Stage::kUnheard});
  return watched;
}

Time Admission::Next(Time now) const {
  if (guests_.empty()) return kNever;
  Time next = guests_.front().since + kPatience;
  for (const Guest& guest : guests_)
    if (guest.stage == Stage::kUnheard && !guest.is_silent) next = std::min(next, now + kLook);
  for (const Queue& queue : queues_)
    if (Count(queue.waiting) > 0 && Count(queue.in_tls) < queue.gate.most)
      next = std::min(next, std::max(now, queue.next));
  return next;
}

Admission::Guests::iterator Admission::Find(int fd) {
  return std::find_if(guests_.begin(), guests_.end(),
                      [fd](const Guest& guest) { return guest.fd == fd; });
}

Admission::Guests::iterator Admission::Victim() {
  auto victim = guests_.end();
  for (auto guest = guests_.begin(); guest != guests_.end(); ++guest) {
    if (guest->stage == Stage::kNamedInTls) continue;
    const bool is_worse =
        victim == guests_.end() || guest->stage < victim->stage ||
        (guest->stage == victim->stage && *guest->of_address > *victim->of_address);
    if (is_worse) victim = guest;
  }
  return victim;
}

void Admission::End(Guests::iterator guest, Orders* orders) {
  if (guest == guests_.end()) return;
  orders->end.push_back(guest->fd);
  Erase(guest);
}

void Admission::Erase(Guests::iterator guest) {
  if (--*guest->of_address == 0) of_address_.erase(guest->peer.substr(0, guest->peer.rfind(':')));
  guests_.erase(guest);
}

size_t Admission::Count(Stage stage) const {
  return static_cast<size_t>(
      std::count_if(guests_.begin(), guests_.end(),
                    [stage](const Guest& guest) { return guest.stage == stage; }));
}

std::string PlaceOfPeer(const std::string& name) {
  std::string place = name.substr(name.find(':') + 1);  // whole without one
  for (const std::string_view mark : {"%5B", "%5D", "[", "]"})
    if (const size_t at = place.find(mark); at != std::string::npos) place.erase(at, mark.size());
  // The zone of a link-local address: not in what getpeername gives as text.
  const size_t zone = place.find('%'), port = place.rfind(':');
  if (zone != std::string::npos && port != std::string::npos && zone < port)
    place.erase(zone, port - zone);
  return place;
}

}  // namespace covey
