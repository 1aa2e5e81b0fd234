// The replicated model of a method of deltas (Payload::kDelta), its state, and what of this rank's
// work is in neither yet.
//
// A rank begins its work from X - U, X being the replicated model and U the sum of its deltas that
// no version has had, as far as it has read. What it has changed since is its next delta.
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
  // kUnsupported: it has no arithmetic for the dtype of a piece.
  static Status Check(const TrainerLayout& layout);

  // `choice` is the method alone. REQUIRES: Check; its payload is kDelta.
  OuterModel(const MethodChoice& choice, const TrainerLayout* layout);

  // All buffers are of the layout's length.
  // All members begin with this model.
  void Anchor(const std::byte* model);
  // This rank has come to `model`: writes its delta to `delta`, for Publish.
  void Subtract(const std::byte* model, std::byte* delta);
  // What Subtract has written was published as step `step`.
  void OnPublished(uint64_t step);
  // `sum` is a version: so many deltas, of this rank those up to step `own`; 0: none.
  void Combine(const std::byte* sum, int64_t deltas, uint64_t own);
  // What this rank goes on from.
  void Adopt(std::byte* model) const;

  // The replicated arrays: the model, then those of the method.
  std::vector<std::span<std::byte>> arrays();
  std::vector<const char*> names() const;
  // Of another rank, one after the other, with versions that have had this rank's deltas up to step
  // `own`.
  void Load(std::span<const std::byte> image, uint64_t own);
  // What is pending will be in no version: others have ended finish() without this rank.
  void Drop() { pending_.clear(); }
  // They were written, from a checkpoint.
  void OnWritten() { is_anchored_ = true; }
  bool is_anchored() const { return is_anchored_; }

 private:
  // A delta that no version has had.
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
