#include "core/transport/composite.h"

#include <algorithm>
#include <cerrno>

#include "core/base/clock.h"

namespace covey {
namespace {

// Between two looks, while the job begins and ends, at a network that has no descriptor; and at one
// that has.
constexpr Time kLook = 100 * kMicrosecond, kLongLook = 50 * kMillisecond;

}  // namespace

Composite::Composite(Time start_timeout, std::unique_ptr<Transport> near, std::vector<Rank> hosted,
                     std::unique_ptr<FarPeers> far)
    : start_timeout_(start_timeout),
      near_(std::move(near)),
      hosted_(std::move(hosted)),
      near_index_(static_cast<size_t>(far->link().size()), -1),
      far_(std::move(far)) {
  for (size_t i = 0; i < hosted_.size(); ++i)
    near_index_[static_cast<size_t>(ToInt(hosted_[i]))] = static_cast<int32_t>(i);
}

Status Composite::Open(Time start_timeout, std::unique_ptr<Transport> near,
                       std::vector<Rank> hosted, std::unique_ptr<FarPeers> far,
                       std::unique_ptr<Transport>* transport) {
  std::unique_ptr<Composite> c(
      new Composite(start_timeout, std::move(near), std::move(hosted), std::move(far)));
  RETURN_IF_ERROR(c->Join());
  *transport = std::move(c);
  return Status::Ok();
}

Status Composite::Join() {
  std::vector<Rank> peers;
  for (int32_t r = 0; r < size(); ++r)
    if (NearIndex(Rank{r}) < 0) peers.push_back(Rank{r});
  RETURN_IF_ERROR(far_->Greet(near_->Base(near_->rank()), hosted_[0], peers));
  if (const int network = far_->link().Descriptor(); network >= 0)
    RETURN_IF_ERROR(DescriptorBell::Open(
        network, [this] { RingParked(); }, &bell_));
  const Time deadline = MonotonicNow() + start_timeout_;
  while (start_timeout_ > 0) {
    const uint32_t ticket = Ticket(Sleeper::kEngine);
    SetParked(Sleeper::kEngine);
    far_->Pump();
    if (const PeerLoss* lost = far_->LostSilent(); lost != nullptr)
      return Status::Aborted("rank " + std::to_string(ToInt(lost->rank)) + " " + lost->how,
                             lost->rank);
    const Rank silent = far_->Silent();
    if (silent == kNoRank) break;
    if (MonotonicNow() > deadline)
      return Status::Timeout("rank " + std::to_string(ToInt(silent)) + " has not called init()",
                             silent);
    Park(Sleeper::kEngine, ticket, NextLook(deadline));
  }
  SetParked(Sleeper::kNobody);
  return Status::Ok();
}

Time Composite::NextLook(Time deadline) const {
  return std::min(deadline, MonotonicNow() + (PollsNetwork() ? kLook : kLongLook));
}

// Waits until the last message has left: peers that still need it get it.
Composite::~Composite() {
  far_->SayGoodbye();
  const Time deadline = MonotonicNow() + start_timeout_;
  while (MonotonicNow() < deadline) {
    const uint32_t ticket = Ticket(Sleeper::kEngine);
    SetParked(Sleeper::kEngine);
    far_->Pump();
    if (far_->Flushed()) break;
    Park(Sleeper::kEngine, ticket, NextLook(deadline));
  }
}

bool Composite::TrySendParts(Rank to, Parts parts) {
  const int32_t near = NearIndex(to);
  return near < 0 ? far_->TrySend(to, parts) : near_->TrySendParts(Rank{near}, parts);
}

bool Composite::TryReceive(Rank* from, Bytes* message) {
  Rank near = kNoRank;
  if (near_->TryReceive(&near, message)) {
    *from = hosted_[static_cast<size_t>(ToInt(near))];
    return true;
  }
  return far_->TryReceive(from, message);
}

std::byte* Composite::Base(Rank r) {
  const int32_t near = NearIndex(r);
  return near < 0 ? far_->MirrorOf(r) : near_->Base(Rank{near});
}

// Never handed out again: what the old owner of the space pushed may still be on its way to
// mirrors, and would be read as the new one's.
void Composite::FreeShared(uint64_t) {}

int Composite::ReadPeer(Rank, uint64_t, std::byte*, size_t) { return ENOSYS; }

void Composite::StoreRelease(uint64_t* word, uint64_t value) {
  near_->StoreRelease(word, value);
  far_->Store(word, value);
}

void Composite::Wake(std::span<const Rank> peers) {
  woken_.clear();
  for (Rank peer : peers)
    if (const int32_t near = NearIndex(peer); near >= 0) woken_.push_back(Rank{near});
  near_->Wake(woken_);
  far_->Wake(peers);
}

// As near peers do for mail: the sleeper that drives; none while a thread is awake, which looks.
void Composite::RingParked() {
  const Sleeper parked = near_->Parked();
  if (parked == Sleeper::kNobody) return;
  near_->Ring(parked == Sleeper::kWaiter ? Sleeper::kWaiter : Sleeper::kEngine);
}

// Armed after the sleeper is known: RingParked finds it.
void Composite::SetParked(Sleeper sleeper) {
  near_->SetParked(sleeper);
  if (bell_ != nullptr && sleeper != Sleeper::kNobody) bell_->Arm();
}

std::vector<PeerLoss> Composite::PollPeers() {
  std::vector<PeerLoss> losses = near_->PollPeers();
  for (PeerLoss& loss : losses) loss.rank = hosted_[static_cast<size_t>(ToInt(loss.rank))];
  for (PeerLoss& loss : far_->PollLost()) losses.push_back(std::move(loss));
  return losses;
}

}  // namespace covey
