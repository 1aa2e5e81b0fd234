#include "ops/transports/inproc.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/check.h"

namespace covey {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kMailboxMessages = 4;  // small, so that "no room now" happens

}  // namespace

class InprocNetwork::Node final : public Transport {
 public:
  Node(InprocNetwork* network, Rank rank)
      : network_(network),
        rank_(rank),
        region_(static_cast<std::byte*>(mmap(nullptr, network->options_.region_bytes,
                                             PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
        told_(static_cast<size_t>(network->options_.size), false) {
    CHECK(region_ != MAP_FAILED, "no memory for a region");
  }
  ~Node() override { munmap(region_, network_->options_.region_bytes); }

  Rank rank() const override { return rank_; }
  int size() const override { return network_->options_.size; }

  bool TrySend(Rank to, std::span<const std::byte> message) override {
    auto& link = network_->Link(rank_, to);
    if (link.size() >= kMailboxMessages) return false;
    const Time delay = static_cast<Time>(
        network_->rng_.Below(static_cast<uint64_t>(network_->options_.longest_delay)));
    const Time before = link.empty() ? 0 : link.back().arrives;  // T1: in order
    link.push_back(
        {std::max(before, network_->clock_.Now() + delay), Bytes(message.begin(), message.end())});
    return true;
  }
  bool TryReceive(Rank* from, Bytes* message) override {
    for (int32_t r = 0; r < size(); ++r) {
      auto& link = network_->Link(Rank{r}, rank_);
      if (link.empty() || link.front().arrives > network_->clock_.Now()) continue;
      *message = std::move(link.front().bytes);
      link.pop_front();
      *from = Rank{r};
      return true;
    }
    return false;
  }
  bool HasMail() override {
    for (int32_t r = 0; r < size(); ++r)
      if (!network_->Link(Rank{r}, rank_).empty()) return true;
    return false;
  }
  size_t MaxMessageBytes() const override { return 1 << 20; }

  std::byte* Base(Rank r) override {
    return network_->nodes_[static_cast<size_t>(ToInt(r))]->region_;
  }
  uint64_t AllocShared(size_t length_bytes) override {
    const size_t length = (length_bytes + kAlign - 1) / kAlign * kAlign;
    if (used_ + length > network_->options_.region_bytes) return kNoOffset;
    const uint64_t offset = used_;
    used_ += length;
    return offset;
  }
  void FreeShared(uint64_t) override {}  // a test's region is used once
  void* AllocData(size_t length_bytes) override {
    const uint64_t offset = AllocShared(length_bytes);
    return offset == kNoOffset ? nullptr : region_ + offset;
  }
  uint64_t OffsetOf(const std::byte* data, size_t length_bytes) const override {
    const auto at = reinterpret_cast<uintptr_t>(data);
    const auto begin = reinterpret_cast<uintptr_t>(region_);
    const size_t size = network_->options_.region_bytes;
    return at >= begin && at - begin <= size && length_bytes <= size - (at - begin) ? at - begin
                                                                                    : kNoOffset;
  }

  bool CanReadPeers() const override { return network_->options_.can_read_peers; }
  int ReadPeer(Rank peer, uint64_t address, std::byte* to, size_t length_bytes) override {
    if (network_->IsDead(peer)) return ESRCH;
    std::memcpy(to, reinterpret_cast<const std::byte*>(address), length_bytes);
    return 0;
  }

  uint64_t LoadAcquire(const uint64_t* word) override { return *word; }
  void StoreRelease(uint64_t* word, uint64_t value) override { *word = value; }
  void Wake(std::span<const Rank>) override {}

  std::vector<PeerLoss> PollPeers() override {
    std::vector<PeerLoss> losses;
    for (size_t r = 0; r < told_.size(); ++r) {
      if (!network_->dead_[r] || told_[r] || static_cast<int32_t>(r) == ToInt(rank_)) continue;
      told_[r] = true;
      losses.push_back({Rank{static_cast<int32_t>(r)}, network_->how_[r]});
    }
    return losses;
  }

  // Nobody sleeps here: the owner of the network runs every rank.
  uint32_t Ticket(Sleeper) override { return 0; }
  void SetParked(Sleeper) override {}
  Sleeper Parked() const override { return Sleeper::kNobody; }
  void Park(Sleeper, uint32_t, Time) override {
    CHECK(false, "a rank of an InprocNetwork has no thread to park");
  }
  void Ring(Sleeper) override {}

 private:
  InprocNetwork* network_;
  Rank rank_;
  std::byte* region_;
  uint64_t used_ = 0;
  std::vector<bool> told_;
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

std::deque<InprocNetwork::Mail>& InprocNetwork::Link(Rank from, Rank to) {
  return links_[static_cast<size_t>(ToInt(from)) * static_cast<size_t>(options_.size) +
                static_cast<size_t>(ToInt(to))];
}

void InprocNetwork::Kill(Rank r, const std::string& how) {
  dead_[static_cast<size_t>(ToInt(r))] = true;
  how_[static_cast<size_t>(ToInt(r))] = how;
}

}  // namespace covey
