// Performs the steps of a schedule that touch data: resolves what a Buffer names to memory and
// calls the kernels.
//
// No state of its own but scratch; called with the progress lock held.
#ifndef COVEY_CORE_RUN_DATA_STEPS_H_
#define COVEY_CORE_RUN_DATA_STEPS_H_

#include <vector>

#include "core/run/exchange.h"
#include "core/transport/peer_reader.h"
#include "core/transport/shared_regions.h"

namespace covey {

// kPush of landing slots: gives the step's bytes of the own to those that hold mirrors of them.
void PushStep(const Exchange& exchange, const Step& step, SharedRegions* regions);

class DataSteps {
 public:
  // All outlive this.
  DataSteps(const Kernels* kernels, SharedRegions* regions, PeerReader* reader)
      : kernels_(kernels), regions_(regions), reader_(reader) {}

  void Copy(const Exchange& exchange, const Step& step);           // kCopy
  void Put(const Exchange& exchange, const Step& step);            // kPush of the own input
  void Reduce(const Exchange& exchange, const Step& step);         // kReduce
  void ReduceFetched(const Exchange& exchange, const Step& step);  // kReduceFetched
  // As kReduce, of a sum that is staged whole and whose input and output are one piece each.
  void ReduceStaged(const Exchange& exchange);
  int Fetch(const Exchange& exchange, const Step& step);     // kFetch: 0 or an errno
  void Mix(const Exchange& exchange, const Step& step);      // kMix
  void Sum(const Exchange& exchange, const Step& step);      // k...Sum, kCombineSums
  void SumHost(const Exchange& exchange, const Step& step);  // kSumHost

 private:
  void ReduceInArena(const Exchange& exchange, const Step& step);
  static bool ReducesToItself(const Exchange& exchange);
  template <typename Fn>
  void ForEachPiece(const Exchange& exchange, const Buffer& buffer, size_t length_bytes,
                    Fn fn) const;

  const Kernels* kernels_;
  SharedRegions* regions_;
  PeerReader* reader_;
  std::vector<const std::byte*> sources_;  // scratch of reductions
  std::vector<double> weights_;            // theirs, of kMix
  std::vector<std::byte> partial_;         // of kMix
  std::vector<std::byte*> targets_;
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_DATA_STEPS_H_
