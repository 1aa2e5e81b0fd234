#include "ops/transports/inproc.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/check.h"

namespace covey {
namespace {

constexpr size_t kAlign = 64;
constexpr int kFreedByte = 0xee;  // a reader of freed memory shall notice

}  // namespace

// Every call is a point, so that a rank may stop between any two.
class InprocNetwork::Words final : public SharedAtomics {
 public:
  Words(InprocWatcher* watcher, Rank rank) : watcher_(watcher), rank_(rank) {}

  uint64_t Load(const uint64_t* word) override {
    Point();
    return *word;
  }
  void Store(uint64_t* word, uint64_t value) override {
    Point();
    *word = value;
  }
  bool CompareExchange(uint64_t* word, uint64_t expected, uint64_t desired) override {
    Point();
    if (*word != expected) return false;
    *word = desired;
    return true;
  }
  uint32_t Ticket(const uint64_t*) override { return 0; }
  void Sleep(uint64_t*, uint32_t, Time) override {
    CHECK(false, "a rank of an InprocNetwork has no thread to sleep");
  }
  void Ring(uint64_t*) override { Point(); }

 private:
  void Point() {
    if (watcher_ != nullptr) watcher_->OnPoint(rank_);
  }

  InprocWatcher* watcher_;
  Rank rank_;
};

class InprocNetwork::Node final : public Transport {
 public:
  Node(InprocNetwork* network, Rank rank)
      : network_(network),
        rank_(rank),
        words_(network->options_.watcher, rank),
        region_(static_cast<std::byte*>(mmap(nullptr, network->options_.region_bytes,
                                             PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
        told_(static_cast<size_t>(network->options_.size), false),
        news_(static_cast<size_t>(network->options_.size), 0) {
    CHECK(region_ != MAP_FAILED, "no memory for a region");
  }
  ~Node() override { munmap(region_, network_->options_.region_bytes); }

  Rank rank() const override { return rank_; }
  int size() const override { return network_->options_.size; }

  bool TrySend(Rank to, std::span<const std::byte> message) override {
    Point();
    Link& link = network_->LinkOf(rank_, to);
    const Options& options = network_->options_;
    if (link.mail.size() >= options.mailbox_messages) return false;
    if (options.refusal_percent > 0 && network_->rng_.Percent(options.refusal_percent))
      return false;
    SettleAll();  // the receiver of the message sees earlier stores
    const Time now = network_->clock_.Now();
    if (options.clog_percent > 0 && network_->rng_.Percent(options.clog_percent))
      link.clogged_until = now + network_->Draw(options.longest_clog);
    const Time arrives = std::max(now + network_->Draw(options.longest_delay), link.clogged_until);
    const Time before = link.mail.empty() ? 0 : link.mail.back().arrives;  // transport-T1: in order
    ++accepted_;
    link.mail.push_back({std::max(before, arrives), Bytes(message.begin(), message.end())});
    return true;
  }
  bool TryReceive(Rank* from, Bytes* message) override {
    Point();
    const auto first =
        network_->options_.in_rank_order
            ? 0
            : static_cast<int32_t>(network_->rng_.Below(static_cast<uint64_t>(size())));
    for (int32_t step = 0; step < size(); ++step) {
      const int32_t r = (first + step) % size();  // transport-T1: between pairs any order
      Link& link = network_->LinkOf(Rank{r}, rank_);
      if (!network_->Arrived(link)) continue;
      *message = std::move(link.mail.front().bytes);
      link.mail.pop_front();
      ++received_;
      *from = Rank{r};
      return true;
    }
    return false;
  }
  bool HasMail() override { return network_->HasArrived(rank_); }
  size_t MaxMessageBytes() const override { return 1 << 20; }

  bool Shares(Rank) const override { return true; }
  std::byte* Base(Rank r) override {
    return network_->nodes_[static_cast<size_t>(ToInt(r))]->region_;
  }
  uint64_t AllocShared(size_t length_bytes) override {
    SettleAll();
    const size_t length = (length_bytes + kAlign - 1) / kAlign * kAlign;
    uint64_t offset = used_;
    if (auto& freed = freed_[length]; !freed.empty()) {
      offset = freed.back();  // at once: later uses shall be seen
      freed.pop_back();
      std::memset(region_ + offset, 0, length);
    } else {
      if (used_ + length > network_->options_.region_bytes) return kNoOffset;
      used_ += length;
    }
    in_use_.emplace(offset, length);
    return offset;
  }
  void FreeShared(uint64_t offset) override {
    SettleAll();
    const auto piece = in_use_.find(offset);
    CHECK(piece != in_use_.end(), "freed what was not allocated");
    std::memset(region_ + offset, kFreedByte, piece->second);
    freed_[piece->second].push_back(offset);
    in_use_.erase(piece);
  }
  void BecomePrivate() override {}
  void* AllocData(size_t length_bytes) override {
    const uint64_t offset = AllocShared(length_bytes);
    if (offset == kNoOffset) return nullptr;
    in_use_.erase(offset);
    return region_ + offset;
  }
  uint64_t OffsetOf(const std::byte* data, size_t length_bytes) const override {
    const auto at = reinterpret_cast<uintptr_t>(data);
    const auto begin = reinterpret_cast<uintptr_t>(region_);
    const size_t size = network_->options_.region_bytes;
    return at >= begin && at - begin <= size && length_bytes <= size - (at - begin) ? at - begin
                                                                                    : kNoOffset;
  }

  bool CanReadPeers() const override {
    const Options& options = network_->options_;
    return options.can_read_peers && (options.blind_ranks >> ToInt(rank_) & 1) == 0;
  }
  int ReadPeer(Rank peer, uint64_t address, std::byte* to, size_t length_bytes) override {
    Point();
    if (network_->IsDead(peer)) return ESRCH;
    std::memcpy(to, reinterpret_cast<const std::byte*>(address), length_bytes);
    return 0;
  }

  uint64_t LoadAcquire(const uint64_t* word) override {
    Point();
    network_->Settle();
    for (auto store = stores_.rbegin(); store != stores_.rend(); ++store)
      if (store->word == word) return store->value;  // one's own are seen at once
    return *word;
  }
  void StoreRelease(uint64_t* word, uint64_t value) override {
    Point();
    Put({.word = word, .value = value});
  }
  void Wake(std::span<const Rank> peers) override {
    waking_ = peers;
    Point();
    waking_ = {};
    Put({.rung = std::vector<Rank>(peers.begin(), peers.end())});
  }

  std::vector<PeerLoss> PollPeers() override {
    Point();
    std::vector<PeerLoss> losses;
    for (size_t r = 0; r < told_.size(); ++r) {
      if (!network_->dead_[r] || told_[r] || static_cast<int32_t>(r) == ToInt(rank_)) continue;
      if (news_[r] == 0)
        news_[r] = network_->clock_.Now() + network_->Draw(network_->options_.longest_news_delay);
      if (news_[r] > network_->clock_.Now()) continue;
      network_->nodes_[r]->SettleAll();  // transport-T4
      told_[r] = true;
      losses.push_back({Rank{static_cast<int32_t>(r)}, network_->how_[r]});
    }
    return losses;
  }

  bool IsLost(Rank peer) const override { return told_[static_cast<size_t>(ToInt(peer))]; }

  SharedAtomics* words() override { return &words_; }

  // No rank sleeps here: the owner of the network runs every rank.
  uint32_t Ticket(Sleeper) override { return 0; }
  void SetParked(Sleeper) override {}
  Sleeper Parked() const override { return Sleeper::kNobody; }
  void Park(Sleeper, uint32_t, Time) override {
    CHECK(false, "a rank of an InprocNetwork has no thread to park");
  }
  void Ring(Sleeper) override {}

  // Stores and wake-ups whose time has come, in their order (transport-T2).
  void Settle(Time now) {
    while (!stores_.empty() && stores_.front().seen_at <= now) {
      const Store store = std::move(stores_.front());
      stores_.pop_front();
      Apply(store);
    }
  }
  void SettleAll() { Settle(kNever); }
  Time NextSettling() const { return stores_.empty() ? kNever : stores_.front().seen_at; }
  size_t shared_pieces() const { return in_use_.size(); }
  bool IsWaking(Rank r) const {
    const auto has = [r](std::span<const Rank> ranks) {
      return std::find(ranks.begin(), ranks.end(), r) != ranks.end();
    };
    return has(waking_) || std::any_of(stores_.begin(), stores_.end(),
                                       [&](const Store& store) { return has(store.rung); });
  }
  uint64_t accepted() const { return accepted_; }
  uint64_t received() const { return received_; }

 private:
  struct Store {
    uint64_t* word = nullptr;  // null: a wake-up
    uint64_t value = 0;
    std::vector<Rank> rung = {};
    Time seen_at = 0;
  };

  void Point() {
    if (network_->options_.watcher != nullptr) network_->options_.watcher->OnPoint(rank_);
  }
  void Put(Store store) {
    const Time longest = network_->options_.longest_store_delay;
    if (longest == 0) return Apply(store);
    const Time before = stores_.empty() ? 0 : stores_.back().seen_at;
    store.seen_at = std::max(before, network_->clock_.Now() + network_->Draw(longest));
    stores_.push_back(std::move(store));
  }
  void Apply(const Store& store) {
    if (store.word != nullptr) *store.word = store.value;
    if (network_->options_.watcher == nullptr) return;
    for (Rank peer : store.rung)
      if (peer != rank_) network_->options_.watcher->OnRing(peer, false);
  }

  InprocNetwork* network_;
  Rank rank_;
  Words words_;
  std::byte* region_;
  uint64_t used_ = 0;
  std::span<const Rank> waking_;  // inside Wake
  uint64_t accepted_ = 0;
  uint64_t received_ = 0;
  std::map<uint64_t, size_t> in_use_;              // offset -> length
  std::map<size_t, std::vector<uint64_t>> freed_;  // length -> offsets
  std::deque<Store> stores_;                       // made, not yet seen by others
  std::vector<bool> told_;
  std::vector<Time> news_;  // when this rank hears of the loss; 0 = not yet drawn
};

InprocNetwork::InprocNetwork(Options options)
    : options_(options),
      rng_(options.seed),
      links_(static_cast<size_t>(options.size) * static_cast<size_t>(options.size)),
      dead_(static_cast<size_t>(options.size), false),
      how_(static_cast<size_t>(options.size)) {
  for (int32_t r = 0; r < options.size; ++r)
    nodes_.push_back(std::make_unique<Node>(this, Rank{r}));
}

InprocNetwork::~InprocNetwork() = default;

Transport& InprocNetwork::transport(Rank r) { return *nodes_[static_cast<size_t>(ToInt(r))]; }

InprocNetwork::Link& InprocNetwork::LinkOf(Rank from, Rank to) {
  return links_[static_cast<size_t>(ToInt(from)) * static_cast<size_t>(options_.size) +
                static_cast<size_t>(ToInt(to))];
}

bool InprocNetwork::Arrived(const Link& link) {
  return !link.held && !link.mail.empty() && link.mail.front().arrives <= clock_.Now();
}

Time InprocNetwork::Draw(Time longest) {
  return longest == 0 ? 0 : static_cast<Time>(rng_.Below(static_cast<uint64_t>(longest)));
}

void InprocNetwork::Kill(Rank r, const std::string& how) {
  dead_[static_cast<size_t>(ToInt(r))] = true;
  how_[static_cast<size_t>(ToInt(r))] = how;
}

void InprocNetwork::Hold(Rank from, Rank to, bool held) { LinkOf(from, to).held = held; }

bool InprocNetwork::HasArrived(Rank r) {
  for (int32_t from = 0; from < options_.size; ++from)
    if (Arrived(LinkOf(Rank{from}, r))) return true;
  return false;
}

Time InprocNetwork::NextArrival() {
  Time next = kNever;
  for (size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_[i];
    if (!link.held && !link.mail.empty() && !dead_[i % static_cast<size_t>(options_.size)])
      if (link.mail.front().arrives > clock_.Now())
        next = std::min(next, link.mail.front().arrives);
  }
  for (const auto& node : nodes_) next = std::min(next, node->NextSettling());
  return next;
}

void InprocNetwork::Settle() {
  if (options_.longest_store_delay == 0) return;
  for (const auto& node : nodes_) node->Settle(clock_.Now());
}

bool InprocNetwork::IsBeingRung(Rank r) const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [r](const auto& node) { return node->IsWaking(r); });
}

size_t InprocNetwork::shared_pieces(Rank r) const {
  return nodes_[static_cast<size_t>(ToInt(r))]->shared_pieces();
}

uint64_t InprocNetwork::accepted(Rank r) const {
  return nodes_[static_cast<size_t>(ToInt(r))]->accepted();
}

uint64_t InprocNetwork::received(Rank r) const {
  return nodes_[static_cast<size_t>(ToInt(r))]->received();
}

bool InprocNetwork::IsUnderWay(Rank from, Rank to) { return !LinkOf(from, to).mail.empty(); }

size_t InprocNetwork::messages_under_way() const {
  size_t count = 0;
  for (size_t i = 0; i < links_.size(); ++i)
    if (!dead_[i % static_cast<size_t>(options_.size)]) count += links_[i].mail.size();
  return count;
}

}  // namespace covey
