// The circuits of a rank, one per group: whether a group has one, how it comes to have it, and why
// it never will. What ranks know of each other they read from the begin headers of their exchanges
// of device tensors (Cell::circuit), so all members judge alike and no message is sent.
//
// A member's stand, which it writes into its headers:
//   kNotYet   the library is still looked for, or nobody has asked for it
//   kWilling  the library is there; the first member's id of a circuit lies in its block
//   kReady    the circuit is ready here, and this exchange was begun for it: no input is staged
//   kNever    no circuit here, for a reason that the log tells
// and what all headers of an exchange together say (Judge):
//   all kReady                 -> over the circuit
//   some kReady, some not      -> once more, staged: it is begun again with the next tick
//   some kNever                -> no circuit for this group any more
//   all at least kWilling      -> all open the circuit with the first member's id, unless two of
//                                 them use one device
//   else                       -> staged
//
// Progress lock held. No thread, no clock.
#ifndef COVEY_CORE_DEVICE_SWITCHBOARD_H_
#define COVEY_CORE_DEVICE_SWITCHBOARD_H_

#include <map>
#include <span>
#include <string>

#include "core/base/log.h"
#include "core/base/tensor.h"
#include "core/device/circuits.h"

namespace covey {

// How tensors of devices travel: over circuits where there are, over circuits or not at all, or
// through rooms (the staged path: of the host, or in common). Equal on all ranks.
enum class DevicePath : uint8_t { kAuto, kCircuit, kStaged };

enum class CircuitVerdict : uint8_t { kStaged, kCircuit, kAgain, kRefused };

class Switchboard {
 public:
  enum class Stand : uint8_t { kNotYet, kWilling, kReady, kNever };

  // `patience`: so long an aborted circuit may take until it is given up.
  Switchboard(DevicePath path, Time patience, Rank self, Log* log)
      : path_(path), patience_(patience), self_(self), log_(log) {}

  // Outlives the switchboard.
  void SetCircuits(Circuits* circuits) { circuits_ = circuits; }
  bool HasCircuits() const { return circuits_ != nullptr && path_ != DevicePath::kStaged; }

  static Stand StandOf(uint64_t word) { return Stand(word & 3); }
  // What this rank writes into the header of an exchange of the group. `may`: it could go over a
  // circuit. Looks for the library, if that has not been done.
  uint64_t Word(const Group& group, bool may);
  // What goes with a kWilling word of the first member; null: nothing.
  const CircuitId* Offer(const Group& group) const;
  // `words`: of all members, in group order; `id`: what the first member has offered. `may` is
  // equal on all of them. kRefused: Refusal says why.
  CircuitVerdict Judge(const Group& group, std::span<const uint64_t> words, const char* id,
                       bool may);
  std::string Refusal(const Group& group) const;

  Circuit* CircuitOf(const Group& group) const;  // null: none
  // Ends the group's circuit, if it has one: `lost` is to blame, for `how`.
  void Drop(const Group& group, Rank lost, const std::string& how, Time now);
  bool IsDropped(const Group& group) const;
  Rank DroppedBy(const Group& group) const;
  std::string DroppedHow(const Group& group) const;
  // Nothing of a dropped circuit touches memory any more, or it was given up.
  bool IsOver(const Group& group, Time now);

 private:
  struct Line {
    bool never = false;
    std::string why;
    bool has_id = false;
    CircuitId id{};
    Circuit* circuit = nullptr;
    bool dropped = false;
    Rank lost = kNoRank;  // of one that is dropped
    std::string how;
    Time dropped_at = 0;
    bool given_up = false;
  };

  Stand Look(const Group& group, Line* line);
  void Never(const Group& group, Line* line, const std::string& why, bool own);
  const Line* Find(const Group& group) const;

  DevicePath path_;
  Time patience_;
  Rank self_;
  Log* log_;
  Circuits* circuits_ = nullptr;
  std::map<uint64_t, Line> lines_;  // by Group::key
  bool said_trouble_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_SWITCHBOARD_H_
