#include "core/run/schedule_cache.h"

#include <utility>

#include "core/run/exchange.h"

namespace covey {
namespace {

// A bound for programs whose shapes never repeat.
constexpr size_t kMaxSchedules = 4096;

}  // namespace

size_t ScheduleCache::Hash::operator()(const Problem& p) const {
  size_t h = static_cast<size_t>(p.kind);
  for (uint64_t v :
       {uint64_t(p.size), uint64_t(p.me), uint64_t(p.root), uint64_t(p.all_arena),
        uint64_t(p.all_readable), uint64_t(p.dtype), p.length_bytes, p.slot_bytes,
        uint64_t(p.staged_segments), uint64_t(p.form.block_elems), uint64_t(p.form.elem_bits)})
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
  for (bool unstaged : p.unstaged) h = (h ^ uint64_t{unstaged}) * 0x9e3779b97f4a7c15u;
  for (int32_t host : p.hosts) h = (h ^ static_cast<uint64_t>(host)) * 0x9e3779b97f4a7c15u;
  for (uint64_t share : p.shares) h = (h ^ share) * 0x9e3779b97f4a7c15u;
  return h;
}

void ScheduleCache::Choose(Problem problem, Exchange* x) {
  // Sizes of what is gathered differ from one exchange to the next.
  const bool keeps = !Gathers(problem.kind);
  if (keeps) {
    const auto found = schedules_.find(problem);
    if (found != schedules_.end()) {
      x->schedule = found->second.get();
      return;
    }
  }
  auto built = std::make_unique<Schedule>(planner_.plan(*planner_.settings, problem));
  x->schedule = built.get();
  if (keeps && schedules_.size() < kMaxSchedules) {
    schedules_.emplace(std::move(problem), std::move(built));
  } else {
    x->own_schedule = std::move(built);
  }
}

}  // namespace covey
