// A look at the model of a member that shares no memory, as data and as bytes: the question, and
// the member's answer.
//
//   message   from, to       says
//   kAsk      rank, member   show me your model, or say how far you are
//   kAnswer   member, rank   to the same question: what there was to be seen of me
//   kClosed   member, all    I show nothing any more, and ask nothing
#ifndef COVEY_CORE_ENGINE_FAR_LOOK_H_
#define COVEY_CORE_ENGINE_FAR_LOOK_H_

#include <cstdint>
#include <span>

#include "core/base/wire.h"
#include "core/transport/window.h"

namespace covey {

struct FarQuestion {
  static constexpr int64_t kInPlace = -1;

  // The rounds whose published model is meant, by the version that they begin at; kInPlace: the
  // model where it is trained.
  int64_t part = kInPlace;
  // The exchanges of models that the rank that asks has begun.
  uint64_t begun = 0;
  bool wants_model = false;

  bool operator==(const FarQuestion&) const = default;
};

struct FarAnswer {
  WindowState state =
      WindowState::kNothing;  // kWhole, kNothing, kChanging without a model, kClosed
  int64_t version = 0;
  uint64_t step = 0;                      // of rounds: the model was published as
  std::span<const std::byte> model = {};  // with kWhole, if it was wanted
};

struct FarLook {
  enum class Kind : uint8_t { kAsk = 1, kAnswer, kClosed };

  Kind kind = Kind::kClosed;
  FarQuestion question;
  FarAnswer answer;

  // A model after it is aligned as its elements are.
  static constexpr size_t kHeadBytes = 6 * sizeof(uint64_t);

  // Without the model, which follows.
  Bytes Head() const;
  // False: it is none. The model lies in `bytes`.
  static bool Decode(std::span<const std::byte> bytes, FarLook* look);
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_FAR_LOOK_H_
