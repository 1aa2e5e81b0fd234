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

// A message is a row of records, each a Record and `length` bytes.
enum class RecordKind : uint32_t { kHello, kMail, kPush, kWord, kGoodbye };
struct Record {
  RecordKind kind;
  uint32_t length;
  uint64_t offset;  // push, word: in the sender's region; hello: bytes of its region
};
constexpr uint64_t kHeapBegin = 64;  // offset 0 is never used
// Between two looks at the network while the job begins and ends.
constexpr Time kLook = 100 * kMicrosecond;

void Append(Bytes* to, RecordKind kind, uint64_t offset, const void* data, size_t length) {
  const Record record{kind, static_cast<uint32_t>(length), offset};
  const size_t at = to->size();
  to->resize(at + sizeof(record) + length);
  std::memcpy(to->data() + at, &record, sizeof(record));
  if (length > 0) std::memcpy(to->data() + at + sizeof(record), data, length);
}

}  // namespace

Mirrored::Mirrored(const Options& options, std::unique_ptr<Link> link)
    : options_(options), link_(std::move(link)) {
  const auto size = static_cast<size_t>(link_->size());
  bases_.assign(size, nullptr);
  out_.resize(size);
  heard_.assign(size, false);
  lost_.assign(size, false);
  for (int& fd : bell_fds_) fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

Status Mirrored::Open(const Options& options, std::unique_ptr<Link> link,
                      std::unique_ptr<Transport>* transport) {
  std::unique_ptr<Mirrored> m(new Mirrored(options, std::move(link)));
  const int fd = memfd_create("covey", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(options.arena_bytes)) != 0)
    return Status::Exhausted("cannot make this rank's memory: " + ErrnoText(errno));
  const Status mapped =
      Arena::Map(fd, options.arena_bytes, kHeapBegin, options.arena_bytes, &m->arena_);
  close(fd);
  RETURN_IF_ERROR(mapped);
  for (int32_t r = 0; r < m->size(); ++r) {
    void* base = m->arena_->base();
    if (Rank{r} != m->rank())
      base = mmap(nullptr, options.arena_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
      return Status::Exhausted("no address space for a mirror of rank " + std::to_string(r) +
                               "; lower COVEY_ARENA_BYTES");
    m->bases_[static_cast<size_t>(r)] = static_cast<std::byte*>(base);
    if (Rank{r} != m->rank() && m->link_->Puts())
      m->link_->Land(Rank{r}, {static_cast<std::byte*>(base), options.arena_bytes});
  }
  RETURN_IF_ERROR(m->Join());
  *transport = std::move(m);
  return Status::Ok();
}

// The first message of each rank tells the size of its region.
Status Mirrored::Join() {
  for (int32_t r = 0; r < size(); ++r) {
    if (Rank{r} == rank()) continue;
    Append(&out_[static_cast<size_t>(r)].open, RecordKind::kHello, options_.arena_bytes, nullptr,
           0);
    SendOpen(Rank{r});
  }
  heard_[static_cast<size_t>(ToInt(rank()))] = true;
  const Time deadline = MonotonicNow() + options_.start_timeout;
  while (options_.start_timeout > 0) {
    Pump();
    if (!losses_.empty())
      return Status::Aborted(
          "rank " + std::to_string(ToInt(losses_[0].rank)) + " " + losses_[0].how, losses_[0].rank);
    const auto silent = std::find(heard_.begin(), heard_.end(), false);
    if (silent == heard_.end()) break;
    const auto rank = static_cast<int32_t>(silent - heard_.begin());
    if (MonotonicNow() > deadline)
      return Status::Timeout("rank " + std::to_string(rank) + " has not called init()", Rank{rank});
    Park(Sleeper::kEngine, Ticket(Sleeper::kEngine), std::min(deadline, MonotonicNow() + kLook));
  }
  return Status::Ok();
}

Mirrored::~Mirrored() {
  SayGoodbye();
  // The network may go on reading what peers that have left never took: that memory stays.
  const bool is_read = !link_->Flushed();
  link_.reset();
  for (int fd : bell_fds_) close(fd);
  for (std::byte* base : bases_)
    if (base != nullptr && base != arena_->base()) munmap(base, options_.arena_bytes);
  if (arena_ != nullptr && !is_read) arena_->Unref();
}

// Waits until the last message has left: peers that still need it get it.
void Mirrored::SayGoodbye() {
  for (int32_t r = 0; r < size(); ++r) {
    if (Rank{r} == rank() || lost_[static_cast<size_t>(r)] ||
        bases_[static_cast<size_t>(r)] == nullptr)
      continue;
    Append(&out_[static_cast<size_t>(r)].open, RecordKind::kGoodbye, 0, nullptr, 0);
    SendOpen(Rank{r});
  }
  const Time deadline = MonotonicNow() + options_.start_timeout;
  while (MonotonicNow() < deadline) {
    Pump();
    if (!HasUnsent() && link_->Flushed()) break;
    Park(Sleeper::kEngine, Ticket(Sleeper::kEngine), std::min(deadline, MonotonicNow() + kLook));
  }
}

// Hands the open message over, or keeps it when the link has no room.
void Mirrored::SendOpen(Rank to) {
  Outgoing& out = out_[static_cast<size_t>(ToInt(to))];
  if (out.open.empty()) return;
  if (out.unsent.empty() && link_->Send(to, out.open)) return out.open.clear();
  out.unsent.push_back({.message = std::move(out.open), .data = {}});
  out.open = {};
}

bool Mirrored::Offer(Rank to, const Parcel& parcel) {
  return parcel.message.empty() ? link_->Put(to, parcel.offset, parcel.data)
                                : link_->Send(to, parcel.message);
}

// Takes what has arrived, then sends what had to wait.
void Mirrored::Pump() {
  Rank from = kNoRank;
  std::span<const std::byte> message;
  while (link_->Receive(&from, &message)) {
    if (!Absorb(from, message)) Lose(from, "sends what no rank of this version sends");
  }
  for (size_t r = 0; r < out_.size(); ++r) {
    Outgoing& out = out_[r];
    while (!out.unsent.empty() && Offer(Rank{static_cast<int32_t>(r)}, out.unsent.front()))
      out.unsent.pop_front();
  }
  for (PeerLoss& loss : link_->PollLost()) Lose(loss.rank, loss.how);
}

// False: malformed.
bool Mirrored::Absorb(Rank from, std::span<const std::byte> message) {
  const auto sender = static_cast<size_t>(ToInt(from));
  if (lost_[sender]) return true;  // nothing of it counts any more (transport-T4)
  std::byte* mirror = bases_[sender];
  while (!message.empty()) {
    Record record;
    if (message.size() < sizeof(record)) return false;
    std::memcpy(&record, message.data(), sizeof(record));
    message = message.subspan(sizeof(record));
    if (message.size() < record.length) return false;
    const std::span<const std::byte> body = message.first(record.length);
    message = message.subspan(record.length);
    switch (record.kind) {
      case RecordKind::kHello:
        if (record.offset != options_.arena_bytes)
          Lose(from, "has COVEY_ARENA_BYTES=" + std::to_string(record.offset) + ", this rank " +
                         std::to_string(options_.arena_bytes));
        heard_[static_cast<size_t>(ToInt(from))] = true;
        break;
      case RecordKind::kMail:
        inbox_.emplace_back(from, Bytes(body.begin(), body.end()));
        inbox_count_.store(inbox_.size(), std::memory_order_relaxed);
        break;
      case RecordKind::kPush:
      case RecordKind::kWord:
        if (record.offset > options_.arena_bytes ||
            body.size() > options_.arena_bytes - record.offset)
          return false;
        std::memcpy(mirror + record.offset, body.data(), body.size());
        break;
      case RecordKind::kGoodbye:
        Lose(from, "has left the job (it called shutdown or its program ended)");
        break;
      default:
        return false;
    }
  }
  return true;
}

void Mirrored::Lose(Rank peer, const std::string& how) {
  const auto i = static_cast<size_t>(ToInt(peer));
  if (lost_[i]) return;
  lost_[i] = true;
  losses_.push_back({peer, how});
  out_[i].unsent.clear();
  link_->Drop(peer);
}

bool Mirrored::TrySend(Rank to, std::span<const std::byte> message) {
  if (to == rank()) {
    inbox_.emplace_back(to, Bytes(message.begin(), message.end()));
    inbox_count_.store(inbox_.size(), std::memory_order_relaxed);
    return true;
  }
  Outgoing& out = out_[static_cast<size_t>(ToInt(to))];
  if (!out.unsent.empty()) return false;  // a message that has to wait anyway waits at its sender
  Append(&out.open, RecordKind::kMail, 0, message.data(), message.size());
  SendOpen(to);
  return true;
}

bool Mirrored::TryReceive(Rank* from, Bytes* message) {
  if (inbox_.empty()) Pump();
  if (inbox_.empty()) return false;
  *from = inbox_.front().first;
  *message = std::move(inbox_.front().second);
  inbox_.pop_front();
  inbox_count_.store(inbox_.size(), std::memory_order_relaxed);
  return true;
}

uint64_t Mirrored::AllocShared(size_t length_bytes) {
  const uint64_t offset = arena_->Alloc(length_bytes);
  return offset == Arena::kFull ? kNoOffset : offset;
}

// Never handed out again: what the old owner of the space pushed may still be on its way to
// mirrors, and would be read as the new one's.
void Mirrored::FreeShared(uint64_t) {}

bool Mirrored::HasUnsent() {
  return std::any_of(out_.begin(), out_.end(), [](const Outgoing& o) { return !o.unsent.empty(); });
}

int Mirrored::ReadPeer(Rank, uint64_t, std::byte*, size_t) { return ENOSYS; }

void Mirrored::Push(std::span<const Rank> peers, const std::byte* data, size_t length_bytes) {
  const auto offset = static_cast<uint64_t>(data - Base(rank()));
  for (Rank peer : peers) {
    if (peer == rank() || lost_[static_cast<size_t>(ToInt(peer))]) continue;
    Outgoing& out = out_[static_cast<size_t>(ToInt(peer))];
    if (length_bytes >= options_.put_bytes && link_->Puts()) {
      SendOpen(peer);
      const Parcel put{.message = {}, .offset = offset, .data = {data, length_bytes}};
      if (!out.unsent.empty() || !Offer(peer, put)) out.unsent.push_back(put);
      continue;
    }
    Append(&out.open, RecordKind::kPush, offset, data, length_bytes);
  }
}

void Mirrored::StoreRelease(uint64_t* word, uint64_t value) {
  *word = value;
  words_.emplace_back(reinterpret_cast<std::byte*>(word) - Base(rank()), value);
}

void Mirrored::Wake(std::span<const Rank> peers) {
  for (Rank peer : peers) {
    if (peer == rank()) continue;
    for (const auto& [offset, value] : words_)
      Append(&out_[static_cast<size_t>(ToInt(peer))].open, RecordKind::kWord, offset, &value,
             sizeof(value));
    SendOpen(peer);
  }
  words_.clear();
}

std::vector<PeerLoss> Mirrored::PollPeers() { return std::exchange(losses_, {}); }

uint32_t Mirrored::Ticket(Sleeper sleeper) { return bells_[static_cast<size_t>(sleeper)].load(); }

void Mirrored::SetParked(Sleeper sleeper) { parked_.store(static_cast<uint32_t>(sleeper)); }

Transport::Sleeper Mirrored::Parked() const { return static_cast<Sleeper>(parked_.load()); }

// Until rung, or until a network that has a descriptor has something to do.
void Mirrored::Park(Sleeper sleeper, uint32_t ticket, Time until) {
  const int network = link_->Descriptor();
  const Time sleep = until - MonotonicNow();
  if (Ticket(sleeper) != ticket || sleep <= 0) return;
  const timespec span{.tv_sec = static_cast<time_t>(sleep / kSecond),
                      .tv_nsec = static_cast<long>(sleep % kSecond)};
  pollfd wakers[] = {{bell_fds_[static_cast<size_t>(sleeper)], POLLIN, 0}, {network, POLLIN, 0}};
  eventfd_t rings = 0;
  if (ppoll(wakers, 2, &span, nullptr) > 0 && wakers[0].revents != 0)
    eventfd_read(wakers[0].fd, &rings);
}

void Mirrored::Ring(Sleeper sleeper) {
  bells_[static_cast<size_t>(sleeper)].fetch_add(1);
  eventfd_write(bell_fds_[static_cast<size_t>(sleeper)], 1);
}

}  // namespace covey
