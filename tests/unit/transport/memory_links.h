// Links between objects of one process, for tests of what is built on links: messages wait in
// memory, and each link has a descriptor that is readable while one does.
#ifndef COVEY_TESTS_UNIT_TRANSPORT_MEMORY_LINKS_H_
#define COVEY_TESTS_UNIT_TRANSPORT_MEMORY_LINKS_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/transport/addressed_link.h"

namespace covey {

// Outlives its links.
class MemoryNetwork {
 public:
  explicit MemoryNetwork(int size) : ranks_(static_cast<size_t>(size)) {
    for (One& one : ranks_) one.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  }
  ~MemoryNetwork() {
    for (const One& one : ranks_) close(one.bell);
  }
  MemoryNetwork(const MemoryNetwork&) = delete;
  MemoryNetwork& operator=(const MemoryNetwork&) = delete;

  void Send(Rank from, Rank to, std::span<const std::byte> message) {
    const std::lock_guard lock(mutex_);
    One& one = ranks_[static_cast<size_t>(ToInt(to))];
    one.messages.emplace_back(from, Bytes(message.begin(), message.end()));
    eventfd_write(one.bell, 1);
  }
  bool Receive(Rank to, Rank* from, Bytes* message) {
    const std::lock_guard lock(mutex_);
    One& one = ranks_[static_cast<size_t>(ToInt(to))];
    eventfd_t rung = 0;
    eventfd_read(one.bell, &rung);
    if (one.messages.empty()) return false;
    *from = one.messages.front().first;
    *message = std::move(one.messages.front().second);
    one.messages.pop_front();
    eventfd_write(one.bell, 1);
    return true;
  }
  int size() const { return static_cast<int>(ranks_.size()); }
  int bell(Rank r) const { return ranks_[static_cast<size_t>(ToInt(r))].bell; }

 private:
  struct One {
    std::deque<std::pair<Rank, Bytes>> messages;
    int bell = -1;
  };
  std::mutex mutex_;
  std::vector<One> ranks_;
};

// What a test decides for a link.
struct Faults {
  int refusals = 0;              // Send is false so many times
  int unsent = 0;                // Flushed is false so many times
  std::vector<PeerLoss> losses;  // of the next PollLost
  std::vector<Rank> dropped;
};

// Also of the interface for addresses: its address is its rank as one byte.
class MemoryLink final : public AddressedLink {
 public:
  MemoryLink(MemoryNetwork* network, Rank rank, Faults* faults)
      : network_(network), rank_(rank), faults_(faults) {}

  struct Meeting {
    uint64_t expected = 0, used = 0;
    int address = -1;
  };
  std::vector<Meeting> met = std::vector<Meeting>(16);  // by rank

  Rank rank() const override { return rank_; }
  int size() const override { return network_->size(); }
  bool Send(Rank to, std::span<const std::byte> message) override {
    if (faults_->refusals > 0) return --faults_->refusals < 0;
    network_->Send(rank_, to, message);
    return true;
  }
  bool Receive(Rank* from, std::span<const std::byte>* message) override {
    if (!network_->Receive(rank_, from, &received_)) return false;
    *message = received_;
    return true;
  }
  bool Flushed() override { return faults_->unsent == 0 || --faults_->unsent < 0; }
  void Drop(Rank peer) override { faults_->dropped.push_back(peer); }
  int Descriptor() const override { return network_->bell(rank_); }
  std::vector<PeerLoss> PollLost() override { return std::exchange(faults_->losses, {}); }

  std::span<const std::byte> Address() const override {
    return {reinterpret_cast<const std::byte*>(&rank_), 1};
  }
  void Expect(Rank peer, uint64_t token) override { Met(peer).expected = token; }
  void Connect(Rank peer, std::span<const std::byte> address, uint64_t token) override {
    Met(peer).used = token;
    Met(peer).address = address.size() == 1 ? static_cast<int>(address[0]) : -1;
  }

 private:
  Meeting& Met(Rank peer) { return met[static_cast<size_t>(ToInt(peer))]; }

  MemoryNetwork* network_;
  const Rank rank_;
  Faults* faults_;
  Bytes received_;
};

}  // namespace covey
#endif  // COVEY_TESTS_UNIT_TRANSPORT_MEMORY_LINKS_H_
