// The begin of an exchange: this rank's publication before tick 1, and the verdict on the begins of
// all members once they are there (rules agree-N3 to agree-N5).
//
// Progress lock held; nothing here waits.
#ifndef COVEY_CORE_RUN_BEGIN_STAGE_H_
#define COVEY_CORE_RUN_BEGIN_STAGE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/channel.h"
#include "core/base/clock.h"
#include "core/run/schedule_cache.h"
#include "core/run/store_tuner.h"
#include "core/transport/transport.h"

namespace covey {

class CodecSteps;
class CommunicatorPath;
class DeviceStaging;
struct Exchange;

class BeginStage {
 public:
  struct Options {
    const Kernels* kernels = nullptr;
    Clock* clock = nullptr;
    uint64_t cache_bytes = 0;  // of the last-level cache
    // A longer input in the arena is not staged at its begin: it is likely reduced where it lies.
    // For an allgather over hosts: the bytes of all members.
    uint64_t unstaged_above = 0;
    // Where the tensors of a sum of up to unstaged_above lie decides its schedule, too.
    bool places_small = true;
    // Whether the begin of a longer sum stages as many segments as go together (run-X5): no
    // schedule but allreduce/staged makes use of more than the first.
    bool stages_batches = true;
    SchedulePlanner planner;
  };

  // All outlive this.
  BeginStage(Options options, Transport* transport, CodecSteps* codec_steps, DeviceStaging* staging,
             CommunicatorPath* communicators)
      : options_(options),
        transport_(transport),
        codec_steps_(codec_steps),
        staging_(staging),
        communicators_(communicators),
        schedules_(options.planner) {}

  // The begin header, the placement and the first segments: all that goes before tick 1.
  void Publish(Exchange* exchange);
  // Whether a sum that is done would publish the same again, wherever its tensors lie.
  bool StagesAlike(const Exchange& exchange) const;
  // The same as Publish for such a sum. REQUIRES: it was the channel's last exchange.
  void PublishAgain(Exchange* exchange);
  // All have begun. Compares the headers, and the neighbors. Every member reads the same and judges
  // alike. False: they differ, or one is void.
  bool Agree(Exchange* exchange);
  // Now that everything is known that a schedule may depend on.
  void ChooseSchedule(Exchange* exchange);

  // Whether this rank decides how what the group reduces is staged, see core/run/store_tuner.h;
  // then, before its steps run and after its end, how long it took.
  void Measure(Exchange* exchange);
  void Learn(const Exchange& exchange);

 private:
  bool IsSmallSum(const Exchange& exchange) const;
  bool IsUnstaged(const Exchange& exchange, size_t index) const;
  bool StagesInput(const Exchange& exchange) const;
  uint32_t StagedSegments(const Exchange& exchange) const;
  void Stage(const Exchange& exchange, uint32_t segments);
  bool LearnsStores(const Exchange& exchange) const;
  bool KnowsSchedule(const Exchange& exchange) const;
  std::optional<uint32_t> TraitsOfSum(const Exchange& exchange) const;
  static Cell* WriteHeader(const Exchange& exchange);
  void PushHeader(const Exchange& exchange);
  void PushBegin(Exchange* exchange);
  uint64_t LongestStaged(const Exchange& exchange) const;
  std::vector<Rank> ReadersOf(const Exchange& exchange) const;

  Options options_;
  Transport* transport_;
  CodecSteps* codec_steps_;
  DeviceStaging* staging_;
  CommunicatorPath* communicators_;
  ScheduleCache schedules_;
  StoreTuner stores_;
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_BEGIN_STAGE_H_
