// A network between ranks that are threads: what stands for MPI in contract tests. Covey knows of
// no memory that they share. A rank can be stopped between any two of its messages, and killed.
#ifndef COVEY_TESTS_CONTRACT_THREAD_NETWORK_H_
#define COVEY_TESTS_CONTRACT_THREAD_NETWORK_H_

#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/transport/link.h"
#include "core/transport/mirrored.h"
#include "core/transport/transport.h"

namespace covey {

class ThreadNetwork {
 public:
  explicit ThreadNetwork(int32_t size)
      : size_(size), mail_(static_cast<size_t>(size * size)), ranks_(static_cast<size_t>(size)) {}

  int32_t size() const { return size_; }
  // It sends and receives nothing.
  void SetStopped(int rank, bool stopped) {
    const std::lock_guard lock(mutex_);
    ranks_[static_cast<size_t>(rank)].stopped = stopped;
  }
  // What it has sent arrives, and then the news.
  void Kill(int rank) {
    const std::lock_guard lock(mutex_);
    ranks_[static_cast<size_t>(rank)].killed = true;
  }

  bool Send(int from, int to, std::span<const std::byte> message) {
    const std::lock_guard lock(mutex_);
    const State& self = ranks_[static_cast<size_t>(from)];
    if (self.killed) return true;
    std::deque<Bytes>& mail = MailOf(from, to);
    if (self.stopped || mail.size() >= kMostMessages) return false;
    mail.emplace_back(message.begin(), message.end());
    return true;
  }
  bool Receive(int to, int* from, Bytes* message) {
    const std::lock_guard lock(mutex_);
    State& self = ranks_[static_cast<size_t>(to)];
    if (self.stopped || self.killed) return false;
    for (int step = 0; step < size_; ++step) {
      *from = self.next = (self.next + 1) % size_;
      std::deque<Bytes>& mail = MailOf(*from, to);
      if (mail.empty()) continue;
      *message = std::move(mail.front());
      mail.pop_front();
      return true;
    }
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
    bool stopped = false, killed = false;
    std::vector<bool> told;
    int next = 0;
  };

  std::deque<Bytes>& MailOf(int from, int to) {
    return mail_[static_cast<size_t>(from * size_ + to)];
  }

  int32_t size_;
  std::mutex mutex_;
  std::vector<std::deque<Bytes>> mail_;
  std::vector<State> ranks_;
};

class ThreadLink final : public Link {
 public:
  ThreadLink(ThreadNetwork* network, Rank rank) : network_(network), rank_(rank) {}

  Rank rank() const override { return rank_; }
  int size() const override { return network_->size(); }
  bool Send(Rank to, std::span<const std::byte> message) override {
    return network_->Send(ToInt(rank_), ToInt(to), message);
  }
  bool Receive(Rank* from, std::span<const std::byte>* message) override {
    int sender = -1;
    if (!network_->Receive(ToInt(rank_), &sender, &received_)) return false;
    *from = Rank{sender};
    *message = received_;
    return true;
  }
  bool Flushed() override { return true; }
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
          return Mirrored::Open(
              {.arena_bytes = uint64_t{64} << 20, .start_timeout = options.start_timeout},
              std::make_unique<ThreadLink>(ThreadNetwork::Current(), options.rank), transport);
        },
    .create_job = nullptr};
inline const TransportRegistration kThreadNetworkRegistration(kThreadNetworkKind);

// How the ranks of a test reach each other.
struct Place {
  int size;
  const char* settings;
};
inline constexpr const char* kOverNetwork = "transport=mpi";
inline void PrintTo(const Place& place, std::ostream* out) {
  *out << place.size << (*place.settings == '\0' ? " on a host" : " over a network");
}

}  // namespace covey
#endif  // COVEY_TESTS_CONTRACT_THREAD_NETWORK_H_
