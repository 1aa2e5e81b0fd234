#include "tests/sim/simulator/simulated_rounds.h"

#include "core/api/admission_rule.h"
#include "core/train/outer_model.h"
#include "tests/sim/simulator/split_kernels.h"

namespace covey {
namespace {

constexpr int32_t kLog = 2;  // where the method leaves it open

}  // namespace

RoundsPort::Bundle SimulatedBundle(const MethodPlan& plan, const Group& group, size_t count) {
  const MethodRounds& rounds = plan.rounds;
  const RoundSpan span{DType::kF64, count};
  return {.name = "simulated",
          .shape = {.size = group.size(),
                    .log = rounds.log == kAuto ? kLog : static_cast<int32_t>(rounds.log),
                    .hypers = plan.payload == Payload::kGradients ? 0 : 1,
                    .models = {.group_size = static_cast<int32_t>(rounds.group_size),
                               .sync_every = static_cast<uint64_t>(rounds.sync_every),
                               .ending = static_cast<uint64_t>(rounds.ending),
                               .hosts = group.hosts,
                               .cross_every = rounds.cross_every,
                               .has_deltas = plan.payload == Payload::kDelta}},
          .layout = RoundLayout({&span, 1}, 64),
          .options = {.self = ToInt(group.my_index),
                      .admission = RuleOf(rounds),
                      .max_wait = rounds.max_wait.time,
                      .skips_ahead = rounds.skips_ahead,
                      .average = plan.payload == Payload::kModel,
                      .overdue = 50 * kMicrosecond,
                      .snapshot_overdue = 200 * kMicrosecond,
                      .kernels = &SplitKernels()}};
}

void OpenRounds(const MethodChoice& choice, const MethodView& view, int64_t from, int64_t end,
                const SimulatedMemory& memory, SimulatedRounds* part) {
  const bool has_deltas = part->payload == Payload::kDelta;
  Transport* transport = memory.transport;
  part->last = RoundPart::LastVersion(choice, view, from, end);
  part->rounds = std::make_unique<TrainerRounds>(TrainerRounds::Options{
      .port = part->port.get(),
      .copies = memory.copies,
      .model = memory.model,
      .outer = has_deltas ? std::make_unique<OuterModel>(choice.At(from), memory.layout) : nullptr,
      .leave = [part] { part->Close(); },
      .last = part->last,
      .alloc_block = [transport](size_t bytes) { return transport->AllocShared(bytes); },
      .free_block = [transport](uint64_t offset) { transport->FreeShared(offset); }});
}

}  // namespace covey
