#include "ops/transports/shm.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/check.h"
#include "core/base/clock.h"

namespace covey {
namespace {

// Messages stand in a mailbox as a 32-bit length and the bytes, rounded up to 8.
constexpr uint64_t Padded(uint64_t length_bytes) {
  return (sizeof(uint32_t) + length_bytes + 7) / 8 * 8;
}

// An empty part has no address, and memcpy takes none.
void CopyInto(MailRing* box, uint64_t at, const void* data, size_t length) {
  if (length == 0) return;
  const size_t begin = at % MailRing::kCapacityBytes;
  const size_t first = std::min<size_t>(length, MailRing::kCapacityBytes - begin);
  std::memcpy(box->bytes + begin, data, first);
  // shm-M1: a mailbox is a ring: a message that does not fit at its end goes on at its begin.
  std::memcpy(box->bytes, static_cast<const std::byte*>(data) + first, length - first);
}

// The message that lies there, in one piece, or in two where it goes on at the ring's begin.
std::array<std::span<const std::byte>, 2> At(const MailRing* box, uint64_t at, size_t length) {
  const size_t begin = at % MailRing::kCapacityBytes;
  const size_t first = std::min<size_t>(length, MailRing::kCapacityBytes - begin);
  return {std::span(box->bytes + begin, first), std::span(box->bytes, length - first)};
}

void CopyOut(const MailRing* box, uint64_t at, void* data, size_t length) {
  if (length == 0) return;
  for (const std::span<const std::byte> piece : At(box, at, length)) {
    std::memcpy(data, piece.data(), piece.size());
    data = static_cast<std::byte*>(data) + piece.size();
  }
}

void RingBell(RankPage* page, Transport::Sleeper sleeper) {
  std::atomic<uint32_t>* bell = &page->bells[static_cast<uint32_t>(sleeper)];
  // shm-M2: the count alone ends no sleep that has begun.
  bell->fetch_add(1);
  FutexWake(bell);
}

// The descriptor a rank inherits may have been closed by a wrapper between coveyrun and this
// process; the launcher still has it.
Status OpenJob(const TransportOptions& options, std::unique_ptr<Transport>* transport) {
  const ShmJob::Identity identity{options.rank, options.size, options.reads_peers};
  int fd = options.shm_fd;
  int opened = -1;
  if (fd < 0 && options.size == 1) {
    RETURN_IF_ERROR(ShmJob::Create(1, options.arena_bytes, &opened));
    fd = opened;
  } else if (fcntl(fd, F_GETFD) < 0 && options.launcher_pid > 0) {
    const std::string path =
        "/proc/" + std::to_string(options.launcher_pid) + "/fd/" + std::to_string(fd);
    opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
    fd = opened;
  }
  std::unique_ptr<ShmTransport> shm;
  const ShmJob::Patience patience{.timeout_ns = options.start_timeout,
                                  .warn_after_ns = options.start_warning,
                                  .log = options.log};
  Status status = ShmTransport::Open(fd, identity, patience, &shm);
  if (opened >= 0) close(opened);
  *transport = std::move(shm);
  return status;
}

constexpr TransportKind kKind{"shm", OpenJob, ShmJob::Create};
const TransportRegistration kRegistration(kKind);

}  // namespace

Status ShmTransport::Open(int fd, ShmJob::Identity identity, const ShmJob::Patience& patience,
                          std::unique_ptr<ShmTransport>* transport) {
  ShmJob job;
  RETURN_IF_ERROR(ShmJob::Open(fd, identity, &job));
  // Before peers probe: where Yama restricts reading to parents, this rank lets its peers, and with
  // them every process of the user: not unless it is needed.
  if (identity.reads_peers) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  auto watch = std::make_unique<ProcessWatch>(identity.size);
  if (const Status joined = job.Join(patience, watch.get()); !joined.ok()) {
    job.arena->Unref();
    return joined;
  }
  transport->reset(new ShmTransport(job, std::move(watch)));
  if (identity.reads_peers) (*transport)->ProbeReading();
  return Status::Ok();
}

ShmTransport::ShmTransport(ShmJob job, std::unique_ptr<ProcessWatch> watch)
    : job_(job),
      own_(job_.Page(job_.identity.rank)),
      region_offset_(static_cast<uint64_t>(job_.Region(job_.identity.rank) - job_.arena->base())),
      watch_(std::move(watch)),
      lost_(static_cast<size_t>(job_.identity.size)) {}

ShmTransport::~ShmTransport() {
  job_.Leave();
  for (int32_t r = 0; r < size(); ++r)
    if (r != ToInt(rank())) RingPeer(Rank{r}, Reason::kMail);
  job_.arena->Unref();
}

// Whether the kernel lets this process read its peers' memory (Yama, containers and seccomp may
// not).
void ShmTransport::ProbeReading() {
  for (int32_t r = 0; r < size(); ++r) pids_.push_back(job_.Page(Rank{r})->pid.load());
  can_read_peers_ = true;
  for (int32_t r = 0; r < size(); ++r) {
    uint64_t value = 0;
    const uint64_t address = job_.Page(Rank{r})->probe_address.load();
    const int error =
        ReadPeer(Rank{r}, address, reinterpret_cast<std::byte*>(&value), sizeof(value));
    can_read_peers_ &= error == 0 && value == kJobMagic;
  }
}

int ShmTransport::ReadPeer(Rank peer, uint64_t address, std::byte* to, size_t length_bytes) {
  const pid_t pid = pids_[static_cast<size_t>(ToInt(peer))];
  for (size_t done = 0; done < length_bytes;) {
    const iovec local{to + done, length_bytes - done};
    const iovec remote{reinterpret_cast<void*>(address + done), length_bytes - done};
    const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got <= 0) return got < 0 ? errno : EFAULT;
    done += static_cast<size_t>(got);
  }
  // shm-M4: a process number is given again only once its process is known to have ended: what was
  // read of such a process does not count.
  return IsLost(peer) || watch_->IsGone(ToInt(peer)) ? ESRCH : 0;
}

bool ShmTransport::TrySendParts(Rank to, Parts parts) {
  MailRing* box = job_.MailboxOf(to, rank());
  // shm-M1: first the bytes, then the tail. shm-M2: the ring comes last.
  const uint64_t tail = box->tail.load(std::memory_order_relaxed);
  const uint64_t used = tail - box->head.load(std::memory_order_acquire);
  // shm-M1: without room nothing is written: the receiver has yet to read what lies there.
  const auto length = static_cast<uint32_t>(LengthOf(parts));
  if (MailRing::kCapacityBytes - used < Padded(length)) return false;
  CopyInto(box, tail, &length, sizeof(length));
  uint64_t at = tail + sizeof(length);
  for (const std::span<const std::byte> part : parts) {
    CopyInto(box, at, part.data(), part.size());
    at += part.size();
  }
  box->tail.store(tail + Padded(length), std::memory_order_release);
  job_.Page(to)->mail.fetch_add(1);  // seq_cst, as RingPeer's look at `parked`
  // shm-M2: rung after the message is visible: the peer looks once, and sleeps again.
  if (to != rank()) RingPeer(to, Reason::kMail);
  return true;
}

bool ShmTransport::TryReceive(Rank* from, Bytes* message) {
  if (!HasMail()) return false;
  for (int32_t step = 0; step < size(); ++step) {
    const int32_t r = (next_mailbox_ + step) % size();
    MailRing* box = job_.MailboxOf(rank(), Rank{r});
    const uint64_t head = box->head.load(std::memory_order_relaxed);
    const uint64_t filled = box->tail.load(std::memory_order_acquire) - head;
    if (filled == 0) continue;
    uint32_t length = 0;
    CopyOut(box, head, &length, sizeof(length));
    CHECK(Padded(length) <= filled, "a mailbox holds a message longer than itself");
    message->clear();
    Append(message, At(box, head + sizeof(length), length));
    box->head.store(head + Padded(length), std::memory_order_release);
    mail_taken_.fetch_add(1, std::memory_order_relaxed);
    next_mailbox_ = (r + 1) % size();
    *from = Rank{r};
    return true;
  }
  return false;  // counted, not yet visible: the next call finds it
}

uint64_t ShmTransport::AllocShared(size_t length_bytes) {
  const uint64_t offset = job_.arena->Alloc(length_bytes);
  return offset == Arena::kFull ? kNoOffset : offset - region_offset_;
}

void ShmTransport::FreeShared(uint64_t offset) { job_.arena->Free(offset + region_offset_); }

uint64_t ShmTransport::OffsetOf(const std::byte* data, size_t length_bytes) const {
  const uint64_t offset = job_.arena->OffsetOf(data, length_bytes);
  return offset == Arena::kFull ? kNoOffset : offset - region_offset_;
}

uint64_t ShmTransport::LoadAcquire(const uint64_t* word) {
  // shm-O1: what was written before the tick is read after it.
  return std::atomic_ref(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
}

void ShmTransport::StoreRelease(uint64_t* word, uint64_t value) {
  // shm-O1: the tick comes after what was written before it.
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

void ShmTransport::Wake(std::span<const Rank> peers) {
  // shm-M2, shm-O4: Dekker with SetParked: the peer is seen parked, or its last look sees this.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (Rank peer : peers)
    if (peer != rank()) RingPeer(peer, Reason::kTick);
}

void ShmTransport::RingPeer(Rank peer, Reason reason) {
  RankPage* page = job_.Page(peer);
  // shm-M2: a rank without work in flight is rung for mail, but not for ticks.
  const auto& parked = reason == Reason::kTick ? page->parked_for_ticks : page->parked;
  // shm-O4: seq_cst, or it may be read before the message is counted. shm-M2: who sleeps is rung.
  const auto sleeper = static_cast<Sleeper>(parked.load());
  if (sleeper == Sleeper::kNobody) return;
  // shm-M2: the thread that drives is rung: the other one would leave the work to it.
  RingBell(page, sleeper == Sleeper::kWaiter ? Sleeper::kWaiter : Sleeper::kEngine);
}

// The cause comes first: ranks that lose a peer leave, and are lost to others.
std::vector<PeerLoss> ShmTransport::PollPeers() {
  std::vector<Lost> found;
  // Again after one that has left: a peer that died before it may have been missed by the first.
  if (FindLost(&found)) FindLost(&found);
  std::stable_sort(found.begin(), found.end(),
                   [](const Lost& a, const Lost& b) { return a.at < b.at; });
  std::vector<PeerLoss> losses;
  for (Lost& one : found) losses.push_back(std::move(one.loss));
  return losses;
}

// Whether one of them has left.
bool ShmTransport::FindLost(std::vector<Lost>* found) {
  bool has_left = false;
  const auto lose = [&](int32_t r, Time at, std::string how) {
    lost_[static_cast<size_t>(r)] = true;
    watch_->Forget(r);
    found->push_back({at, {Rank{r}, std::move(how)}});
  };
  // First the dead, then the left: one that left and ended in between is not called dead.
  const std::vector<int32_t> gone = watch_->Gone();
  for (int32_t r = 0; r < size(); ++r) {
    const Presence presence = job_.PresenceOf(Rank{r});
    if (lost_[static_cast<size_t>(r)] || r == ToInt(rank())) continue;
    const RankPage& page = *job_.Page(Rank{r});
    // shm-M4: a rank that has left gives nothing any more, whether by shutdown or by giving up.
    if (presence == Presence::kLeft || presence == Presence::kGaveUp) {
      has_left = true;
      lose(r, page.left_at.load(), "has left the job (it called shutdown or its program ended)");
    } else if (std::find(gone.begin(), gone.end(), r) != gone.end()) {  // shm-M4: says its pidfd
      lose(r, 0, "has died (process " + std::to_string(page.pid.load()) + " is gone)");
    }
  }
  return has_left;
}

uint32_t ShmTransport::Ticket(Sleeper sleeper) {
  return own_->bells[static_cast<uint32_t>(sleeper)].load();
}

void ShmTransport::SetParked(Sleeper sleeper) {
  const Sleeper for_ticks = sleeper == Sleeper::kMailOnly ? Sleeper::kNobody : sleeper;
  // shm-M2: rung for ticks, too. A store, even of the same, takes the cache line from the peers.
  if (own_->parked_for_ticks.load(std::memory_order_relaxed) != static_cast<uint32_t>(for_ticks))
    own_->parked_for_ticks.store(static_cast<uint32_t>(for_ticks), std::memory_order_relaxed);
  own_->parked.store(static_cast<uint32_t>(sleeper), std::memory_order_relaxed);
  // shm-O4: Dekker with RingPeer.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

Transport::Sleeper ShmTransport::Parked() const {
  return static_cast<Sleeper>(own_->parked.load());
}

void ShmTransport::Park(Sleeper sleeper, uint32_t ticket, Time until) {
  FutexWait(&own_->bells[static_cast<uint32_t>(sleeper)], ticket, until - MonotonicNow());
}

void ShmTransport::Ring(Sleeper sleeper) { RingBell(own_, sleeper); }

}  // namespace covey
