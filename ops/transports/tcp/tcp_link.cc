#include "ops/transports/tcp/tcp_link.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>

#include "core/base/clock.h"

namespace covey::tcp {
namespace {

std::string Span(Time lease) {
  if (lease % kSecond == 0) return std::to_string(lease / kSecond) + " s";
  return std::to_string(lease / kMillisecond) + " ms";
}

std::string Unreachable(Time lease, const std::string& why) {
  return "could not be reached for " + Span(lease) + " (COVEY_LEASE)" +
         (why.empty() ? "" : ": " + why);
}

int32_t LanesOf(int32_t streams, std::span<const PeerBook::Peer> peers, Rank own) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof(cores), &cores);
  const Rank host = peers[static_cast<size_t>(ToInt(own))].host;
  const int64_t ranks = std::count_if(peers.begin(), peers.end(),
                                      [host](const PeerBook::Peer& p) { return p.host == host; });
  return CountLanes(streams, CPU_COUNT(&cores), ranks);
}

}  // namespace

Status TcpLink::Open(const Options& options, const PeerBook& book, std::unique_ptr<TcpLink>* link) {
  std::unique_ptr<TcpLink> it(new TcpLink(options, book));
  if (!it->poller_.is_sound() || it->crew_.bell().fd() < 0)
    return Status::Exhausted("no descriptor for its connections: " + ErrnoText(errno));
  const bool encrypts = it->terms_.encrypts;
  const std::string purpose = std::string("covey tcp 1, ") + (encrypts ? "tls" : "auth") + ", " +
                              std::to_string(it->terms_.size) + " ranks";
  RETURN_IF_ERROR(TlsKey::Make(book.key, purpose, &it->terms_.key));
  it->Tick(MonotonicNow());
  *link = std::move(it);
  return Status::Ok();
}

// Keys of the poller: a peer's rank for its connection, size + rank for a dial, the door's, those
// of lanes that are dialed, the bell's.
TcpLink::TcpLink(const Options& options, const PeerBook& book)
    : terms_{options.rank,  static_cast<int32_t>(book.peers.size()),
             options.lease, book.security == PeerBook::Security::kTls,
             nullptr,       LanesOf(options.streams, book.peers, options.rank)},
      common_{terms_, addresses_, poller_, crew_, 2 * book.peers.size() + Door::kKeys},
      peers_(book.peers.size()) {
  for (const PeerBook::Peer& peer : book.peers) {
    addresses_.push_back(AddressOf(peer.address, peer.port));
    hosts_.push_back(ToInt(peer.host));
  }
  if (terms_.lanes > 0) poller_.Add(crew_.bell().fd(), kBell);
  door_ = std::make_unique<Door>(options.listener, terms_, &poller_, 2 * peers_.size());
  peers_[ToInt(terms_.rank)].state = State::kLost;  // nobody connects to itself
}

// False: it is lost, and what is sent to it goes nowhere.
bool TcpLink::Want(int32_t to) {
  Peer& peer = peers_[to];
  if (peer.state == State::kIdle) {
    peer.state = State::kDialing;
    dialing_.push_back(to);
    Dial(to, MonotonicNow());
  }
  return peer.state != State::kLost;
}

bool TcpLink::Send(int32_t to, std::span<const std::byte> message) {
  if (!Want(to)) return true;
  const bool taken = peers_[to].stream.Send(message, peers_[to].lanes.given());
  Flush(to);
  return taken;
}

bool TcpLink::Put(int32_t to, uint64_t offset, std::span<const std::byte> data) {
  if (!Want(to)) return true;
  Peer& peer = peers_[to];
  if (peer.lanes.Takes(data.size())) return peer.lanes.Put(offset, data);
  if (data.size() >= Lanes::kLarge && peer.lanes.MayMeet()) {
    peer.stream.AskForLanes();
    Meet(to);
  }
  const bool taken = peer.stream.Put(offset, data);
  if (!taken) Flush(to);
  if (taken && !peer.is_listed) unsent_.push_back(to);
  peer.is_listed |= taken;
  return taken;
}

void TcpLink::Land(int32_t from, std::span<std::byte> memory) {
  peers_[from].stream.Land(memory);
  peers_[from].lanes.Land(memory);
}

// The peer has asked for lanes, or has been asked.
void TcpLink::Meet(int32_t peer) {
  peers_[peer].lanes.Meet(MonotonicNow());
  TurnDoor();
  next_ = std::min({next_, peers_[peer].lanes.Next(), door_->Next()});
  poller_.WakeAt(next_);
}

void TcpLink::Watch(int32_t peer) {
  const Peer& it = peers_[peer];
  poller_.Watch(it.stream.fd(), static_cast<uint64_t>(peer), it.stream.watches_room, !it.is_held);
}

// Bytes that wait in the socket wake no thread meanwhile.
void TcpLink::Hold(int32_t peer, bool is_held) {
  if (peers_[peer].is_held == is_held) return;
  peers_[peer].is_held = is_held;
  Watch(peer);
}

// Tells the poller, too, whether room is waited for.
void TcpLink::Flush(int32_t to) {
  Stream& stream = peers_[to].stream;
  if (!stream.is_open()) return;
  if (!stream.watches_room) stream.Flush();
  if (stream.HasUnsent() == stream.watches_room) return;
  stream.watches_room = stream.HasUnsent();
  Watch(to);
}

void TcpLink::FlushAll() {
  for (int32_t peer : unsent_) {
    peers_[peer].is_listed = false;
    Flush(peer);
  }
  unsent_.clear();
}

void TcpLink::Dial(int32_t to, Time now) {
  Peer& peer = peers_[to];
  Socket socket;
  peer.began = now;
  peer.again = kNever;
  const Outcome outcome = Socket::Dial(addresses_[to], terms_.lease, &socket);
  if (outcome == Outcome::kEnded) return Redial(to, now, socket.error());
  poller_.Add(socket.fd(), peers_.size() + to, true);
  peer.dial = std::make_unique<Handshake>(terms_, std::move(socket), Rank{to});
}

void TcpLink::Redial(int32_t to, Time now, int error) {
  Peer& peer = peers_[to];
  const bool connected = peer.dial != nullptr && !peer.dial->is_connecting();
  StopDial(to);
  // It had been waiting at the peer's door: that was no trouble.
  if (connected && now - peer.began > terms_.lease) peer.trouble = now;
  if (peer.trouble == kNever) peer.trouble = connected ? now : peer.began;
  peer.how = error != 0 ? ErrnoText(error) : "its port closes the connection";
  if (now - peer.trouble >= terms_.lease) return Lose(to, Unreachable(terms_.lease, peer.how));
  peer.again = now + std::min(kAgain, terms_.lease / 8);
  next_ = std::min(next_, peer.again);
  poller_.WakeAt(next_);
}

void TcpLink::StopDial(int32_t to) {
  Peer& peer = peers_[to];
  if (peer.dial != nullptr) poller_.Remove(peer.dial->fd());
  peer.dial.reset();
}

void TcpLink::StepDial(int32_t to, Time now) {
  Peer& peer = peers_[to];
  if (peer.dial == nullptr) return;
  const bool connecting = peer.dial->is_connecting();
  const Outcome outcome = peer.dial->Step();
  if (outcome == Outcome::kEnded) return Redial(to, now, peer.dial->error());
  if (outcome == Outcome::kDone) {
    poller_.Remove(peer.dial->fd());
    const std::unique_ptr<Handshake> known = std::move(peer.dial);
    return Open(to, known->Take(), true);
  }
  if (!connecting || peer.dial->is_connecting()) return;
  peer.began = now;
  poller_.Watch(peer.dial->fd(), peers_.size() + to, false);
}

// The peer has dialed and proved who it is.
void TcpLink::Adopt(std::unique_ptr<Handshake> known) {
  const int32_t from = ToInt(known->peer());
  Peer& peer = peers_[from];
  if (known->place().lane >= 0) {
    bool is_second = false;
    if (peer.state == State::kOpen) peer.lanes.Adopt(known.get(), &is_second);
    if (is_second) Lose(from, HowEnded(ECONNRESET, false));
    return TurnDoor();
  }
  const bool own_stays =
      peer.dial != nullptr && !peer.dial->is_connecting() && ToInt(terms_.rank) < from;
  if (peer.state == State::kOpen || peer.state == State::kLost || own_stays) return;
  if (known->Agree()) Open(from, known->Take(), false);
}

void TcpLink::Open(int32_t to, std::unique_ptr<Wire> wire, bool dials) {
  Peer& peer = peers_[to];
  std::erase(dialing_, to);
  StopDial(to);
  peer.state = State::kOpen;
  poller_.Add(wire->socket.fd(), static_cast<uint64_t>(to));
  peer.lanes.Agree(&common_, Rank{to}, *wire, dials);
  peer.stream.Open(std::move(wire));
  open_.push_back(to);
  Flush(to);
  TurnDoor();
}

// It is open while a connection of a peer is expected.
void TcpLink::TurnDoor() {
  const bool complete = std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) {
    return (p.state == State::kOpen && !p.lanes.IsExpected()) || p.state == State::kLost;
  });
  if (complete)
    door_->Shut();
  else
    door_->Open();
}

std::string TcpLink::HowEnded(int error, bool is_malformed) const {
  if (is_malformed) return "sends what no rank of this version sends";
  switch (error) {
    case 0:
      return "has died, or its host has (connection closed)";
    case ECONNRESET:
    case EPIPE:
      return "has died, or its host has (connection reset)";
    case ETIMEDOUT:
      return Unreachable(terms_.lease, "");
    default:
      return Unreachable(terms_.lease, ErrnoText(error));
  }
}

void TcpLink::Lose(int32_t peer, std::string how) {
  if (peers_[peer].state == State::kLost) return;
  losses_.push_back({peer, std::move(how)});
  End(peer);
  poller_.WakeAt(next_ = 0);  // it is to be told, also if nothing else happens
}

void TcpLink::End(int32_t peer) {
  Peer& it = peers_[peer];
  it.state = State::kLost;
  if (it.stream.is_open()) poller_.Remove(it.stream.fd());
  ended_.push_back(std::move(it.stream));
  it.stream = Stream();
  it.lanes.Close();
  StopDial(peer);
  std::erase(dialing_, peer);
  std::erase(open_, peer);
  TurnDoor();
}

void TcpLink::Drop(int32_t peer) { End(peer); }

bool TcpLink::Lost(int32_t* peer, const char** how) {
  if (losses_.empty()) return false;
  *peer = losses_.front().peer;
  how_ = std::move(losses_.front().how);
  *how = how_.c_str();
  losses_.pop_front();
  return true;
}

void TcpLink::Serve(uint64_t key, Time now) {
  const uint64_t size = peers_.size();
  if (key == kBell) {
    HearWorkers();
  } else if (key >= common_.first_key) {
    const uint64_t at = key - common_.first_key;
    peers_[at / Lanes::kMost].lanes.Step(at % Lanes::kMost, now);
  } else if (key < size) {
    if (peers_[key].stream.is_open()) pass_.push_back(static_cast<int32_t>(key));
  } else if (key < 2 * size) {
    StepDial(static_cast<int32_t>(key - size), now);
  } else if (std::unique_ptr<Handshake> known = door_->Serve(key, now); known != nullptr) {
    Adopt(std::move(known));
  }
}

void TcpLink::LoseSilent(Time now) {
  constexpr Time kOften = 10 * kMillisecond;
  const std::vector<int32_t> open = open_;
  for (int32_t peer : open)
    if (peers_[peer].stream.IsSilent(terms_.lease) || peers_[peer].lanes.IsSilent(terms_.lease))
      Lose(peer, Unreachable(terms_.lease, ""));
  check_ = now + std::max(terms_.lease / 8, kOften);
}

void TcpLink::Tick(Time now) {
  door_->Tick(now);
  const std::vector<int32_t> dialing = dialing_;
  for (int32_t to : dialing)
    if (peers_[to].dial == nullptr && now >= peers_[to].again) Dial(to, now);
  if (now >= check_) LoseSilent(now);
  next_ = std::min(door_->Next(), open_.empty() ? kNever : check_);
  for (int32_t peer : open_) {
    peers_[peer].lanes.Tick(now);
    next_ = std::min({next_, peers_[peer].lanes.Next(), door_->Next()});
  }
  for (int32_t to : dialing_) next_ = std::min(next_, peers_[to].again);
  if (!losses_.empty()) next_ = 0;
  poller_.WakeAt(next_);
}

// Those with something to do: the open ones when they are few, else those that the poller names.
void TcpLink::BeginPass() {
  const Time now = MonotonicNow();
  const bool few = open_.size() <= kFew;
  turn_ = 0;
  pass_.clear();
  FlushAll();
  if (!few || now >= look_ || now >= next_) {
    look_ = now + kLook;
    for (uint64_t key : poller_.Ready()) Serve(key, now);
    Tick(now);
  }
  if (few) pass_ = open_;
  for (int32_t peer : pass_) {
    Stream& stream = peers_[peer].stream;
    stream.BeginPass();
    if (!stream.watches_room) continue;
    stream.Flush();
    Flush(peer);
  }
}

// Messages that wait for lanes may go on, and peers may be lost.
void TcpLink::HearWorkers() {
  crew_.bell().Hear();
  const std::vector<int32_t> open = open_;
  for (int32_t peer : open) {
    if (peers_[peer].is_held) pass_.push_back(peer);
    if (peers_[peer].lanes.IsMalformed()) Lose(peer, HowEnded(0, true));
  }
}

// False: there is none that may be received now (invariant 2 of lanes.h).
bool TcpLink::Next(int32_t from, std::span<const std::byte>* message) {
  Peer& peer = peers_[from];
  if (!peer.is_held) {
    const Outcome outcome = peer.stream.Receive(&peer.held);
    if (peer.stream.is_asked() && peer.lanes.MayMeet()) Meet(from);
    if (outcome == Outcome::kEnded)
      Lose(from, HowEnded(peer.stream.error(), peer.stream.is_malformed()));
    if (outcome != Outcome::kDone) return false;
  }
  const Lanes::Landing landing = peer.lanes.HasLanded(peer.stream.after());
  if (landing == Lanes::Landing::kEnded) {
    Lose(from, HowEnded(peer.lanes.error(), peer.lanes.IsMalformed()));
    return false;
  }
  Hold(from, landing == Lanes::Landing::kWait);
  *message = peer.held;
  return landing == Lanes::Landing::kDone;
}

bool TcpLink::Receive(int32_t* from, std::span<const std::byte>* message) {
  ended_.clear();
  if (!in_pass_) BeginPass();
  in_pass_ = true;
  for (; turn_ < pass_.size(); ++turn_) {
    const int32_t peer = pass_[turn_];
    if (!peers_[peer].stream.is_open()) continue;  // dropped since
    if (!Next(peer, message)) continue;
    *from = peer;
    return true;
  }
  in_pass_ = false;
  return false;
}

bool TcpLink::Flushed() {
  FlushAll();
  const bool flushed = std::all_of(peers_.begin(), peers_.end(), [](Peer& peer) {
    return peer.state == State::kLost || (peer.stream.IsConfirmed() && peer.lanes.IsConfirmed());
  });
  // No descriptor says that a peer's kernel has confirmed the last bytes.
  if (!flushed) next_ = std::min(next_, MonotonicNow() + kMillisecond);
  if (!flushed) poller_.WakeAt(next_);
  return flushed;
}

}  // namespace covey::tcp
