// The communicators of a rank, one per group: whether a group has one, how it comes to have it, and
// why it never will. Ranks read each other's readiness from the begin headers of exchanges of
// device tensors (Cell::communicator), so all members judge alike and no message is sent.
//
// A member's readiness, which it writes into its headers:
//   kNotYet   the library is still looked for, or no exchange has asked for it
//   kWilling  the library is there; the first member's id of a communicator lies in its block
//   kReady    the communicator is ready here, and this exchange begins for it: no input is staged
//   kNever    no communicator here, for a reason that the log tells
// and what all headers of an exchange together say (Judge):
//   all kReady                 -> over the communicator
//   some kReady, some not      -> once more, staged: it is begun again with the next tick
//   some kNever                -> no communicator for this group any more
//   all at least kWilling      -> all open the communicator with the first member's id, unless two
//                                 of them use one device
//   else                       -> staged
//
// Progress lock held. No thread, no clock.
#ifndef COVEY_CORE_DEVICE_COMMUNICATOR_REGISTRY_H_
#define COVEY_CORE_DEVICE_COMMUNICATOR_REGISTRY_H_

#include <map>
#include <span>
#include <string>

#include "core/base/log.h"
#include "core/base/tensor.h"
#include "core/device/communicators.h"

namespace covey {

// How tensors of devices travel: over communicators where there are, over communicators or not at
// all, or through staging buffers (of the host, or by IPC). Equal on all ranks.
enum class DevicePath : uint8_t { kAuto, kCommunicator, kStaged };

enum class CommunicatorVerdict : uint8_t { kStaged, kCommunicator, kAgain, kRefused };

class CommunicatorRegistry {
 public:
  enum class Readiness : uint8_t { kNotYet, kWilling, kReady, kNever };

  // `patience`: so long an aborted communicator may take until it is given up.
  CommunicatorRegistry(DevicePath path, Time patience, Rank self, Log* log)
      : path_(path), patience_(patience), self_(self), log_(log) {}

  // Outlives the registry.
  void SetCommunicators(Communicators* communicators) { communicators_ = communicators; }
  bool HasCommunicators() const {
    return communicators_ != nullptr && path_ != DevicePath::kStaged;
  }

  static Readiness ReadinessOf(uint64_t word) { return Readiness(word & 3); }
  // This rank's word in the header of an exchange of the group. `may`: the exchange could go over a
  // communicator. Looks for the library, if that has not been done.
  uint64_t Word(const Group& group, bool may);
  // The id that goes with a kWilling word of the first member; null: none.
  const CommunicatorId* OfferedId(const Group& group) const;
  // `words`: of all members, in group order; `id`: the first member's offer. `may` is
  // equal on all of them. kRefused: Refusal says why.
  CommunicatorVerdict Judge(const Group& group, std::span<const uint64_t> words, const char* id,
                            bool may);
  std::string Refusal(const Group& group) const;

  Communicator* CommunicatorOf(const Group& group) const;  // null: none
  // Ends the group's communicator, if it has one: `lost` is to blame, for `how`.
  void Abort(const Group& group, Rank lost, const std::string& how, Time now);
  bool IsAborted(const Group& group) const;
  Rank AbortedBy(const Group& group) const;
  std::string AbortedHow(const Group& group) const;
  // Nothing of an aborted communicator touches memory any more, or it was given up.
  bool IsOver(const Group& group, Time now);

 private:
  struct Entry {
    bool never = false;
    std::string why;
    bool has_id = false;
    CommunicatorId id{};
    Communicator* communicator = nullptr;
    bool aborted = false;
    Rank lost = kNoRank;  // of one that is aborted
    std::string how;
    Time aborted_at = 0;
    bool given_up = false;
  };

  Readiness Look(const Group& group, Entry* entry);
  void Never(const Group& group, Entry* entry, const std::string& why, bool own);
  const Entry* Find(const Group& group) const;

  DevicePath path_;
  Time patience_;
  Rank self_;
  Log* log_;
  Communicators* communicators_ = nullptr;
  std::map<uint64_t, Entry> entries_;  // by Group::key
  bool said_trouble_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_COMMUNICATOR_REGISTRY_H_
