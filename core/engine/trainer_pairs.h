// The pairs of one part of a training: performs the exchanges that a Trainer asks for there
// (core/train/pair_part.h) by a PairsPort.
//
// One thread at a time; it waits inside of Perform.
#ifndef COVEY_CORE_ENGINE_TRAINER_PAIRS_H_
#define COVEY_CORE_ENGINE_TRAINER_PAIRS_H_

#include <functional>
#include <vector>

#include "core/base/kernels.h"
#include "core/base/log.h"
#include "core/engine/trainer_counts.h"
#include "core/gossip/pairs_port.h"
#include "core/train/layout.h"
#include "core/train/trainer.h"

namespace covey {

class TrainerPairs {
 public:
  struct Options {
    PairsPort* port = nullptr;  // outlives this, or is left by `leave`; its spans are the layout's
    const TrainerLayout* layout = nullptr;
    std::byte* model = nullptr;  // where the adapter's model lies
    const Kernels* kernels = nullptr;
    std::function<void()> leave;  // this rank uses the port no more; again: nothing
    Log* log = nullptr;           // null: tells nothing
  };

  explicit TrainerPairs(Options options);

  // Nothing else may be called afterwards.
  void Leave() {
    options_.leave();
    block_bytes_ = 0;
  }
  TrainerCounts counts() const;
  // As PairsPort::Peek; laid out as the adapter's model. Null: its state alone.
  PairsPort::Seen Peek(int32_t member, std::byte* to);

  // Performs exchange.stage, and waits until then. False: the deadline is over, and it goes on when
  // called again with the same exchange.
  bool Perform(const Trainer::Exchange& exchange, Time deadline, Status* status,
               StageResult* result);

 private:
  void TakeBack();
  void ShowSeenMean(const std::string& missing);
  void Combine(const std::byte* model, const std::byte* with, double scale, std::byte* to) const;

  Options options_;
  size_t block_bytes_;        // of this rank's region
  std::vector<void*> spans_;  // of the model
  // The model less the one that is shown instead, until this rank goes on from its own; empty: that
  // is the model.
  std::vector<std::byte> hidden_;
  TrainerCounts counts_;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_PAIRS_H_
