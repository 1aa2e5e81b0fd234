// A network made of an inproc transport's mailboxes: what a Mirrored runs over in the simulator,
// and a Composite.
// Delays, refusals, clogged links and losses are the inproc network's; a loss is told after the
// last message. A put is read in its sender's memory when it is received, as late as can be: a
// rank that writes there too early spoils the sums.
#ifndef COVEY_TESTS_SIM_SIMULATOR_MAIL_LINK_H_
#define COVEY_TESTS_SIM_SIMULATOR_MAIL_LINK_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/transport/link.h"
#include "ops/transports/inproc.h"
#include "tests/sim/simulator/host_view.h"

namespace covey {

class MailLink final : public Link {
 public:
  // Of a rank that shares memory with no other.
  MailLink(InprocNetwork* network, Rank rank)
      : MailLink(network,
                 std::make_shared<SortedMail>(&network->transport(rank), std::vector<Rank>{}), 1) {}
  // Of a rank whose HostView takes the other mail, where each host has so many ranks.
  MailLink(InprocNetwork* network, std::shared_ptr<SortedMail> mail, int32_t per_host)
      : network_(network),
        mail_(std::move(mail)),
        per_host_(per_host),
        node_(&mail_->transport()) {}

  Rank rank() const override { return node_->rank(); }
  int size() const override { return node_->size(); }
  Rank HostOf(Rank r) const override { return Rank{ToInt(r) / per_host_ * per_host_}; }
  bool Send(Rank to, std::span<const std::byte> message) override {
    return node_->TrySend(to, Letter({}, message));
  }
  bool Receive(Rank* from, std::span<const std::byte>* message) override {
    while (mail_->Receive(false, from, &received_)) {
      Place put;
      std::memcpy(&put, received_.data(), sizeof(put));
      if (put.data == nullptr) {
        *message = std::span<const std::byte>(received_).subspan(sizeof(put));
        return true;
      }
      std::memcpy(landing_[static_cast<size_t>(ToInt(*from))] + put.offset, put.data, put.length);
    }
    return false;
  }
  bool Puts() const override { return true; }
  void Land(Rank from, std::span<std::byte> memory) override {
    landing_.resize(static_cast<size_t>(size()));
    landing_[static_cast<size_t>(ToInt(from))] = memory.data();
  }
  bool Put(Rank to, uint64_t offset, std::span<const std::byte> data) override {
    return node_->TrySend(to, Letter({data.data(), data.size(), offset}, {}));
  }
  bool Flushed() override { return true; }
  std::vector<PeerLoss> PollLost() override {
    for (PeerLoss& loss : mail_->PollLost(false)) known_.push_back(std::move(loss));
    std::vector<PeerLoss> told;
    std::erase_if(known_, [&](const PeerLoss& loss) {
      if (network_->IsUnderWay(loss.rank, rank()) || mail_->HasKept(false)) return false;
      told.push_back(loss);
      return true;
    });
    return told;
  }

 private:
  struct Place {
    const std::byte* data = nullptr;  // null: a message
    size_t length = 0;
    uint64_t offset = 0;
  };
  static Bytes Letter(const Place& place, std::span<const std::byte> message) {
    Bytes letter(sizeof(place) + message.size());
    std::memcpy(letter.data(), &place, sizeof(place));
    std::copy(message.begin(), message.end(), letter.begin() + sizeof(place));
    return letter;
  }

  InprocNetwork* network_;
  std::shared_ptr<SortedMail> mail_;
  const int32_t per_host_;
  Transport* node_;
  std::vector<PeerLoss> known_;  // and not yet told
  Bytes received_;
  std::vector<std::byte*> landing_;  // by rank
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_MAIL_LINK_H_
