// How nodes become a job, and how the job sees them go: the decisions of the server, and nothing
// else. No network, clock, thread or lock: messages and the time in, a decision with its reason and
// events for the nodes out. grpc_server.cc serves it over a network.
//
//   phase     input      when                    to        what follows
//   waiting   join       fits, not the last      waiting   WAITING to all
//             join       the last                complete  numbers and ranks; VIEW to all
//             lost       (left: the same)        waiting   its place is free; WAITING to all
//             stranger   the 1st, 2nd, 4th, 8th  waiting   WAITING to all
//   complete  share      not the last            complete
//             share      the last                complete  SHARED to all; all may share again
//             ready      not the last            complete
//             ready      the last                running
//   complete, failed                             (stays)   FAILED to the others
//   running   left       not the last            (stays)   its silence is no harm any more
//             left       the last                ended     ENDED to all
//             lost                               ended     LOST to the others
//   ended     share                              ended     nothing: the node is told of the end
//             failed                             ended     FAILED to the others
//             left, lost                         ended     ENDED to all after the last
//   any       beat                               (stays)   the lease begins anew
//
// Everything else is refused with a reason, and changes nothing.
//
// Invariants:
//  1. Numbers of nodes are 0..nodes-1, each once; ranks follow the numbers.
//  2. A node that is there is heard of within `lease`, or lost.
#ifndef COVEY_OPS_CONTROL_RENDEZVOUS_H_
#define COVEY_OPS_CONTROL_RENDEZVOUS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/transport/control.h"

namespace covey {

class Rendezvous {
 public:
  enum class Phase { kWaiting, kComplete, kRunning, kEnded };

  struct Options {
    int32_t nodes = 1;
    Time lease = 0;
    std::string build;  // the version that every node must have been built from
    std::string job;    // drawn for this job: the text of VIEW
  };
  struct Offer {
    Node node;
    std::string build;
    int32_t nodes = 0;  // that it expects; 0: any number
  };
  struct Decision {
    bool accepted = true;
    std::string reason;  // why not, and what to do
  };
  // An event for one node, named by its ticket. Nodes have what is told to all in common.
  struct Mail {
    int32_t ticket = -1;
    std::shared_ptr<const ControlEvent> event;
  };

  explicit Rendezvous(Options options) : options_(std::move(options)) {}

  // *ticket names the node in later calls; numbers are given when all are there.
  Decision Join(Time now, const Offer& offer, int32_t* ticket);
  Decision Report(Time now, int32_t ticket, const ControlReport& report);
  // `how` completes "node 1 on a (process 7, ranks 2 and 3) ...".
  void Lose(int32_t ticket, const std::string& how);
  void Tick(Time now);  // loses those whose lease has run out
  // A client without the job's secret was turned away: told while nodes are missing, ever more
  // seldom.
  void NoteStranger();

  std::vector<Mail> TakeMail() { return std::exchange(mail_, {}); }
  Phase phase() const { return phase_; }

 private:
  enum class Presence { kThere, kLeft, kLost };
  struct Member {
    Node node;
    Presence presence = Presence::kThere;
    bool ready = false;
    std::optional<std::string> shared;  // by it, and not yet by all
    Time heard = 0;
  };

  Decision Judge(const Offer& offer) const;
  Decision TakeShare(Member* member, const std::string& text);
  Decision TakeReady(Member* member);
  void TakeLeft(int32_t ticket, Member* member);
  void Complete();
  void GiveNumbers();
  std::map<int32_t, Member*> ByNumber();
  std::string WhoIsMissing() const;
  int32_t Present() const;
  void Tell(int32_t ticket, ControlEvent event);
  void TellOthers(int32_t ticket, ControlEvent event);  // -1: all
  void EndIfEmpty();

  const Options options_;
  Phase phase_ = Phase::kWaiting;
  std::map<int32_t, Member> members_;  // by ticket; in kWaiting only those that are there
  int32_t next_ticket_ = 0;
  uint64_t strangers_ = 0;
  std::vector<Mail> mail_;
};

// "node 1 on a (process 7, ranks 2-3)".
std::string NodeText(const Node& node);

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_RENDEZVOUS_H_
