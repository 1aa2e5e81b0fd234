#include "core/plan/verify.h"

#include <algorithm>

#include "core/plan/pushes.h"

namespace covey {
namespace {

std::string RankText(int32_t rank) { return "rank " + std::to_string(rank); }

// Some bytes of an output as the operation defines them.
struct Expected {
  uint64_t begin;
  uint64_t length;
  int32_t source;   // the rank whose input it is; kEveryRank: the reduction of all
  uint64_t origin;  // the byte of the message
};

std::vector<Expected> ExpectedOutput(const Problem& p, int32_t me) {
  if (!Gets(p.kind, me == p.root)) return {};
  switch (TraitsOf(p.kind).output) {
    case OutputRule::kReduction:
    case OutputRule::kMix:
      return {{0, OutputBytes(p, me), kEveryRank, Scatters(p.kind) ? ShareBegin(p, me) : 0}};
    case OutputRule::kRootInput:
      return {{0, p.length_bytes, p.root, 0}};
    case OutputRule::kInputs:
    case OutputRule::kBlocks: {
      std::vector<Expected> parts;
      uint64_t begin = 0;
      for (int32_t j = 0; j < p.size; ++j) {
        const bool all = TraitsOf(p.kind).output == OutputRule::kInputs;
        const uint64_t length = all ? InputBytes(p, j) : BlockBytes(p, j, me);
        parts.push_back({begin, length, j, all ? 0 : BlockBegin(p, j, me)});
        begin += length;
      }
      return parts;
    }
    case OutputRule::kNone:
      return {};
  }
  return {};
}

// plan-S5, and that ticks rise.
Status CheckTicks(std::span<const Schedule> schedules) {
  for (size_t r = 0; r < schedules.size(); ++r) {
    const Schedule& s = schedules[r];
    const std::string who = RankText(static_cast<int32_t>(r));
    if (s.touches_peers != schedules[0].touches_peers)
      return Status::Internal(who + " and rank 0 differ in whether peers use their memory");
    if (s.ticks != schedules[0].ticks || s.slots != schedules[0].slots)
      return Status::Internal(who + " uses " + std::to_string(s.ticks) + " ticks and " +
                              std::to_string(s.slots) + " slots, rank 0 " +
                              std::to_string(schedules[0].ticks) + " and " +
                              std::to_string(schedules[0].slots) + " (S5)");
    uint32_t last = 1;
    for (size_t i = 0; i < s.steps.size(); ++i) {
      const Step& step = s.steps[i];
      const auto where = [&] {
        return who + " step " + std::to_string(i) + " (" + ToString(step) + "): ";
      };
      if (step.kind == StepKind::kSignal) {
        if (step.tick <= last) return Status::Internal(where() + "a tick that does not rise");
        last = step.tick;
      }
      const bool ticks = step.kind == StepKind::kSignal || step.kind == StepKind::kWait;
      if (ticks && step.tick > s.ticks)
        return Status::Internal(where() + "beyond the " + std::to_string(s.ticks) +
                                " ticks of the schedule (S5)");
      const bool somebody = step.peer == kEveryRank ||
                            (step.kind == StepKind::kSignal && step.peer == kOwnHost) ||
                            (step.peer >= 0 && size_t(step.peer) < schedules.size());
      if (!somebody) return Status::Internal(where() + "no such rank");
    }
  }
  return Status::Ok();
}

std::string CheckContributions(const std::vector<int32_t>& ranks, int32_t size,
                               Association association) {
  for (int32_t j = 0; j < size; ++j) {
    const auto count = std::count(ranks.begin(), ranks.end(), j);
    if (count == 0) return "lacks the contribution of " + RankText(j);
    if (count > 1)
      return "counts the contribution of " + RankText(j) + " " + std::to_string(count) + " times";
  }
  const bool in_order =
      association == Association::kByHost || std::is_sorted(ranks.begin(), ranks.end());
  return in_order ? "" : "is not combined in rank order";
}

class Judge {
 public:
  Judge(const Problem& problem, Association association, Machine* machine)
      : problem_(problem), association_(association), machine_(machine) {}

  Status Check(int32_t rank) {
    uint64_t covered = 0;
    for (const Expected& e : ExpectedOutput(problem_, rank)) {
      for (const Held& h : machine_->output(rank).Contents()) {
        const uint64_t begin = std::max(e.begin, h.at);
        const uint64_t end = std::min(e.begin + e.length, h.at + h.length);
        if (begin >= end) continue;
        covered += end - begin;
        const std::string wrong =
            Compare(rank, h.content.After(begin - h.at), e, e.origin + (begin - e.begin));
        if (!wrong.empty())
          return Status::Internal(RankText(rank) + " at its end: output bytes " +
                                  std::to_string(begin) + " to " + std::to_string(end) + ": " +
                                  wrong);
      }
    }
    if (covered == OutputBytes(problem_, rank)) return Status::Ok();
    return Status::Internal(RankText(rank) + ": what is expected does not cover its output");
  }

 private:
  // The sum of what this rank takes, one after the other (kernels-K1).
  std::string CompareMix(int32_t rank, Symbol is) {
    const bool coded = problem_.form.Codes();  // then of what is decoded, the own too
    std::vector<int32_t> from;
    for (int32_t j = 0; j < problem_.size; ++j)
      if (Takes(problem_, rank, j) || (coded && j == rank)) from.push_back(j);
    Symbols& symbols = machine_->symbols();
    const Symbol wanted = symbols.SumInTurn(from, coded);
    return is == wanted
               ? ""
               : "hold " + symbols.ToString(is) + " instead of " + symbols.ToString(wanted);
  }

  std::string Compare(int32_t rank, const Content& is, const Expected& e, uint64_t origin) {
    Symbols& symbols = machine_->symbols();
    const std::string what = symbols.ToString(is.symbol);
    if (is.symbol == kNothing) return "nobody wrote them";
    if (is.origin != origin || is.widening != 1)
      return "hold byte " + std::to_string(is.origin) + " of " + what + " instead of byte " +
             std::to_string(origin);
    if (e.source != kEveryRank) {
      const Symbol wanted = symbols.Input(e.source);
      return is.symbol == wanted ? "" : "hold " + what + " instead of " + symbols.ToString(wanted);
    }
    if (!symbols.IsFinished(is.symbol)) return "hold " + what + " instead of a result";
    if (Mixes(problem_.kind)) return CompareMix(rank, is.symbol);
    const std::string wrong =
        CheckContributions(symbols.RanksIn(is.symbol), problem_.size, association_);
    if (!wrong.empty()) return what + " " + wrong;
    if (association_ == Association::kInTurn &&
        is.symbol != symbols.SumInTurn(problem_.size, problem_.form.Codes()))
      return what + " is not combined one rank after the other (K1)";
    if (result_ == kNothing) result_ = is.symbol;
    return is.symbol == result_ ? "" : what + " is combined in two ways";
  }

  const Problem& problem_;
  Association association_;
  Machine* machine_;
  Symbol result_ = kNothing;
};

}  // namespace

std::vector<Schedule> BuildAll(const Algorithm& algorithm, Problem problem) {
  std::vector<Schedule> schedules;
  for (problem.me = 0; problem.me < problem.size; ++problem.me)
    schedules.push_back(BuildSchedule(algorithm, problem));
  if (!problem.mirrored) return schedules;
  std::vector<Schedule> pushing;
  for (problem.me = 0; problem.me < problem.size; ++problem.me)
    pushing.push_back(WithPushes(problem, schedules));
  return pushing;
}

Status VerifySchedules(const Problem& problem, std::span<const Schedule> schedules,
                       Association association, Machine::Options options) {
  RETURN_IF_ERROR(CheckTicks(schedules));
  Machine machine(problem, schedules, options);
  RETURN_IF_ERROR(machine.Run());
  Judge judge(problem, association, &machine);
  for (int32_t rank = 0; rank < problem.size; ++rank) RETURN_IF_ERROR(judge.Check(rank));
  return Status::Ok();
}

Status Verify(const Algorithm& algorithm, const Problem& problem) {
  const std::vector<Schedule> schedules = BuildAll(algorithm, problem);
  RETURN_IF_ERROR(VerifySchedules(problem, schedules, algorithm.association, {}));
  if (!HasTensors(problem.kind) || TraitsOf(problem.kind).rows != RowRule::kSame)
    return Status::Ok();  // outputs never are inputs
  return VerifySchedules(problem, schedules, algorithm.association, {.in_place = true});
}

}  // namespace covey
