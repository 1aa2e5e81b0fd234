// A network between ranks that are threads: what stands for MPI in contract tests. Covey knows of
// no memory that they share, but within hosts, where there are several ranks to one. A rank can be
// stopped between any two of its messages, and killed. Odd ranks have a descriptor to sleep on, the
// others look. A put is read in its sender's memory when it is received: a sender that writes there
// too early races, which the thread sanitizer sees.
#ifndef COVEY_TESTS_CONTRACT_THREAD_NETWORK_H_
#define COVEY_TESTS_CONTRACT_THREAD_NETWORK_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/transport/link.h"
#include "core/transport/over_link.h"
#include "core/transport/transport.h"

namespace covey {

class ThreadNetwork {
 public:
  // Each host but the last has so many ranks.
  ThreadNetwork(int32_t size, int32_t per_host)
      : size_(size),
        per_host_(per_host),
        mail_(static_cast<size_t>(size * size)),
        landing_(static_cast<size_t>(size * size)),
        ranks_(static_cast<size_t>(size)) {
    for (size_t r = 1; r < ranks_.size(); r += 2)
      ranks_[r].descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  }
  ~ThreadNetwork() {
    for (const State& rank : ranks_)
      if (rank.descriptor >= 0) close(rank.descriptor);
  }
  ThreadNetwork(const ThreadNetwork&) = delete;
  ThreadNetwork& operator=(const ThreadNetwork&) = delete;

  int32_t size() const { return size_; }
  int32_t per_host() const { return per_host_; }
  // It sends and receives nothing.
  void SetStopped(int rank, bool stopped) {
    const std::lock_guard lock(mutex_);
    ranks_[static_cast<size_t>(rank)].stopped = stopped;
    Signal(rank);
  }
  // The messages that it has sent arrive, up to the first put, and then the news.
  void Kill(int rank) {
    const std::lock_guard lock(mutex_);
    ranks_[static_cast<size_t>(rank)].killed = true;
    for (int to = 0; to < size_; ++to) {
      std::deque<Parcel>& mail = MailOf(rank, to);
      const auto is_put = [](const Parcel& parcel) { return !parcel.put.empty(); };
      mail.erase(std::find_if(mail.begin(), mail.end(), is_put), mail.end());
      Signal(to);
    }
  }

  struct Parcel {
    Bytes message;
    std::span<const std::byte> put;  // empty: it is a message
    uint64_t offset = 0;
  };
  bool Send(int from, int to, Parcel parcel) {
    const std::lock_guard lock(mutex_);
    const State& self = ranks_[static_cast<size_t>(from)];
    if (self.killed) return true;
    std::deque<Parcel>& mail = MailOf(from, to);
    if (self.stopped || mail.size() >= kMostMessages) return false;
    mail.push_back(std::move(parcel));
    Signal(to);
    return true;
  }
  int DescriptorOf(int rank) const { return ranks_[static_cast<size_t>(rank)].descriptor; }
  void Land(int to, int from, std::byte* memory) {
    const std::lock_guard lock(mutex_);
    landing_[static_cast<size_t>(from * size_ + to)] = memory;
  }
  // Whether no put of `from` is still to be read by a rank that runs.
  bool Flushed(int from) {
    const std::lock_guard lock(mutex_);
    for (int to = 0; to < size_; ++to) {
      for (const Parcel& parcel : MailOf(from, to))
        if (!parcel.put.empty() && !ranks_[static_cast<size_t>(to)].killed) return false;
    }
    return true;
  }
  bool Receive(int to, int* from, Bytes* message) {
    const std::lock_guard lock(mutex_);
    State& self = ranks_[static_cast<size_t>(to)];
    if (self.stopped || self.killed) return false;
    for (int step = 0; step < size_; ++step) {
      *from = self.next = (self.next + 1) % size_;
      std::deque<Parcel>& mail = MailOf(*from, to);
      while (!mail.empty()) {
        const Parcel parcel = std::move(mail.front());
        mail.pop_front();
        Signal(*from);  // which may wait for room
        *message = parcel.message;
        if (parcel.put.empty()) return true;
        std::memcpy(landing_[static_cast<size_t>(*from * size_ + to)] + parcel.offset,
                    parcel.put.data(), parcel.put.size());
      }
    }
    eventfd_t signals = 0;
    if (self.descriptor >= 0) eventfd_read(self.descriptor, &signals);
    return false;
  }
  std::vector<int> PollLost(int rank) {
    const std::lock_guard lock(mutex_);
    std::vector<int> lost;
    State& self = ranks_[static_cast<size_t>(rank)];
    self.told.resize(ranks_.size());
    for (int r = 0; r < size_ && !self.stopped; ++r) {
      const auto index = static_cast<size_t>(r);
      if (r == rank || !ranks_[index].killed || self.told[index] || !MailOf(r, rank).empty())
        continue;
      self.told[index] = true;
      lost.push_back(r);
    }
    return lost;
  }

  // That of the test that runs.
  static ThreadNetwork*& Current() {
    static ThreadNetwork* current = nullptr;
    return current;
  }

 private:
  static constexpr size_t kMostMessages = 64;  // of a pair
  struct State {
    int descriptor = -1;
    bool stopped = false, killed = false;
    std::vector<bool> told;
    int next = 0;
  };

  void Signal(int rank) {
    if (const int descriptor = DescriptorOf(rank); descriptor >= 0) eventfd_write(descriptor, 1);
  }
  std::deque<Parcel>& MailOf(int from, int to) {
    return mail_[static_cast<size_t>(from * size_ + to)];
  }

  int32_t size_;
  int32_t per_host_;
  std::mutex mutex_;
  std::vector<std::deque<Parcel>> mail_;  // [from * size + to]
  std::vector<std::byte*> landing_;       // [from * size + to]
  std::vector<State> ranks_;
};

class ThreadLink final : public Link {
 public:
  ThreadLink(ThreadNetwork* network, Rank rank) : network_(network), rank_(rank) {}

  Rank rank() const override { return rank_; }
  int size() const override { return network_->size(); }
  Rank HostOf(Rank r) const override {
    return Rank{ToInt(r) / network_->per_host() * network_->per_host()};
  }
  bool Send(Rank to, std::span<const std::byte> message) override {
    return network_->Send(ToInt(rank_), ToInt(to), {{message.begin(), message.end()}, {}});
  }
  bool Receive(Rank* from, std::span<const std::byte>* message) override {
    int sender = -1;
    if (!network_->Receive(ToInt(rank_), &sender, &received_)) return false;
    *from = Rank{sender};
    *message = received_;
    return true;
  }
  bool Puts() const override { return true; }
  void Land(Rank from, std::span<std::byte> memory) override {
    network_->Land(ToInt(rank_), ToInt(from), memory.data());
  }
  bool Put(Rank to, uint64_t offset, std::span<const std::byte> data) override {
    return network_->Send(ToInt(rank_), ToInt(to), {{}, data, offset});
  }
  bool Flushed() override { return network_->Flushed(ToInt(rank_)); }
  int Descriptor() const override { return network_->DescriptorOf(ToInt(rank_)); }
  std::vector<PeerLoss> PollLost() override {
    std::vector<PeerLoss> losses;
    for (int rank : network_->PollLost(ToInt(rank_))) losses.push_back({Rank{rank}, "was killed"});
    return losses;
  }

 private:
  ThreadNetwork* network_;
  Rank rank_;
  Bytes received_;
};

// By the name of one that is not linked in.
inline const TransportKind kThreadNetworkKind{
    .name = "mpi",
    .open =
        [](const TransportOptions& options, std::unique_ptr<Transport>* transport) {
          TransportOptions of_network = options;
          of_network.shm_fd = -1;  // it is of a job on one host
          of_network.arena_bytes = uint64_t{64} << 20;
          auto link = std::make_unique<ThreadLink>(ThreadNetwork::Current(), options.rank);
          return OpenOverLink(of_network, {.arena_bytes = of_network.arena_bytes, .put_bytes = 64},
                              std::move(link), {}, transport);
        },
    .create_job = nullptr};
inline const TransportRegistration kThreadNetworkRegistration(kThreadNetworkKind);

// How the ranks of a test reach each other.
struct Place {
  int size;
  const char* settings;
  int per_host = 1;           // over a network
  bool groups_firsts = true;  // the first rank of a host may be in a test's group
};
inline constexpr const char* kOverNetwork = "transport=mpi";
inline void PrintTo(const Place& place, std::ostream* out) {
  *out << place.size;
  if (*place.settings == '\0') {
    *out << " on a host";
  } else {
    *out << " over a network";
    if (place.per_host > 1) *out << ", " << place.per_host << " to a host";
  }
}

}  // namespace covey
#endif  // COVEY_TESTS_CONTRACT_THREAD_NETWORK_H_
