// One rank's part in the versions of one bundle, on one host (core/PROTOCOL.md has the rules).
//
// Versions 1, 2, 3, ... are executed once each, in order. A rank publishes its contributions step
// by step and waits until its step is executed; while it waits it calls Advance, which is all the
// work there is: there is no thread, no message, and no rank whose help another needs. A rank may
// stop for ever, or be killed, between any two instructions.
//
// Sans-IO: time is an argument, the lock around it and the sleep between passes are the caller's
// (core/partial/rounds_port.h). One thread at a time.
#ifndef COVEY_CORE_PARTIAL_ROUNDS_H_
#define COVEY_CORE_PARTIAL_ROUNDS_H_

#include <functional>
#include <span>
#include <vector>

#include "core/partial/arrivals.h"
#include "core/partial/merge.h"
#include "core/partial/shared_epoch_end.h"
#include "core/partial/slot.h"
#include "core/partial/snapshots.h"
#include "core/partial/tiles.h"
#include "core/partial/versions.h"

namespace covey {

class Rounds final : public Versions {
 public:
  struct Options {
    int32_t self = 0;  // index among the members
    AdmissionRule admission;
    Time max_wait = kNever;    // how long this rank waits for one version; then it fires without
    bool skips_ahead = false;  // always; else only after it was overdue
    bool average = false;
    Time overdue = kMillisecond;      // how long a claimed tile may take,
    Time snapshot_overdue = kSecond;  // and a snapshot
    const Kernels* kernels = nullptr;
  };
  struct Counters {
    uint64_t fired = 0;    // versions that this rank fired
    uint64_t expired = 0;  // those of them for which max_wait was over
    uint64_t tiles = 0;    // that it did, those done by others meanwhile included
  };

  // `memory` is mapped: all members have agreed on shape, layout and options before (partial-W1).
  // Both outlive the rounds.
  Rounds(const Options& options, const RoundMemory* memory, SharedAtomics* words);

  std::byte* open() const override { return slot_.open(); }
  uint64_t Publish(std::span<const double> hypers) override;
  uint64_t Skip() override;
  uint64_t step() const override { return step_; }
  uint64_t next_step() const override;
  // From the next Advance on.
  void set_max_wait(Time max_wait) override { max_wait_ = max_wait; }
  void set_grace(Time grace) override { arrivals_.set_grace(grace); }
  void set_step(Time step) override { arrivals_.set_patience(step); }
  void EndWith(uint64_t version) override { last_ = version; }
  uint64_t executed() override;
  Time ended() override;

  // One pass of the work of a waiting member: fires the next version if it may, collects, does one
  // tile. Returns when to come again at the latest, without a wake-up: *moved: at once.
  Time Advance(Time now, bool* moved);

  // Gradients: where versions will be read to. Read costs less then, because some of it is done
  // while the version is made. That memory belongs to the rounds from Publish, or the first Advance
  // after a Read, until the Read of the next version, or Forget.
  void RegisterOutput(std::span<void* const> to) { eager_.Aim(to); }
  void Forget() { eager_.Forget(); }
  // Gradients, of a rank that will publish nothing more: its contribution that no version has,
  // nor will have; null: nothing. It lies there until the rank has left.
  const std::byte* Retract() { return slot_.Retract(); }
  Found Read(uint64_t version, std::span<void* const> to, RoundRecord* record) override;
  // Gradients: as Read, but the spans stay where they are, from *result on, and as they are until
  // the next Hold, or Leave. Nothing of it is copied early unless expected.
  Found Hold(uint64_t version, const std::byte** result) const {
    return log_.Hold(self_, version, result);
  }
  void Release() const { log_.Release(self_); }
  // The same for a snapshot of `version`, which it has taken: it had fallen out of the log.
  void OnSnapshot(uint64_t version);

  // Models: this rank's own merges with `version`, which it takes as it is if others have gone on
  // with that and it was missing (GoOnWithout), or, when that is gone or a version of all has
  // come after its step, with the newest: see merge.h. A late member that has missed a version of
  // all goes on from the newest: its next step is the one after that. To the spans of open() it
  // costs less: some of it was done while the version was under way. REQUIRES: version >= 1 has
  // ended, this rank has published.
  void Merge(uint64_t version, std::span<void* const> to, Merged* merged);

  // Models: open() has the model that this rank begins its work from, if it has merged with
  // nothing yet: see merge.h.
  void Begin();

  // After a Merge that has kept progress: publishes what it became, which lies in open(), as the
  // next step, so that versions have it while this rank goes on from it with the one after.
  uint64_t OfferAgain(std::span<const double> hypers);

  // Models, any member's, at any time, alone: copies to to[i] what it has published last. *step is
  // which (0: nothing yet). False: it has published another one meanwhile.
  bool Peek(int32_t member, std::span<void* const> to, uint64_t* step) const;

  void GoOn() override;
  SharedEpochEnd& epoch_end() override { return epoch_end_; }

  // For a member that has fallen out of the log, and one that is asked for its state: see
  // snapshots.h.
  Snapshots& snapshots() { return snapshots_; }
  bool IsAsked(uint64_t applied, Time now) override {
    return snapshots_.IsAsked(applied, epoch_end_.lost(), now);
  }
  void OnLoss(int32_t index) override { epoch_end_.OnLoss(index); }

  const Counters& counters() const { return counters_; }

 private:
  // Whether the version under way includes each member's slot.
  struct Collected {
    uint64_t version = 0;
    std::vector<Inclusion> inclusions;  // by member
  };

  uint64_t Arrive(const std::function<void(uint64_t)>& publish);
  void NoteApplied(uint64_t version);
  void NoteBase(const Merged& merged, std::span<void* const> to);
  bool Fire(StateWord* state, const Arrivals::Answer& answer);
  void Work(const StateWord& state, Time now, Time* until, bool* moved);
  void End(const StateWord& state, Time now);
  bool Close(const StateWord& state);
  bool WantsEager(const StateWord& state);
  std::vector<void*> OpenSpans() const;

  int32_t self_;
  Time max_wait_;
  const RoundMemory* memory_;
  SharedAtomics* words_;
  const Kernels* kernels_;
  Slot slot_;
  EagerCopy eager_;
  Arrivals arrivals_;
  ResultLog log_;
  Tiles tiles_;
  Snapshots snapshots_;
  SharedEpochEnd epoch_end_;
  bool skips_ahead_;
  uint64_t last_ = UINT64_MAX;  // no version is made after it
  uint64_t step_ = 0;
  bool copies_early_ = false;        // models: the last step is published, and not merged yet
  const std::byte* base_ = nullptr;  // models: the one its work began from; null: not known
  std::vector<std::byte> begun_;     // that, where it is no mean; or the one offered again
  bool has_offered_ = false;         // since its last merge
  uint64_t read_ = 0;                // the last version that was
  bool is_overdue_ = false;          // as of then
  Collected collected_;
  Counters counters_;
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_ROUNDS_H_
