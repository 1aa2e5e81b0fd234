#include "core/plan/machine.h"

#include <algorithm>

namespace covey {
namespace {

std::string Number(uint64_t value) { return std::to_string(value); }
std::string RankText(int32_t rank) { return "rank " + std::to_string(rank); }

// All members learn of a begin.
bool Reaches(const Schedule& schedule, int32_t from, int32_t to) {
  const std::vector<int16_t>& reach = schedule.reach;
  return from == to || reach.empty() || std::find(reach.begin(), reach.end(), to) != reach.end();
}

}  // namespace

Machine::Machine(const Problem& problem, std::span<const Schedule> schedules, Options options)
    : problem_(problem),
      schedules_(schedules),
      options_(options),
      widening_(SizeOf(AccumulatorOf(problem.dtype)) / SizeOf(problem.dtype)) {
  const int32_t n = problem.size;
  for (int32_t rank = 0; rank < n; ++rank) {
    Member& m = members_.emplace_back();
    m.epochs.assign(static_cast<size_t>(n), 0);
    m.epochs[static_cast<size_t>(rank)] = 1;
    const Access user{rank, 1};  // a rank that knows of the begin may use the user's input
    user_memory_.emplace_back(InputBytes(problem, rank), n, Content{symbols_.Input(rank), 0, 1},
                              user);
    m.input = m.output = &user_memory_.back();
    if (!options.in_place) {
      user_memory_.emplace_back(OutputBytes(problem, rank), n, Content{}, user);
      m.output = &user_memory_.back();
    }
    for (size_t slot = 0; slot < problem.depth; ++slot)
      m.slots.emplace_back(problem.slot_bytes, n, Content{}, Access{});
  }
}

std::string Machine::Where(int32_t rank) const {
  return RankText(rank) + " step " + Number(Of(rank).cursor) + " (" + ToString(StepOf(rank)) + ")";
}

Status Machine::Run() {
  const int32_t n = problem_.size;
  for (int32_t r = 0; r < n; ++r)
    if (const std::string wrong = Begin(r); !wrong.empty())
      return Status::Internal(RankText(r) + " at its begin: " + wrong);
  for (int32_t r = 0; options_.begins_awaited && r < n; ++r)
    for (int32_t j = 0; j < n; ++j) Learn(r, j, 1);
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t r = 0; r < n; ++r) {
      Member& m = Of(r);
      const std::vector<Step>& steps = schedules_[static_cast<size_t>(r)].steps;
      for (; m.cursor < steps.size(); ++m.cursor, moved = true) {
        const Step& step = steps[m.cursor];
        if (step.kind == StepKind::kWait && !Await(r, step)) break;
        if (const std::string wrong = Perform(r, step); !wrong.empty())
          return Status::Internal(Where(r) + ": " + wrong);
      }
      if (m.ended || m.cursor < steps.size()) continue;
      m.ended = moved = true;
      if (const std::string wrong = End(r); !wrong.empty())
        return Status::Internal(RankText(r) + " at its end: " + wrong);
    }
  }
  RETURN_IF_ERROR(Stuck());
  for (int32_t r = 0; r < n; ++r)
    if (const std::string wrong = BeginNext(r); !wrong.empty())
      return Status::Internal(RankText(r) + " at its end: " + wrong);
  return CheckQuiet();
}

// The executor's work before the first step: the first segments, then tick 1.
std::string Machine::Begin(int32_t me) {
  if (!schedules_[0].reads_begin) {
    // Nothing is staged, or nobody may read it.
  } else if (problem_.form.Codes()) {
    const Buffer slot{Place::kLanding, static_cast<int16_t>(me), 0, 0};
    const uint64_t first = std::min(InputBytes(problem_, me), SegmentBytes(problem_));
    if (std::string wrong = Encode(me, slot, 0, first); !wrong.empty()) return wrong;
  } else if (schedules_[0].reads_begin && !IsUnstaged(problem_, me) &&
             Gives(problem_.kind, problem_.root == me)) {
    const uint64_t length = InputBytes(problem_, me);
    for (uint32_t t = 0; t < problem_.staged_segments; ++t) {
      const uint64_t begin = t * problem_.slot_bytes;
      const uint64_t bytes = std::min(length - begin, problem_.slot_bytes);
      HeldBytes held;
      Of(me).input->Read(begin, bytes, me, Of(me).epochs, &held);
      Of(me).slots[t].Write(0, bytes, me, Of(me).epochs, held);
    }
  }
  for (const Step& push : schedules_[static_cast<size_t>(me)].begin_pushes)
    if (std::string wrong = Push(me, push); !wrong.empty()) return wrong;
  GiveSignal(me, 1, true);
  return {};
}

std::string Machine::End(int32_t me) {
  const uint32_t last = Of(me).signals.back().tick;
  const uint32_t ticks = schedules_[static_cast<size_t>(me)].ticks;
  if (last == ticks) return {};
  return "its last tick is " + Number(last) + " of " + Number(ticks) + " (S5)";
}

// A rank that has ended begins the next exchange, knowing what it knew at its end.
std::string Machine::BeginNext(int32_t me) {
  Member& m = Of(me);
  const HeldBytes garbage = {{0, problem_.slot_bytes, {}}};
  uint32_t slot = schedules_[static_cast<size_t>(me)].slots;
  const uint32_t end = slot + (problem_.mirrored ? 1 : SegmentsOfBatch(problem_.depth));
  for (; slot < end; ++slot) {
    Region& own = m.slots[slot % problem_.depth];
    Access user = own.Write(0, problem_.slot_bytes, me, m.epochs, garbage);
    for (int32_t j = 0; problem_.mirrored && user.rank < 0 && j < problem_.size; ++j)
      if (ReadsMirror(problem_, j, me))
        user = MirrorOf(j, me, slot)->Write(0, problem_.slot_bytes, me, m.epochs, garbage);
    if (user.rank >= 0)
      return "a first segment of the next exchange overwrites landing[" + std::to_string(me) +
             "]." + Number(slot) + ", which " + RankText(user.rank) + " may still use (S3)";
  }
  return {};
}

bool Machine::Learn(int32_t me, int32_t peer, uint32_t tick) {
  const std::vector<Signal>& signals = Of(peer).signals;
  const bool far = ReadsMirror(problem_, me, peer);
  const auto first = std::find_if(signals.begin(), signals.end(), [&](const Signal& s) {
    return s.tick >= tick &&
           (s.tick == 1 ||
            (Reaches(schedules_[static_cast<size_t>(peer)], peer, me) && (s.leaves_host || !far)));
  });
  if (first == signals.end()) return false;
  Epochs& epochs = Of(me).epochs;
  for (size_t j = 0; j < epochs.size(); ++j) epochs[j] = std::max(epochs[j], first->epochs[j]);
  puts_.OnLearnt(me, peer, static_cast<size_t>(first - signals.begin()), epochs, Of(peer).input);
  return true;
}

bool Machine::Await(int32_t me, const Step& step) {
  if (step.peer != kEveryRank) return Learn(me, step.peer, step.tick);
  for (int32_t j = 0; j < problem_.size; ++j)
    if (!Learn(me, j, step.tick)) return false;
  return true;
}

void Machine::GiveSignal(int32_t me, uint32_t tick, bool leaves_host) {
  Member& m = Of(me);
  m.signals.push_back({tick, leaves_host, m.epochs});
  ++m.epochs[static_cast<size_t>(me)];
}

Status Machine::Stuck() const {
  for (int32_t r = 0; r < problem_.size; ++r) {
    if (Of(r).ended) continue;
    const Step& wait = StepOf(r);
    for (int32_t j = 0; j < problem_.size; ++j) {
      const bool awaited = wait.peer == kEveryRank || wait.peer == j;
      if (!awaited || Of(j).signals.back().tick >= wait.tick) continue;
      const std::string state = Of(j).ended ? "has ended" : "waits itself: " + Where(j);
      return Status::Internal(Where(r) + ": never satisfied, " + RankText(j) + " " + state);
    }
  }
  return Status::Ok();
}

// plan-S4, once all have ended.
Status Machine::CheckQuiet() const {
  for (int32_t r = 0; r < problem_.size; ++r) {
    for (int32_t j = 0; j < problem_.size; ++j) {
      const Member& m = Of(r);
      const uint32_t touched = std::max(m.input->LastTouch(j), m.output->LastTouch(j));
      if (j != r && touched > m.epochs[static_cast<size_t>(j)])
        return Status::Internal(RankText(r) + " at its end: " + RankText(j) +
                                " may still use its memory (S4)");
    }
  }
  return Status::Ok();
}

// A landing slot of `owner` as `reader` sees it, where it is not its own.
Region* Machine::MirrorOf(int32_t reader, int32_t owner, uint32_t slot) {
  const auto [mirror, _] = Of(reader).mirrors.try_emplace(
      {owner, slot % problem_.depth}, problem_.slot_bytes, problem_.size, Content{}, Access{});
  return &mirror->second;
}

std::string Machine::Find(int32_t me, const Buffer& b, uint64_t length, Region** region) {
  const uint32_t slots = schedules_[0].slots;
  if (b.index < 0 || b.index >= problem_.size)
    return "there is no rank " + std::to_string(b.index) + " among " + Number(members_.size());
  if (b.place == Place::kLanding && b.slot >= slots)
    return ToString(b) + " is beyond the " + Number(slots) + " landing slots of the schedule (S5)";
  Member& m = Of(b.index);
  const bool mirrored = ReadsMirror(problem_, me, b.index);
  if (problem_.mirrored && b.index != me && b.place != Place::kLanding)
    return "uses memory of a rank that shares none";
  *region = b.place == Place::kInput    ? m.input
            : b.place == Place::kOutput ? m.output
            : mirrored                  ? MirrorOf(me, b.index, b.slot)
                                        : &m.slots[b.slot % problem_.depth];
  if ((*region)->Holds(b.offset, length)) return {};
  return Number(length) + " bytes at " + ToString(b) + " reach beyond its " +
         Number((*region)->length_bytes());
}

std::string Machine::Load(int32_t me, const Buffer& b, uint64_t length, HeldBytes* held) {
  Region* region = nullptr;
  if (std::string wrong = Find(me, b, length, &region); !wrong.empty()) return wrong;
  const Access writer = region->Read(b.offset, length, me, Of(me).epochs, held);
  if (writer.rank >= 0)
    return "reads " + ToString(b) + " while " + RankText(writer.rank) + " may still write it (S2)";
  for (const Held& h : *held)
    if (h.content.symbol == kNothing)
      return "reads " + ToString(b) + ", of which byte " + Number(h.at) + " is not " +
             (ReadsMirror(problem_, me, b.index) ? "pushed" : "written") + " by then";
  return {};
}

std::string Machine::Store(int32_t me, const Buffer& b, uint64_t length, const HeldBytes& held) {
  Region* region = nullptr;
  if (std::string wrong = Find(me, b, length, &region); !wrong.empty()) return wrong;
  if (problem_.mirrored && b.index != me) return "writes a mirror of " + RankText(b.index);
  const Epochs& epochs = Of(me).epochs;
  if (b.place == Place::kInput) return "writes an input";
  for (int32_t j = 0; b.place == Place::kOutput && j < problem_.size; ++j)
    if (epochs[static_cast<size_t>(j)] == 0)
      return "writes user memory before " + RankText(j) + " is known to have begun (N4)";
  const Access user = region->Write(b.offset, length, me, epochs, held);
  if (user.rank < 0) return {};
  return "overwrites " + ToString(b) + ", which " + RankText(user.rank) + " may still use (S3)";
}

}  // namespace covey
