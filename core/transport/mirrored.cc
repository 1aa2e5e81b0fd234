#include "core/transport/mirrored.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/check.h"
#include "core/base/clock.h"

namespace covey {
namespace {

constexpr uint64_t kHeapBegin = 64;  // offset 0 is never used
// Between two looks, while the job begins and ends, at a network that has no descriptor; and at one
// that has.
constexpr Time kLook = 100 * kMicrosecond, kLongLook = 50 * kMillisecond;

}  // namespace

Mirrored::Mirrored(const Options& options, std::unique_ptr<FarPeers> far)
    : options_(options), far_(std::move(far)) {
  for (int& fd : bell_fds_) fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

Status Mirrored::Open(const Options& options, std::unique_ptr<Link> link,
                      std::unique_ptr<Transport>* transport) {
  const FarPeers::Options of_peers{.arena_bytes = options.arena_bytes,
                                   .put_bytes = options.put_bytes};
  return Open(options, std::make_unique<FarPeers>(std::move(link), of_peers), transport);
}

Status Mirrored::Open(const Options& options, std::unique_ptr<FarPeers> far,
                      std::unique_ptr<Transport>* transport) {
  std::unique_ptr<Mirrored> m(new Mirrored(options, std::move(far)));
  const int fd = memfd_create("covey", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(options.arena_bytes)) != 0)
    return Status::Exhausted("cannot make this rank's memory: " + ErrnoText(errno));
  const Status mapped =
      Arena::Map(fd, options.arena_bytes, kHeapBegin, options.arena_bytes, &m->arena_);
  close(fd);
  RETURN_IF_ERROR(mapped);
  RETURN_IF_ERROR(m->Join());
  *transport = std::move(m);
  return Status::Ok();
}

Status Mirrored::Join() {
  std::vector<Rank> peers;
  for (int32_t r = 0; r < size(); ++r)
    if (Rank{r} != rank()) peers.push_back(Rank{r});
  RETURN_IF_ERROR(far_->Greet(arena_->base(), rank(), peers));
  if (const int network = far_->link().Descriptor(); network >= 0)
    RETURN_IF_ERROR(network_.Open(network));
  const Time deadline = MonotonicNow() + options_.start_timeout;
  while (options_.start_timeout > 0) {
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

Time Mirrored::NextLook(Time deadline) const {
  return std::min(deadline, MonotonicNow() + (PollsNetwork() ? kLook : kLongLook));
}

// Waits until the last message has left: peers that still need it get it.
Mirrored::~Mirrored() {
  far_->SayGoodbye();
  const Time deadline = MonotonicNow() + options_.start_timeout;
  while (MonotonicNow() < deadline) {
    const uint32_t ticket = Ticket(Sleeper::kEngine);
    SetParked(Sleeper::kEngine);
    far_->Pump();
    if (far_->Flushed()) break;
    Park(Sleeper::kEngine, ticket, NextLook(deadline));
  }
  for (int fd : bell_fds_) close(fd);
  // The network may go on reading what peers that have left never took: that memory stays.
  if (arena_ != nullptr && far_->link().Flushed()) arena_->Unref();
}

uint64_t Mirrored::AllocShared(size_t length_bytes) {
  const uint64_t offset = arena_->Alloc(length_bytes);
  return offset == Arena::kFull ? kNoOffset : offset;
}

// Never handed out again: what the old owner of the space pushed may still be on its way to
// mirrors, and would be read as the new one's.
void Mirrored::FreeShared(uint64_t) {}

int Mirrored::ReadPeer(Rank, uint64_t, std::byte*, size_t) { return ENOSYS; }

void Mirrored::StoreRelease(uint64_t* word, uint64_t value) {
  *word = value;
  far_->Store(word, value);
}

uint32_t Mirrored::Ticket(Sleeper sleeper) { return bells_[static_cast<size_t>(sleeper)].load(); }

// From now on the network concerns this sleeper, which may sleep already: the engine thread does
// while a waiter drives, and then the network does not concern it.
void Mirrored::SetParked(Sleeper sleeper) {
  // shm-O4: Dekker with Engine::Kick.
  parked_.store(static_cast<uint32_t>(sleeper));
  if (network_.is_open() && (sleeper == Sleeper::kEngine || sleeper == Sleeper::kMailOnly))
    network_.Arm();
}

Transport::Sleeper Mirrored::Parked() const { return static_cast<Sleeper>(parked_.load()); }

// Until rung, or until a network that has a descriptor has something to do.
void Mirrored::Park(Sleeper sleeper, uint32_t ticket, Time until) {
  const bool is_engine = sleeper == Sleeper::kEngine;
  const int network = is_engine ? network_.fd() : far_->link().Descriptor();
  const Time sleep = until - MonotonicNow();
  if (Ticket(sleeper) != ticket || sleep <= 0) return;
  const timespec span{.tv_sec = static_cast<time_t>(sleep / kSecond),
                      .tv_nsec = static_cast<long>(sleep % kSecond)};
  pollfd wakers[] = {{bell_fds_[static_cast<size_t>(sleeper)], POLLIN, 0}, {network, POLLIN, 0}};
  eventfd_t rings = 0;
  if (ppoll(wakers, 2, &span, nullptr) <= 0) return;
  if (wakers[0].revents != 0) eventfd_read(wakers[0].fd, &rings);
  if (wakers[1].revents != 0 && is_engine) network_.Consume();
}

void Mirrored::Ring(Sleeper sleeper) {
  bells_[static_cast<size_t>(sleeper)].fetch_add(1);
  eventfd_write(bell_fds_[static_cast<size_t>(sleeper)], 1);
}

}  // namespace covey
