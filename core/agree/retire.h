// Names that are not used any more: their streams, bundles and landing blocks are given back.
//
// agree-N14. A stream may go only when it is over everywhere: its blocks are read by peers, and its
// occurrences are counted alike on all members. So members agree on it:
//
//   coordinator's rank picks streams that are idle here and have not been used for long
//   RETIRE  -> members   these items: streams, and bundles with all their streams
//   IDLE    <- members   per item its next occurrence, from which on nothing begins before DROP
//                        (agree-N8's `frozen_from`); kNoOccurrence: in use here, and nothing is
//                        held
//   DROP    -> members   items for which all said the same go; kNoOccurrence: the others go on
//   DROPPED <- members   the next retirement of the group may begin
//
// A dropped name is forgotten and its blocks are free. When the name comes again it is announced,
// and begins with occurrence 0 on all members. A request submitted between IDLE and DROP is held,
// and is the first of the new count.
//
// Why that is right: all said k, so k-1 is over on all and no member has begun k, nor does before
// it has DROP and with it no channel. Hence no member reads a block that another has given back.
// Answers wait for no exchange. A bundle goes with its streams or not at all; while one of them is
// in a plan that is being made, neither. Joined ranks are told of occurrences by others than the
// coordinator (agree-N10), so that two counts would meet: JOINED waits for the last DROPPED, and
// nothing is retired in the world while a rank has joined. After a loss the group ends anyway.
//
// When: by counts alone. The coordinator's rank looks each time that `batch` new names have come to
// a group, at streams that have not been used for `patience` submissions here. A name that comes
// again after it was dropped gets eight times the patience, so that names in use are soon left
// alone.
//
// The coordinator's half: sans-IO, beside core/agree/planner.h.
#ifndef COVEY_CORE_AGREE_RETIRE_H_
#define COVEY_CORE_AGREE_RETIRE_H_

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/agree/message.h"

namespace covey {

class Retirement {
 public:
  // Asks the members about `idle.members`, but for those items that must stay, of which a bundle
  // is all. Does nothing while the group's last one is under way.
  void Begin(Message idle, uint32_t number, const std::function<bool(const PlanMember&)>& must_stay,
             std::vector<Envelope>* outbox);
  bool IsUnderWay(uint64_t group) const { return under_way_.contains(group); }
  // The names that go, once all have answered.
  std::vector<std::string> OnIdle(Rank from, const Message& answer, std::vector<Envelope>* outbox);
  // Whether that was the last.
  bool OnDropped(Rank from, const Message& message);
  void OnLoss(Rank lost);

 private:
  struct UnderWay {
    Message asked;                                // `ranks`: the members
    std::vector<std::optional<Message>> answers;  // by group index
    size_t dropped = 0;
  };
  // The answers of the group's retirement of this number, and the index of the sender; null:
  // malformed, or lost.
  UnderWay* Find(Rank from, const Message& message, size_t* index);

  std::map<uint64_t, UnderWay> under_way_;  // by group
};

}  // namespace covey
#endif  // COVEY_CORE_AGREE_RETIRE_H_
