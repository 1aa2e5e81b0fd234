// The models of other members as this rank looks at them, by messages: no look waits for an answer.
//
//   member   event                  after
//   -        Look                   asked: kAsk
//   asked    Look                   asked
//   asked    kModel                 come, or - if it has none
//   come     Look, soon             -: the look has it
//   come     Look, after a while    asked: that model is of long ago
//   any      the member is lost     -
//
// Sans-IO; one thread at a time.
#ifndef COVEY_CORE_GOSSIP_FAR_LOOKS_H_
#define COVEY_CORE_GOSSIP_FAR_LOOKS_H_

#include <cstdint>
#include <vector>

#include "core/base/types.h"
#include "core/gossip/far_message.h"

namespace covey {

class FarLooks {
 public:
  struct Model {
    uint64_t epoch = 0, steps = 0;  // of its rank
    std::vector<std::byte> bytes;   // laid out as a buffer
  };
  // A model that has come is shown to a look so long after the one before.
  static constexpr Time kKept = 2 * kSecond;

  // So many members; models of so many bytes.
  FarLooks(int32_t size, size_t length_bytes)
      : members_(static_cast<size_t>(size)), length_bytes_(length_bytes) {}

  // The model of `member` that has come. False: none has; *asks says whether it has to be asked.
  bool Look(int32_t member, Time now, Model* model, bool* asks);
  // False: that was not asked for, or is none.
  bool OnModel(int32_t from, const FarMessage& answer);
  void OnLoss(int32_t member) { At(member) = {}; }

 private:
  struct Member {
    bool is_asked = false, has_come = false;
    Time looked_at = 0;
    Model model;
  };

  Member& At(int32_t member) { return members_[static_cast<size_t>(member)]; }

  std::vector<Member> members_;
  const size_t length_bytes_;
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_FAR_LOOKS_H_
