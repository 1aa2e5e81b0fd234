// The schedules of the problems met so far: a job has as many as it has distinct message shapes.
#ifndef COVEY_CORE_RUN_SCHEDULE_CACHE_H_
#define COVEY_CORE_RUN_SCHEDULE_CACHE_H_

#include <memory>
#include <unordered_map>

#include "core/plan/schedule.h"

namespace covey {

struct Exchange;
struct SelectorSettings;

// Builds the schedule of a problem: the selector bound to this job's settings.
struct SchedulePlanner {
  Schedule (*plan)(const SelectorSettings& settings, const Problem& problem) = nullptr;
  const SelectorSettings* settings = nullptr;  // outlives its user
};

class ScheduleCache {
 public:
  explicit ScheduleCache(SchedulePlanner planner) : planner_(planner) {}

  // Gives the exchange its schedule: one that is kept, or one of its own.
  void Choose(Problem problem, Exchange* exchange);

 private:
  struct Hash {
    size_t operator()(const Problem& problem) const;
  };

  SchedulePlanner planner_;
  std::unordered_map<Problem, std::unique_ptr<Schedule>, Hash> schedules_;
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_SCHEDULE_CACHE_H_
