// The replicated model of a method of deltas (Payload::kDelta), the method's replicated state, and
// this rank's pending deltas: those that are in no version yet.
//
// A rank trains from X - U. X is the replicated model, U the sum of the rank's pending deltas. Its
// next delta is X - U minus the model that it has come to.
//
// Invariants:
//  1. Model and state are a function of the versions alone.
//  2. The deltas of a rank add up to all that it has done: none is in two of them.
//
// Pure arithmetic on flat arrays, in the pieces of a TrainerLayout. One thread at a time.
#ifndef COVEY_CORE_TRAIN_OUTER_MODEL_H_
#define COVEY_CORE_TRAIN_OUTER_MODEL_H_

#include <deque>
#include <span>
#include <vector>

#include "core/method/method.h"
#include "core/train/layout.h"

namespace covey {

class OuterModel {
 public:
  // kUnsupported: it has no arithmetic for the dtype of a parameter, which is named by its index.
  static Status Check(const Method& method, const TrainerLayout& layout);

  // `choice` is the method alone. REQUIRES: Check; its payload is kDelta.
  OuterModel(const MethodChoice& choice, const TrainerLayout* layout);

  // All buffers have the layout's length.

  // The replicated model becomes `model`, the same on all members.
  void Anchor(const std::byte* model);
  // This rank has come to `model`: writes its delta to `delta`, for Publish.
  void Subtract(const std::byte* model, std::byte* delta);
  // The last result of Subtract was published as step `step`: it is pending.
  void OnPublished(uint64_t step);
  // Applies a version: `sum` of `deltas` deltas. It contains this rank's up to step `own`; 0: none.
  void Combine(const std::byte* sum, int64_t deltas, uint64_t own);
  // Writes the model that this rank trains from: X - U.
  void Adopt(std::byte* model) const;

  // The replicated arrays: the model, then those of the method.
  std::vector<std::span<std::byte>> arrays();
  std::vector<const char*> names() const;
  // `image`: the arrays of another rank, one after the other. They contain this rank's deltas up to
  // step `own`.
  void Load(std::span<const std::byte> image, uint64_t own);
  // The bytes of all arrays, with the pending deltas.
  size_t HeldBytes() const;
  // The pending deltas will be in no version: the other ranks have ended finish() without this one.
  void Drop() { pending_.clear(); }
  // A checkpoint was written to arrays().
  void OnWritten() { is_anchored_ = true; }
  bool is_anchored() const { return is_anchored_; }

 private:
  // A published delta that is in no version yet.
  struct Pending {
    uint64_t step = 0;  // of the last that is in it
    std::vector<std::byte> delta;
  };

  void Forget(uint64_t own);
  // to -= from.
  void Deduct(std::byte* to, const std::byte* from) const;

  const Method* method_;
  std::vector<int64_t> settings_;
  const TrainerLayout* layout_;
  bool is_anchored_ = false;
  std::vector<std::byte> model_;
  std::vector<std::vector<std::byte>> state_;
  std::vector<std::byte> last_;  // delta, not published yet
  std::deque<Pending> pending_;  // by step
};

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_OUTER_MODEL_H_
