// One rank's part in averaging models in pairs, on one host: AD-PSGD's pair exchange without a
// thread, a message or a lock (core/PROTOCOL.md: gossip-P1 to gossip-P10). Where ranks lie on
// several hosts it has those of one; far_access.h and far_pairs.h are for the others.
//
// A rank trains on its own copy of its model and pushes what it has become; in between others may
// average with the model it pushed last, and their change of it is added to the rank's own
// progress: neither is lost. No rank waits for another: every call ends, also if all other ranks
// are stopped, wherever.
//
// Invariants, at any point between two words, whichever rank stops or dies wherever:
//  1. The sum of all models is that of the first ones and of all progress that was pushed, up to
//     rounding of floats: an exchange moves no mean, with a codec neither, and loses no update.
//  2. A buffer that a model word names is not written.
//  3. With all others stopped a call of a rank ends, and an exchange with any of them is done.
//
// Lian, Zhang, Zhang, Liu: Asynchronous Decentralized Parallel Stochastic Gradient Descent, ICML
// 2018, arXiv:1710.06952. Sans-IO; one thread at a time.
#ifndef COVEY_CORE_GOSSIP_GOSSIP_H_
#define COVEY_CORE_GOSSIP_GOSSIP_H_

#include <memory>
#include <span>
#include <vector>

#include "core/base/kernels.h"
#include "core/gossip/exchange.h"
#include "core/gossip/memory.h"
#include "core/gossip/quantized_pair.h"
#include "core/transport/shared_atomics.h"

namespace covey {

class Gossip {
 public:
  enum class Outcome : uint8_t {
    kDone,
    kBusy,       // one of the two models was changed meanwhile; nothing was done
    kNoBuffers,  // slower partners hold all buffers of this rank; nothing was done
    kAbsent,     // the partner is dead, has not begun, or is still in the last epoch
  };
  struct Counters {
    uint64_t updates = 0;
    uint64_t merged = 0;  // of those: another rank had averaged with it since the one before
    uint64_t exchanges = 0;
    uint64_t busy = 0, no_buffers = 0, absent = 0;
  };

  // Where an epoch ends.
  enum class End : uint8_t {
    kHere,       // with these members: Unfinished, Mean, Meet, Unmet
    kElsewhere,  // with those of other hosts too: FarAccess, OwnModel
  };

  // `memory` is mapped: all members have agreed on size and layout before. All outlive this.
  // With a codec an exchange leaves each of the two with a result of its own (quantized_pair.h):
  // "the mean" below is less than half a step from it then.
  Gossip(int32_t self, const PairMemory* memory, SharedAtomics* words, const Kernels* kernels,
         const PairCodec& codec = {}, End end = End::kHere);

  // All models below are given by span of the layout: the memory that this rank trains on.

  // The first model of this rank. Once, before anything else.
  void Begin(std::span<const void* const> model);
  // The progress of `model` since the last call that wrote it is pushed, and
  // model is what this rank has now: itself, with what others have moved it by.
  void Update(std::span<void* const> model);
  // Averages with `partner`: both have the mean then, and model is it. REQUIRES: model is as Begin,
  // Update or Exchange left it; partner != self.
  Outcome Exchange(int32_t partner, std::span<void* const> model);
  // Likewise of what both have pushed last, and `model` is left alone: what it has become since
  // is added to the mean by the next Update.
  Outcome Exchange(int32_t partner);
  // Another rank has averaged with this one since it wrote its model last.
  bool IsMerged() { return !exchange_.Settled(self_).IsIn(self_, base_); }

  // Any rank, at any time, alone: a copy of what `member` has now. False: it has changed while it
  // was copied, or has not begun.
  bool Peek(int32_t member, std::span<void* const> to);

  // This rank trains no more in this epoch. Others may average with it until all have finished.
  // `number`: a FinishNumber.
  void Finish(uint64_t number);
  // Unless it has taken the mean it may still train on instead. False: it may not, for all had
  // finished, and others may have taken it.
  bool LeaveBarrier();
  // Members that live and have not finished. When there are none, the epoch is over, and Mean is
  // the same on all ranks.
  std::vector<int32_t> Unfinished();
  // The mean of all that have finished, and of those that live, in rank order; OwnModel instead if
  // the member with the lowest number is in settle().
  void Mean(std::span<void* const> model);
  // At any time, alone: the mean of the models that members have published last, without those of
  // dead members and of those that change while they are read. False: there is none.
  bool SeenMean(std::span<void* const> model);
  // The mean of models laid out as buffers; and one such model, as the trainer lays it out.
  void MeanOf(std::span<const std::byte* const> all, std::span<void* const> model) const;
  void Take(const std::byte* from, std::span<void* const> model) const;
  // This rank's own model, with the changes by others.
  void OwnModel(std::span<void* const> model);
  using Taking = void (Gossip::*)(std::span<void* const> model);
  // One of them, when `model` has progress that was not pushed: that is added to it.
  void TakeWithProgress(std::span<void* const> model, Taking take);
  // To a model laid out as a buffer, and to `model`.
  void AddProgress(std::span<void* const> model, std::byte* taken);
  // It has taken one of them. Once no living member is Unmet it may go on with `model` as a new
  // epoch. Returns the lowest FinishNumber of the members in the mean: no member that lives changes
  // its own until all have met.
  uint64_t Meet();
  std::vector<int32_t> Unmet();
  void GoOn(std::span<const void* const> model);

  // `member` is dead. Unless it had finished, its model is out of the mean.
  void OnLoss(int32_t member) { lost_[static_cast<size_t>(member)] = true; }

  // This rank will touch no block any more. Then nothing but HaveAllLeft may be called, which says
  // whether its own block can be given back.
  void Leave();
  bool HasLeft(int32_t member);
  bool HaveAllLeft();

  const Counters& counters() const { return counters_; }
  // Of its codec; zeros without one.
  QuantizedCounters quantized() const {
    return quantized_ ? quantized_->counters() : QuantizedCounters{};
  }
  // How far from the mean the results of the exchange that this rank has begun last may be.
  double error() const { return quantized_ ? quantized_->error() : 0; }

 private:
  friend class FarAccess;  // the same model, as ranks of other hosts change it

  // Free buffers that an exchange needs: when it gives one of this rank's back, and otherwise.
  struct FreeNeeded {
    size_t given_back, otherwise;
  };
  Outcome Propose(int32_t partner, const FreeNeeded& needed, PairRecord* record);
  void WriteBoth(const PairRecord& record);
  void WriteMean(const PairRecord& record, std::span<void* const> model);
  bool Commit(const PairRecord& record);
  std::vector<uint32_t> FreeBuffers();
  void Put(std::span<const void* const> model, uint32_t buffer);
  void Merge(std::span<void* const> model, const std::byte* current, std::byte* to);
  bool CountLeaving();
  bool Publish(const ModelWord& before, uint32_t buffer);
  MemberWord StateOf(int32_t i);
  void Say(MemberState state);
  void MarkLostDead();
  std::vector<ModelWord> AllSettled();

  int32_t self_;
  const PairMemory* memory_;
  SharedAtomics* words_;
  const Kernels* kernels_;
  const End end_;
  PairExchange exchange_;
  uint64_t epoch_ = 0, number_ = 0, fewest_ = 0;
  uint32_t base_ = 0;  // the buffer with what `model` was when it was written last
  std::vector<bool> lost_;
  std::unique_ptr<QuantizedPair> quantized_;  // null: no codec
  std::vector<std::byte> scratch_;
  Counters counters_;
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_GOSSIP_H_
