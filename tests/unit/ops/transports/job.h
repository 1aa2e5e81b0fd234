// Ranks of a job over a network on this machine, in one thread: their listeners, their book, their
// links. These are of the plug-in tcp, or what `more` makes of them.
//
// Until() sleeps on the links' descriptors and on nothing else, so a link that has something to do
// and does not say so hangs.
#ifndef COVEY_TESTS_UNIT_OPS_TRANSPORTS_JOB_H_
#define COVEY_TESTS_UNIT_OPS_TRANSPORTS_JOB_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/wire.h"
#include "core/transport/plugin_link.h"

extern "C" covey_open_link_function covey_open_link;

namespace covey {

constexpr Time kHardLimit = 60 * kSecond;  // of what takes milliseconds

inline sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// On a free port of this machine.
inline int Listen(uint16_t* port, int family = AF_INET) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_in);
  const sockaddr_in v4 = Loopback(0);
  std::memcpy(&storage, &v4, sizeof(v4));
  if (family == AF_INET6) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = in6addr_loopback;
    std::memcpy(&storage, &v6, sizeof(v6));
    length = sizeof(v6);
  }
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (bind(fd, address, length) != 0 || listen(fd, 1024) != 0) return -1;
  getsockname(fd, address, &length);
  *port = ntohs(reinterpret_cast<sockaddr_in*>(&storage)->sin_port);  // at the same place in v6's
  return fd;
}

inline int Connect(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

inline Bytes Pattern(size_t length, int seed) {
  Bytes bytes(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 251 + seed);
  return bytes;
}

class Job {
 public:
  struct Message {
    Rank from;
    Bytes bytes;
  };

  using More = std::unique_ptr<Link> (*)(std::unique_ptr<Link> tcp, const covey_link_options&);

  Job(int size, const std::string& security, Time lease = 10 * kSecond, int family = AF_INET,
      More more = nullptr, int32_t streams = 1)
      : lease_(lease),
        security_(security),
        more_(more),
        streams_(streams),
        ranks_(static_cast<size_t>(size)) {
    address_ = family == AF_INET ? "127.0.0.1" : "::1";
    for (One& one : ranks_) one.listener = Listen(&one.port, family);
  }
  ~Job() {
    for (One& one : ranks_)
      if (one.listener >= 0) close(one.listener);
  }

  uint16_t port(int rank) const { return ranks_[rank].port; }
  // Another one listens for it, as far as the others know.
  void set_port(int rank, uint16_t port) { ranks_[rank].port = port; }
  std::string Book(char digit = 'a') const {
    std::string text = "covey book 1\nkey " + std::string(64, digit) + "\nsecurity " + security_;
    for (size_t r = 0; r < ranks_.size(); ++r)
      text += "\n" + std::to_string(r) + " " + std::to_string(r) + " " + address_ + " " +
              std::to_string(ranks_[r].port);
    return text + "\n";
  }
  void Open(int rank, char digit = 'a') {
    const std::string book = Book(digit);
    const covey_link_options options{.rank = rank,
                                     .size = static_cast<int32_t>(ranks_.size()),
                                     .book = book.c_str(),
                                     .listener = ranks_[rank].listener,
                                     .lease_ns = lease_,
                                     .address = address_.c_str(),
                                     .is_trusted = 1,
                                     .streams = streams_};
    std::unique_ptr<PluginLink> link;
    ASSERT_EQ(PluginLink::Open("tcp", covey_open_link, options, &link), Status::Ok());
    ranks_[rank].link = more_ == nullptr ? std::move(link) : more_(std::move(link), options);
  }
  void OpenAll() {
    for (size_t r = 0; r < ranks_.size(); ++r) Open(static_cast<int>(r));
  }
  void Close(int rank) { ranks_[rank].link.reset(); }
  std::unique_ptr<Link> Take(int rank) { return std::move(ranks_[rank].link); }
  Link& link(int rank) { return *ranks_[rank].link; }
  std::vector<Message>& mail(int rank) { return ranks_[rank].mail; }
  std::vector<PeerLoss>& losses(int rank) { return ranks_[rank].losses; }

  // One look at a link.
  void Pump(int rank) {
    One& one = ranks_[rank];
    Rank from = kNoRank;
    std::span<const std::byte> message;
    while (one.link->Receive(&from, &message))
      one.mail.push_back({from, Bytes(message.begin(), message.end())});
    for (PeerLoss& loss : one.link->PollLost()) one.losses.push_back(std::move(loss));
  }
  // All links that are open work until `done` is true.
  template <class Done>
  void Until(const Done& done) {
    const Time limit = MonotonicNow() + kHardLimit;
    for (;;) {
      std::vector<pollfd> wakers;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        if (ranks_[r].link == nullptr) continue;
        Pump(static_cast<int>(r));
        wakers.push_back({ranks_[r].link->Descriptor(), POLLIN, 0});
      }
      if (done()) return;
      const auto left = static_cast<int>((limit - MonotonicNow()) / kMillisecond);
      if (left <= 0 || poll(wakers.data(), wakers.size(), left) <= 0)
        return ADD_FAILURE() << "nothing wakes the links, and it is not done";
    }
  }
  // Sends as soon as there is room.
  void Send(int from, int to, std::span<const std::byte> message) {
    Until([&] { return link(from).Send(Rank{to}, message); });
  }
  void Put(int from, int to, uint64_t offset, std::span<const std::byte> data) {
    Until([&] { return link(from).Put(Rank{to}, offset, data); });
  }

 private:
  struct One {
    int listener = -1;
    uint16_t port = 0;
    std::unique_ptr<Link> link;
    std::vector<Message> mail;
    std::vector<PeerLoss> losses;
  };
  const Time lease_;
  const std::string security_;
  const More more_;
  const int32_t streams_;
  std::string address_;
  std::vector<One> ranks_;
};

}  // namespace covey
#endif  // COVEY_TESTS_UNIT_OPS_TRANSPORTS_JOB_H_
