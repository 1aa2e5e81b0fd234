// A network made of an inproc transport's mailboxes: what a Mirrored runs over in the simulator.
// Delays, refusals, clogged links and losses are the inproc network's; a loss is told after the
// last message.
#ifndef COVEY_TESTS_SIM_SIMULATOR_MAIL_LINK_H_
#define COVEY_TESTS_SIM_SIMULATOR_MAIL_LINK_H_

#include <vector>

#include "core/transport/link.h"
#include "ops/transports/inproc.h"

namespace covey {

class MailLink final : public Link {
 public:
  MailLink(InprocNetwork* network, Rank rank)
      : network_(network), mail_(&network->transport(rank)) {}

  Rank rank() const override { return mail_->rank(); }
  int size() const override { return mail_->size(); }
  bool Send(Rank to, std::span<const std::byte> message) override {
    return mail_->TrySend(to, message);
  }
  bool Receive(Rank* from, std::span<const std::byte>* message) override {
    if (!mail_->TryReceive(from, &received_)) return false;
    *message = received_;
    return true;
  }
  bool Flushed() override { return true; }
  std::vector<PeerLoss> PollLost() override {
    for (PeerLoss& loss : mail_->PollPeers()) known_.push_back(std::move(loss));
    std::vector<PeerLoss> told;
    std::erase_if(known_, [&](const PeerLoss& loss) {
      if (network_->IsUnderWay(loss.rank, rank())) return false;
      told.push_back(loss);
      return true;
    });
    return told;
  }

 private:
  InprocNetwork* network_;
  Transport* mail_;
  std::vector<PeerLoss> known_;  // and not yet told
  Bytes received_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_MAIL_LINK_H_
