// Parts of inputs that the network reads when it likes (StepKind::kPush), until their receiver has
// them: as if it read each of them itself, as late as it can be.
#ifndef COVEY_CORE_PLAN_INPUT_PUTS_H_
#define COVEY_CORE_PLAN_INPUT_PUTS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/plan/region.h"

namespace covey {

class InputPuts {
 public:
  struct Put {
    int32_t from, to;
    size_t signal;  // of `from`, with which it goes, counted from the begin's
    uint64_t offset, length;
  };

  // `epochs`: what `from` knows; `input`: its own.
  void Add(const Put& put, Epochs epochs, Region* input) {
    epochs[static_cast<size_t>(put.to)] = std::numeric_limits<uint32_t>::max();
    Read(put, epochs, input);
    under_way_.push_back(put);
  }
  // `me` knows of that signal of `peer`: what goes with it, or before, has been read by now.
  void OnLearnt(int32_t me, int32_t peer, size_t signal, const Epochs& epochs, Region* input) {
    std::erase_if(under_way_, [&](const Put& put) {
      const bool has_come = put.from == peer && put.to == me && put.signal <= signal;
      if (has_come) Read(put, epochs, input);
      return has_come;
    });
  }

 private:
  static void Read(const Put& put, const Epochs& epochs, Region* input) {
    std::vector<Held> ignored;
    input->Read(put.offset, put.length, put.to, epochs, &ignored);
  }

  std::vector<Put> under_way_;
};

}  // namespace covey
#endif  // COVEY_CORE_PLAN_INPUT_PUTS_H_
