// The control plane of a job whose ranks one launcher has not started alone: the ranks that take
// part, their order, and deaths. Tensors never travel over it.
//
// A *node* is a launcher with its ranks, or a rank that something else has started. One node
// serves; all, that one too, join it. The fate of the job arrives as events.
//
// Contract:
//  transport-C1. Open checks its options and, where it serves, binds the address; it does not
//      wait. Everything else, a refusal too, comes as an event; event_fd() is readable while
//      there are some.
//  transport-C2. A peer that has not proved to hold the secret is told nothing, and nothing it says
//      is kept or believed.
//  transport-C3. kView comes once, before kShared. After kRefused nothing comes.
//  transport-C4. Destroying one that has not reported kLeft is dying: the other nodes get kLost.
//
// Any thread; Next and Report by one at a time.
#ifndef COVEY_CORE_TRANSPORT_CONTROL_H_
#define COVEY_CORE_TRANSPORT_CONTROL_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace covey {

// A node as it offers itself, or, with first_rank >= 0, as the job knows it.
struct Node {
  int32_t node = -1;        // its number, 0..nodes-1; -1 in an offer: any that is free
  int32_t slots = 1;        // ranks it brings
  int32_t first_rank = -1;  // its ranks are first_rank..first_rank+slots-1
  std::string host;         // name of its machine, for people
  std::string host_id;      // equal for nodes that can share memory
  int32_t process = 0;      // process id on its machine
  bool serves = false;      // the rendezvous is in this process
};

struct ControlOptions {
  std::string address;  // "host:port" to join or, with serve, to serve at; port 0: any free one
  std::string secret;   // of the job: 32 drawn bytes or more, as hexadecimal digits or base64
  bool serve = false;
  int32_t nodes = 0;  // of the job; 0 when joining: as the server says
  Node offer;
  std::string build;  // version and interfaces: must be equal on all nodes
  Time lease = 0;     // the server's: a node that is silent for so long is lost
};
inline constexpr int32_t kMaxNodes = 1024;
inline constexpr int32_t kMaxControlRanks = 1024;           // as kMaxRanksPerHost of shared memory
inline constexpr size_t kMaxControlTextBytes = 16384;       // of a report
inline constexpr size_t kMaxSharedBytes = size_t{2} << 20;  // of all texts that are shared at once

struct ControlEvent {
  enum class Kind {
    kWaiting,  // text: the nodes that are there and those missing
    kView,     // all are there: nodes, in the order of their numbers; text: drawn for this job
    kShared,   // all have shared a text: texts, in the order of their numbers
    kFailed,   // a rank of `node` has failed; text: as that node reported it
    kLost,     // `node` has died or fallen silent; text: a sentence that names it and its ranks
    kEnded,    // all nodes have left
    kRefused,  // there will be no job, or not with this node; text: why, and what to do
  };
  Kind kind = Kind::kWaiting;
  int32_t node = -1;
  std::string text;
  std::vector<Node> nodes;
  std::vector<std::string> texts;
};

struct ControlReport {
  enum class Kind {
    kBeat,    // it lives (sent by itself)
    kShare,   // text: for all nodes, which get it when all have shared one
    kReady,   // it has its place, and holds its host's memory
    kFailed,  // one of its ranks has failed; text: for the other launchers
    kLeft,    // its ranks have ended; no news of it means no harm from now on
  };
  Kind kind = Kind::kBeat;
  std::string text;
};

class Control {
 public:
  virtual ~Control() = default;

  virtual std::string address() const = 0;  // with the port that was bound
  virtual int event_fd() const = 0;         // belongs to this
  virtual bool Next(ControlEvent* event) = 0;
  // Waits for the server's answer, but not for a server that is gone (kAborted).
  virtual Status Report(const ControlReport& report) = 0;
};

struct ControlKind {
  const char* name;
  Status (*open)(const ControlOptions& options, std::unique_ptr<Control>* control);
};
const ControlKind* FindControl(std::string_view name);  // null: not linked in

struct ControlRegistration {
  explicit ControlRegistration(const ControlKind& kind);
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_CONTROL_H_
