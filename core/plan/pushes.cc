#include "core/plan/pushes.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace covey {
namespace {

// Bytes [begin, end) of a landing slot, counted from the exchange's first slot.
struct Range {
  uint32_t slot;
  uint64_t begin, end;
  auto operator<=>(const Range&) const = default;
};

// A range of the own landing slots that the step at `position` writes; -1: the begin does.
struct Write {
  int64_t position;
  Range range;
};

// One rank's writes to its own landing slots, and its ticks.
struct History {
  std::map<uint32_t, std::vector<Write>> writes;      // by slot, oldest first
  std::vector<std::pair<uint32_t, int64_t>> signals;  // tick, position; ascending
};

// Bytes of landing slots a step writes or reads: partial sums of half precision are wider than the
// message.
uint64_t LandedBytes(const Problem& p, const Step& step, bool partial) {
  return step.length_bytes * (partial ? SizeOf(AccumulatorOf(p.dtype)) / SizeOf(p.dtype) : 1);
}
uint64_t BytesWritten(const Problem& p, const Step& step) {
  if (step.kind == StepKind::kEncode || step.kind == StepKind::kEncodeSum)
    return TravellingBytes(p.form, step.length_bytes);
  return LandedBytes(p, step,
                     step.kind == StepKind::kBeginSum || step.kind == StepKind::kAddToSum ||
                         step.kind == StepKind::kCombineSums || step.kind == StepKind::kSumHost);
}
uint64_t BytesRead(const Problem& p, const Step& step) {
  if (step.kind == StepKind::kReduceCoded || step.kind == StepKind::kMixCoded ||
      step.kind == StepKind::kDecodeSum || step.kind == StepKind::kAddDecoded)
    return TravellingBytes(p.form, step.length_bytes);
  return LandedBytes(p, step,
                     step.kind == StepKind::kAddToSum || step.kind == StepKind::kCombineSums ||
                         step.kind == StepKind::kFinishSum);
}

History HistoryOf(const Problem& p, int32_t rank, const Schedule& schedule) {
  History history;
  const uint64_t first = TravellingBytes(p.form, std::min(InputBytes(p, rank), SegmentBytes(p)));
  if (first > 0 && !IsUnstaged(p, rank)) history.writes[0].push_back({-1, {0, 0, first}});
  history.signals.emplace_back(1, -1);
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    const auto position = static_cast<int64_t>(i);
    if (step.kind == StepKind::kSignal) {
      history.signals.emplace_back(step.tick, position);
    } else if (step.kind != StepKind::kWait && step.kind != StepKind::kPush &&
               step.dst.place == Place::kLanding) {
      const Range range{step.dst.slot, step.dst.offset, step.dst.offset + BytesWritten(p, step)};
      history.writes[range.slot].push_back({position, range});
    }
  }
  return history;
}

// Pushes: position of the signal they must precede -> range -> peers.
using Pushes = std::map<int64_t, std::map<Range, std::vector<int16_t>>>;

// `peer` reads `range` having waited for `tick`.
void Trace(const History& mine, int16_t peer, Range range, uint32_t tick, Pushes* pushes) {
  const auto by_tick = [](const auto& signal, uint32_t wanted) { return signal.first < wanted; };
  const auto seen = std::lower_bound(mine.signals.begin(), mine.signals.end(), tick, by_tick);
  const auto written = mine.writes.find(range.slot);
  if (seen == mine.signals.end() || written == mine.writes.end())
    return;  // the verifier's business
  std::vector<Range> rest = {range};
  for (auto w = written->second.rbegin(); w != written->second.rend() && !rest.empty(); ++w) {
    if (w->position > seen->second) continue;
    const auto by_position = [](int64_t position, const auto& s) { return position < s.second; };
    const auto told = w->position < 0 ? mine.signals.begin()
                                      : std::upper_bound(mine.signals.begin(), mine.signals.end(),
                                                         w->position, by_position);
    std::vector<Range> uncovered;
    for (const Range& r : rest) {
      const Range common{r.slot, std::max(r.begin, w->range.begin), std::min(r.end, w->range.end)};
      if (common.begin >= common.end) {
        uncovered.push_back(r);
        continue;
      }
      std::vector<int16_t>& peers = (*pushes)[told->second][common];
      if (std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
      if (r.begin < common.begin) uncovered.push_back({r.slot, r.begin, common.begin});
      if (common.end < r.end) uncovered.push_back({r.slot, common.end, r.end});
    }
    rest = std::move(uncovered);
  }
}

void TraceReads(const Problem& p, const History& mine, int16_t peer, const Schedule& theirs,
                Pushes* pushes) {
  uint32_t waited = 1;
  for (const Step& step : theirs.steps) {
    if (step.kind == StepKind::kWait) {
      if (step.peer == kEveryRank || step.peer == p.me) waited = std::max(waited, step.tick);
      continue;
    }
    const bool reads =
        step.kind == StepKind::kCopy || step.kind == StepKind::kReduce ||
        step.kind == StepKind::kAddToSum || step.kind == StepKind::kFinishSum ||
        step.kind == StepKind::kCombineSums || step.kind == StepKind::kReduceCoded ||
        step.kind == StepKind::kDecodeSum || step.kind == StepKind::kAddDecoded ||
        ((step.kind == StepKind::kMix || step.kind == StepKind::kMixCoded) && Takes(p, peer, p.me));
    for (const Buffer& src : {step.src, step.also}) {
      if (!reads || src.place != Place::kLanding) continue;
      if (src.index != kEveryRank && src.index != p.me) continue;
      const Range range{src.slot, src.offset, src.offset + BytesRead(p, step)};
      Trace(mine, peer, range, waited, pushes);
    }
  }
}

void AppendPushes(const Problem& p, const std::map<Range, std::vector<int16_t>>& ranges,
                  std::vector<Step>* steps) {
  int64_t mirrors = 0;
  for (int32_t r = 0; r < p.size; ++r) mirrors += ReadsMirror(p, r, p.me) ? 1 : 0;
  for (const auto& [range, peers] : ranges) {
    const Step push{.kind = StepKind::kPush,
                    .src = {Place::kLanding, static_cast<int16_t>(p.me), range.slot, range.begin},
                    .length_bytes = range.end - range.begin};
    const bool everybody = static_cast<int64_t>(peers.size()) == mirrors;
    for (size_t i = 0; i < (everybody ? 1 : peers.size()); ++i) {
      steps->push_back(push);
      steps->back().peer = everybody ? kEveryRank : peers[i];
    }
  }
}

}  // namespace

Schedule WithPushes(const Problem& p, std::span<const Schedule> schedules) {
  const Schedule& own = schedules[static_cast<size_t>(p.me)];
  const History mine = HistoryOf(p, p.me, own);
  Pushes pushes;
  for (int32_t r = 0; r < p.size; ++r)
    if (ReadsMirror(p, r, p.me))
      TraceReads(p, mine, static_cast<int16_t>(r), schedules[static_cast<size_t>(r)], &pushes);
  Schedule result = own;
  result.steps.clear();
  if (const auto begin = pushes.find(-1); begin != pushes.end())
    AppendPushes(p, begin->second, &result.begin_pushes);
  for (size_t i = 0; i < own.steps.size(); ++i) {
    if (const auto due = pushes.find(static_cast<int64_t>(i)); due != pushes.end())
      AppendPushes(p, due->second, &result.steps);
    result.steps.push_back(own.steps[i]);
  }
  return result;
}

}  // namespace covey
