// The rounds of one part of a training: performs the exchanges that a Trainer asks for there
// (core/train/round_part.h) by a RoundsPort.
//
// The gradients of a version are read where they lie in memory that all ranks of a host share. No
// other process sees writes there, but they are slow (core/base/copy_on_write.h): a rank that makes
// them version after version gets copies from then on, as do ranks that share no memory.
//
// One thread at a time; it waits inside of Perform.
#ifndef COVEY_CORE_ENGINE_TRAINER_ROUNDS_H_
#define COVEY_CORE_ENGINE_TRAINER_ROUNDS_H_

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "core/base/log.h"
#include "core/engine/trainer_counts.h"
#include "core/partial/rounds_port.h"
#include "core/train/outer_model.h"
#include "core/train/trainer.h"

namespace covey {

class TrainerRounds {
 public:
  struct Options {
    RoundsPort* port = nullptr;         // outlives this, or is left by `leave`: null from then on
    std::byte* copies = nullptr;        // room for a version that is copied: of the layout's length
    std::byte* model = nullptr;         // deltas: where the adapter's model lies
    std::unique_ptr<OuterModel> outer;  // deltas; null: gradients, or models
    std::function<void()> leave;        // this rank uses the port no more; again: nothing
    Log* log = nullptr;                 // null: tells nothing
    uint64_t last = 0;                  // no version follows it; 0: any number do
    int64_t local_steps = 1;            // of a rank between two of its versions
    // A block of this rank's region (Transport::kNoOffset: there is no room), and back.
    std::function<uint64_t(size_t)> alloc_block;
    std::function<void(uint64_t)> free_block;
  };

  // The spans of the port are the pieces of the trainer's layout.
  explicit TrainerRounds(Options options);

  // This rank is awaited no more. Nothing else may be called afterwards.
  void Leave() {
    options_.leave();
    options_.port = nullptr;
    block_bytes_ = 0;
  }

  bool has_models() const { return options_.port->has_models(); }
  // The version that this rank's last contribution was for; 0: none yet.
  uint64_t published() const { return published_; }
  bool waited_for_all() const { return options_.port->WaitsForAll(published_); }
  // Models: that of a member as it has published it last, to where parameters lie.
  Status Peek(int32_t member, std::span<std::byte> model, RoundsPort::Seen* seen) const;
  // Models: copies the one that this rank has published last; *step: as which, 0 if there is none.
  // To be called before Leave, by any thread.
  std::function<Status(std::span<std::byte> model, uint64_t* step)> Published() const;
  // Models: whether a version of all has come after this step, of any member.
  bool HasSuperseded(uint64_t step) const { return options_.port->HasSuperseded(step); }
  // Where the next contribution is to lie, as the layout says; models: and what it becomes lies.
  std::byte* open() const { return options_.port->open(); }
  // The version read last: its gradients, and the hyper-parameters of its leader.
  std::byte* gradients() const { return gradients_; }
  const std::vector<double>& hypers() const { return hypers_; }
  // The state in the snapshot that was taken last.
  std::span<const std::byte> image() const {
    return std::span<const std::byte>(image_).subspan(HeadBytes());
  }
  OuterModel* outer() const { return options_.outer.get(); }
  // How long a step of this rank's own takes (0: not known), and what it is taken to be at first.
  Time step_time() const { return options_.port->step_time() / options_.local_steps; }
  void Assume(Time step) { options_.port->Assume(step * options_.local_steps); }
  TrainerCounts counts() const;

  // Performs exchange.stage, and waits until then. `fitness`: of what lies in open(). False: the
  // deadline is over, and it goes on when called again with the same exchange.
  bool Perform(const Trainer::Exchange& exchange, const Status& fitness,
               std::span<const double> hypers, Time deadline, Status* status, StageResult* result);
  // Gives this rank's state at version `applied`.
  Status Give(uint64_t applied, std::span<const std::span<const std::byte>> parts);

 private:
  // The bytes of a snapshot before the state: `counted_`, `missing_` and `steps_` of the rank that
  // gave it.
  size_t HeadBytes() const;
  Status Wait(const Trainer::Exchange& exchange, Time deadline, RoundsPort::Event* event);
  Status PerformHere(const Trainer::Exchange& exchange, const Status& fitness,
                     std::span<const double> hypers, StageResult* result);
  Status GoOn(const std::string& missing);
  Status HandOver(StageResult* result);
  bool IsNeeded(const RoundRecord& record) const;
  Status Merge(uint64_t version, StageResult* result);
  Status Read(const Trainer::Exchange& exchange, StageResult* result);
  Status ReadInPlace(uint64_t version);
  bool Seek(uint64_t applied, Time deadline, Status* status, StageResult* result);
  bool IsAsked(uint64_t applied);
  void TellOfSnapshot(uint64_t applied, const Offer& offer);
  void UseCopies();
  void Note(uint64_t version, const RoundRecord& record);
  std::vector<void*> CopySpans() const;

  Options options_;
  size_t block_bytes_;  // of this rank's region
  bool is_in_place_ = true;
  size_t written_ = 0;  // versions running that lay in what this rank had written much of
  std::set<const std::byte*> held_;  // where versions have been read in place
  std::byte* gradients_ = nullptr;
  std::vector<double> hypers_;
  std::vector<std::byte> image_;
  std::vector<uint64_t> missing_;  // by member, as of the last version read
  std::vector<bool> seen_;         // by member: it has been in a version
  std::vector<uint64_t> counted_;  // by member: the last of its steps that is in a version
  int64_t steps_ = 0;              // deltas: the most that a member has done, by the versions read
  TrainerCounts counts_;
  uint64_t published_ = 0;
  bool is_left_ = false;  // others have ended finish() without this rank
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_ROUNDS_H_
