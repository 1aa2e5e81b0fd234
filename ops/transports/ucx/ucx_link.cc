#include "ops/transports/ucx/ucx_link.h"

#include <cstring>
#include <utility>

#include "core/base/clock.h"

namespace covey::ucx {

UcxLink::UcxLink(const Options& options)
    : options_(options), peers_(static_cast<size_t>(options.size)) {}

std::string UcxLink::Open(const Options& options, const Fabric& fabric,
                          std::unique_ptr<UcxLink>* link) {
  std::unique_ptr<UcxLink> it(new UcxLink(options));
  std::string why = Worker::Open(fabric, Packet::kId, Arrive, it.get(), &it->worker_);
  if (why.empty()) *link = std::move(it);
  return why;
}

UcxLink::~UcxLink() {
  if (worker_ == nullptr) return;
  for (int32_t peer = 0; peer < options_.size; ++peer) Drop(peer);
}

void UcxLink::Expect(int32_t peer, uint64_t token) {
  peers_[peer].token = token;
  peers_[peer].is_expected = true;
}

void UcxLink::Connect(int32_t peer, const void* address, uint64_t token) {
  Peer& it = peers_[peer];
  if (it.is_lost) return;
  it.outgoing.Sign(options_.rank, token);
  if (it.outgoing.Open(worker_->get(), address) != UCS_OK) worker_->Wake();
}

void UcxLink::Land(int32_t from, void* memory, size_t length) {
  peers_[from].incoming.Land(static_cast<std::byte*>(memory), length);
}

// Packets to a lost peer are dropped.
bool UcxLink::Send(int32_t to, const void* message, size_t length) {
  Peer& peer = peers_[to];
  if (peer.is_lost) return true;
  if (!peer.outgoing.is_open() || !peer.outgoing.HasRoom()) return false;
  peer.outgoing.SendMessage(message, length);
  if (peer.outgoing.failure() != UCS_OK) worker_->Wake();
  return true;
}

bool UcxLink::Put(int32_t to, uint64_t offset, const void* data, size_t length) {
  Peer& peer = peers_[to];
  if (peer.is_lost) return true;
  if (!peer.outgoing.is_open() || !peer.outgoing.HasRoom()) return false;
  peer.outgoing.SendPut(offset, data, length);
  if (peer.outgoing.failure() != UCS_OK) worker_->Wake();
  return true;
}

ucs_status_t UcxLink::Arrive(void* self, const void* header, size_t header_length, void* data,
                             size_t length, const ucp_am_recv_param_t* param) {
  Packet packet;
  if (header_length != sizeof(packet)) return UCS_ERR_INVALID_PARAM;
  std::memcpy(&packet, header, sizeof(packet));
  const bool is_here = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0;
  return static_cast<UcxLink*>(self)->Take(packet, data, length, is_here);
}

// Under the worker's progress: receives are begun afterwards.
ucs_status_t UcxLink::Take(const Packet& packet, void* data, size_t length, bool is_here) {
  const ucs_status_t refused = is_here ? UCS_OK : UCS_ERR_REJECTED;
  if (packet.from < 0 || packet.from >= options_.size) return refused;
  Peer& peer = peers_[packet.from];
  if (!peer.is_expected || peer.is_lost || packet.token != peer.token) return refused;
  if (packet.kind == Kind::kAnswer) {
    peer.outgoing.Answered(packet.number);
    return refused;
  }
  const bool sound = is_here ? peer.incoming.Take(packet, data, length)
                             : peer.incoming.Announce(packet, data, length);
  peer.is_malformed |= !sound;
  if (!sound) return refused;
  if (!is_here) begin_.push_back(packet.from);
  List(packet.from);
  return is_here ? UCS_OK : UCS_INPROGRESS;
}

void UcxLink::List(int32_t peer) {
  Peer& it = peers_[peer];
  if (it.is_listed) return;
  it.is_listed = true;
  ready_.push_back(peer);
}

// False: there was nothing to do.
bool UcxLink::Progress() {
  const bool moved = worker_->Progress();
  for (int32_t peer : std::exchange(begin_, {})) peers_[peer].incoming.Begin(worker_->get());
  return moved;
}

// Takes packets in turn until one is a message.
bool UcxLink::Next(int32_t* from, const void** message, size_t* length) {
  for (size_t left = ready_.size(); left > 0; --left) {
    const int32_t rank = ready_.front();
    ready_.pop_front();
    Peer& peer = peers_[rank];
    peer.is_listed = false;
    while (!peer.is_lost && peer.incoming.IsReady()) {
      Incoming::Arrival arrival = peer.incoming.Next();
      if (arrival.packet.kind == Kind::kFence) peer.outgoing.SendAnswer(arrival.packet.number);
      if (arrival.packet.kind != Kind::kMessage) continue;
      message_ = std::move(arrival.body);
      *from = rank;
      *message = message_.data();
      *length = message_.size();
      if (peer.incoming.IsReady() || peer.incoming.under_way() > 0) List(rank);
      return true;
    }
    if (!peer.is_lost && peer.incoming.under_way() > 0) List(rank);
  }
  return false;
}

bool UcxLink::Receive(int32_t* from, const void** message, size_t* length) {
  for (int pass = 0; pass < kMostPasses; ++pass) {
    if (Next(from, message, length)) return true;
    const bool moved = Progress();
    if (!moved && worker_->Arm()) return false;
  }
  worker_->Wake();
  return false;
}

bool UcxLink::Flushed() {
  const int64_t now = MonotonicNow();
  bool flushed = true;
  for (Peer& peer : peers_) {
    Outgoing& outgoing = peer.outgoing;
    if (peer.is_lost || !outgoing.is_open() || outgoing.failure() != UCS_OK) continue;
    if (outgoing.needs_fence() && outgoing.HasRoom()) {
      outgoing.SendFence();
      peer.fenced = now;
    }
    flushed &= !outgoing.needs_fence() &&
               (outgoing.is_answered() || now - peer.fenced > options_.lease_ns);
  }
  return flushed;
}

// A receive that has begun ends with the endpoint: UCX writes to its memory until then.
void UcxLink::Drop(int32_t peer) {
  Peer& it = peers_[peer];
  it.is_lost = true;
  it.incoming.Drop(worker_->get());
  it.outgoing.Close();
  const int64_t limit = MonotonicNow() + options_.lease_ns;
  while ((!it.outgoing.is_closed() || it.incoming.under_way() > 0) && MonotonicNow() < limit) {
    Progress();
    it.outgoing.StepClose();
  }
}

bool UcxLink::Lost(int32_t* peer, const char** how) {
  for (int32_t rank = 0; rank < options_.size; ++rank) {
    Peer& it = peers_[rank];
    if (it.is_lost) continue;
    const ucs_status_t failure = it.outgoing.failure();
    if (it.is_malformed)
      how_ = "sends what no rank of this version sends";
    else if (failure != UCS_OK)
      how_ = std::string("has died, or its host has (UCX: ") + ucs_status_string(failure) + ")";
    else if (it.incoming.has_failed())
      how_ = "has died, or its host has (UCX cannot receive from it)";
    else
      continue;
    it.is_lost = true;
    *peer = rank;
    *how = how_.c_str();
    return true;
  }
  return false;
}

}  // namespace covey::ucx
