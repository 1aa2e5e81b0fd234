#include "core/transport/far_peers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace covey {
namespace {

// A message is a row of records, each a Record and `length` bytes.
enum class RecordKind : uint32_t { kHello, kMail, kPush, kWord, kGoodbye };
struct Record {
  RecordKind kind;
  uint32_t length;
  uint64_t offset;  // push, word: in the sender's region; hello: bytes of its region, and its host
};

void AppendRecord(Bytes* to, RecordKind kind, uint64_t offset, size_t length) {
  const Record record{kind, static_cast<uint32_t>(length), offset};
  const auto* bytes = reinterpret_cast<const std::byte*>(&record);
  to->insert(to->end(), bytes, bytes + sizeof(record));
}

void Append(Bytes* to, RecordKind kind, uint64_t offset, const void* data, size_t length) {
  AppendRecord(to, kind, offset, length);
  const auto* bytes = static_cast<const std::byte*>(data);
  to->insert(to->end(), bytes, bytes + length);
}

}  // namespace

FarPeers::FarPeers(std::unique_ptr<Link> link, const Options& options)
    : link_(std::move(link)), options_(options) {
  const auto size = static_cast<size_t>(link_->size());
  mirrors_.assign(size, nullptr);
  out_.resize(size);
  for (int32_t r = 0; r < link_->size(); ++r) {
    const Rank host = link_->HostOf(Rank{r});
    hosts_.push_back(host == kNoRank ? Rank{r} : host);
  }
  heard_.assign(size, false);
  lost_.assign(size, false);
}

FarPeers::~FarPeers() {
  link_.reset();
  for (std::byte* mirror : mirrors_)
    if (mirror != nullptr) munmap(mirror, MirrorBytes());
}

std::vector<Rank> FarPeers::Hosted() const {
  std::vector<Rank> hosted;
  const Rank host = link_->HostOf(link_->rank());
  for (int32_t r = 0; host != kNoRank && r < link_->size(); ++r)
    if (link_->HostOf(Rank{r}) == host) hosted.push_back(Rank{r});
  return hosted;
}

int FarPeers::local_rank() const {
  const std::vector<Rank> hosted = Hosted();
  const auto own = std::find(hosted.begin(), hosted.end(), link_->rank());
  return own == hosted.end() ? -1 : static_cast<int>(own - hosted.begin());
}

int FarPeers::local_size() const {
  const size_t size = Hosted().size();
  return size == 0 ? -1 : static_cast<int>(size);
}

Status FarPeers::Greet(std::byte* own, Rank host, std::span<const Rank> peers) {
  own_ = own;
  hosts_[Index(link_->rank())] = host;
  for (Rank peer : peers) {
    void* mirror = mmap(nullptr, MirrorBytes(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mirror == MAP_FAILED)
      return Status::Exhausted("no address space for a mirror of rank " +
                               std::to_string(ToInt(peer)) + "; lower COVEY_ARENA_BYTES");
    mirrors_[Index(peer)] = static_cast<std::byte*>(mirror);
    if (link_->Puts()) link_->Land(peer, {mirrors_[Index(peer)], MirrorBytes()});
  }
  for (Rank peer : peers) {
    Append(&out_[Index(peer)].open, RecordKind::kHello, options_.arena_bytes, &host, sizeof(host));
    SendOpen(peer);
  }
  return Status::Ok();
}

Rank FarPeers::Silent() const {
  for (size_t r = 0; r < heard_.size(); ++r)
    if (mirrors_[r] != nullptr && !heard_[r]) return Rank{static_cast<int32_t>(r)};
  return kNoRank;
}

const PeerLoss* FarPeers::LostSilent() const {
  const auto silent = [this](const PeerLoss& loss) { return !heard_[Index(loss.rank)]; };
  const auto found = std::find_if(losses_.begin(), losses_.end(), silent);
  return found == losses_.end() ? nullptr : &*found;
}

void FarPeers::SayGoodbye() {
  for (size_t r = 0; r < out_.size(); ++r) {
    if (mirrors_[r] == nullptr || lost_[r]) continue;
    Append(&out_[r].open, RecordKind::kGoodbye, 0, &cause_, sizeof(cause_));
    SendOpen(Rank{static_cast<int32_t>(r)});
  }
}

bool FarPeers::Flushed() { return !HasUnsent() && link_->Flushed(); }

// Hands the open message over, or keeps it when the link has no room.
void FarPeers::SendOpen(Rank to) {
  Outgoing& out = out_[Index(to)];
  if (out.open.empty()) return;
  if (out.unsent.empty() && link_->Send(to, out.open)) return out.open.clear();
  out.unsent.push_back({.message = std::move(out.open), .data = {}});
  out.open = {};
}

bool FarPeers::Offer(Rank to, const Parcel& parcel) {
  return parcel.message.empty() ? link_->Put(to, parcel.offset, parcel.data)
                                : link_->Send(to, parcel.message);
}

// Takes what has arrived, then sends what had to wait.
void FarPeers::Pump() {
  Rank from = kNoRank;
  std::span<const std::byte> message;
  while (link_->Receive(&from, &message)) Hear(from, message);
  for (size_t r = 0; r < out_.size(); ++r) {
    Outgoing& out = out_[r];
    while (!out.unsent.empty() && Offer(Rank{static_cast<int32_t>(r)}, out.unsent.front()))
      out.unsent.pop_front();
  }
  for (PeerLoss& loss : link_->PollLost()) {
    const size_t i = Index(loss.rank);
    if (cause_ == kNoRank && mirrors_[i] != nullptr && !lost_[i]) cause_ = loss.rank;
    Lose(loss.rank, loss.how);
  }
}

void FarPeers::Hear(Rank from, std::span<const std::byte> message) {
  if (!Absorb(from, message)) Lose(from, "sends what no rank of this version sends");
}

// False: malformed.
bool FarPeers::Absorb(Rank from, std::span<const std::byte> message) {
  const size_t sender = Index(from);
  if (lost_[sender]) return true;  // nothing of it counts any more (transport-T4)
  std::byte* mirror = mirrors_[sender];
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
        if (body.size() != sizeof(Rank)) return false;
        std::memcpy(&hosts_[sender], body.data(), sizeof(Rank));
        heard_[sender] = record.offset == options_.arena_bytes;
        if (!heard_[sender])
          Lose(from, "has COVEY_ARENA_BYTES=" + std::to_string(record.offset) + ", this rank " +
                         std::to_string(options_.arena_bytes));
        break;
      case RecordKind::kMail:
        Keep(from, body);
        break;
      case RecordKind::kPush:
      case RecordKind::kWord:
        if (mirror == nullptr || record.offset > MirrorBytes() ||
            body.size() > MirrorBytes() - record.offset)
          return false;
        std::memcpy(mirror + record.offset, body.data(), body.size());
        break;
      case RecordKind::kGoodbye:
        if (!OnGoodbye(from, body)) return false;
        break;
      default:
        return false;
    }
  }
  return true;
}

// A rank whose operations fail after a loss may leave before another rank notices that loss.
bool FarPeers::OnGoodbye(Rank from, std::span<const std::byte> body) {
  Rank cause = kNoRank;
  if (body.size() != sizeof(cause)) return false;
  std::memcpy(&cause, body.data(), sizeof(cause));
  const bool is_known = ToInt(cause) >= 0 && ToInt(cause) < link_->size() && cause != from;
  if (cause_ == kNoRank && is_known && cause != link_->rank()) cause_ = cause;
  Lose(from, is_known ? "has left the job after it had lost rank " + std::to_string(ToInt(cause))
                      : "has left the job (it called shutdown or its program ended)");
  return true;
}

void FarPeers::Lose(Rank peer, const std::string& how) {
  const size_t i = Index(peer);
  // Once the far are known, a loss on this host is the host's to tell.
  if (lost_[i] || (own_ != nullptr && mirrors_[i] == nullptr)) return;
  lost_[i] = true;
  losses_.push_back({peer, how});
  out_[i].unsent.clear();
  link_->Drop(peer);
}

bool FarPeers::TrySend(Rank to, Parts parts) {
  if (to == link_->rank()) {
    Bytes message;
    Append(&message, parts);
    Keep(to, message);
    return true;
  }
  Outgoing& out = out_[Index(to)];
  if (!out.unsent.empty()) return false;  // a message that has to wait anyway waits at its sender
  AppendRecord(&out.open, RecordKind::kMail, 0, LengthOf(parts));
  Append(&out.open, parts);
  SendOpen(to);
  return true;
}

bool FarPeers::TryReceive(Rank* from, Bytes* message) {
  if (inbox_.empty()) Pump();
  if (inbox_.empty()) return false;
  *from = inbox_.front().first;
  *message = std::move(inbox_.front().second);
  inbox_.pop_front();
  inbox_count_.store(inbox_.size(), std::memory_order_relaxed);
  return true;
}

void FarPeers::Keep(Rank from, std::span<const std::byte> message) {
  inbox_.emplace_back(from, Bytes(message.begin(), message.end()));
  inbox_count_.store(inbox_.size(), std::memory_order_relaxed);
}

bool FarPeers::HasUnsent() const {
  return std::any_of(out_.begin(), out_.end(), [](const Outgoing& o) { return !o.unsent.empty(); });
}

void FarPeers::Push(std::span<const Rank> peers, const std::byte* place, const std::byte* data,
                    size_t length_bytes) {
  const size_t put_bytes = std::max(options_.put_bytes, 2 * link_->EagerBytes());
  const auto offset = static_cast<uint64_t>(place - own_);
  for (Rank peer : peers) {
    if (!IsFar(peer) || lost_[Index(peer)]) continue;
    Outgoing& out = out_[Index(peer)];
    if (length_bytes >= put_bytes && link_->Puts()) {
      SendOpen(peer);
      const Parcel put{.message = {}, .offset = offset, .data = {data, length_bytes}};
      if (!out.unsent.empty() || !Offer(peer, put)) out.unsent.push_back(put);
      continue;
    }
    AppendPush(peer, offset, {data, length_bytes});
  }
}

// In as many messages as it takes for each to leave at once.
void FarPeers::AppendPush(Rank to, uint64_t offset, std::span<const std::byte> data) {
  Bytes& open = out_[Index(to)].open;
  const size_t eager = link_->EagerBytes();
  const auto append = [&](size_t length) {
    Append(&open, RecordKind::kPush, offset, data.data(), length);
    offset += length;
    data = data.subspan(length);
  };
  while (eager > 0 && open.size() + sizeof(Record) + data.size() > eager) {
    const size_t used = open.size() + sizeof(Record);
    if (used < eager) append(eager - used);
    SendOpen(to);
  }
  append(data.size());
}

void FarPeers::Store(const uint64_t* word, uint64_t value) {
  words_.emplace_back(reinterpret_cast<const std::byte*>(word) - own_, value);
}

void FarPeers::Wake(std::span<const Rank> peers) {
  for (Rank peer : peers) {
    if (!IsFar(peer) || lost_[Index(peer)]) continue;
    for (const auto& [offset, value] : words_)
      Append(&out_[Index(peer)].open, RecordKind::kWord, offset, &value, sizeof(value));
    SendOpen(peer);
  }
  words_.clear();
}

}  // namespace covey
