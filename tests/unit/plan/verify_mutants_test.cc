// Goal: the verifier rejects schedules that are wrong, whatever is wrong with them.
// Method: every step of every rank's schedule of every algorithm is damaged in every way in turn.
// Most damage must always be found. Some is harmless in places (a wait that others imply, two steps
// that may change places); there it must be found somewhere in every schedule it applies to, and
// pinned examples say where and with which words.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "tests/unit/plan/problems.h"

namespace covey {
namespace {

using Steps = std::vector<Step>;

bool IsTick(const Step& s) { return s.kind == StepKind::kSignal || s.kind == StepKind::kWait; }
bool UsesSlot(const Buffer& b) { return b.place == Place::kLanding; }
bool ReadsSource(const Step& s) {
  return !IsTick(s) && s.kind != StepKind::kBeginSum && s.kind != StepKind::kReduceFetched &&
         s.kind != StepKind::kEncode;
}

struct Mutation {
  const char* name;
  // Damages steps[i]; false: does not apply there.
  std::function<bool(Steps* steps, size_t i)> apply;
  bool always_wrong;
};

const Mutation kMutations[] = {
    {"drop a signal",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kSignal) return false;
       s->erase(s->begin() + static_cast<long>(i));
       return true;
     },
     false},
    {"drop the last signal",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kSignal) return false;
       for (size_t later = i + 1; later < s->size(); ++later)
         if ((*s)[later].kind == StepKind::kSignal) return false;
       s->erase(s->begin() + static_cast<long>(i));
       return true;
     },
     true},
    {"drop a wait",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kWait) return false;
       s->erase(s->begin() + static_cast<long>(i));
       return true;
     },
     false},
    {"drop a step that moves bytes",
     [](Steps* s, size_t i) {
       if (IsTick((*s)[i])) return false;
       s->erase(s->begin() + static_cast<long>(i));
       return true;
     },
     true},
    {"wait for one tick less",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kWait) return false;
       --(*s)[i].tick;
       return true;
     },
     false},
    {"wait for a tick never given",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kWait) return false;
       (*s)[i].tick += 1000;
       return true;
     },
     true},
    {"wait for another rank",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kWait || (*s)[i].peer == kEveryRank) return false;
       (*s)[i].peer = static_cast<int16_t>((*s)[i].peer == 0 ? 1 : (*s)[i].peer - 1);
       return true;
     },
     false},
    {"read another slot",
     [](Steps* s, size_t i) {
       if (!ReadsSource((*s)[i]) || !UsesSlot((*s)[i].src)) return false;
       ++(*s)[i].src.slot;
       return true;
     },
     false},  // what a begin staged may be just what is read
    {"write another slot",
     [](Steps* s, size_t i) {
       if (IsTick((*s)[i]) || !UsesSlot((*s)[i].dst)) return false;
       ++(*s)[i].dst.slot;
       return true;
     },
     true},
    {"shift what is read",
     [](Steps* s, size_t i) {
       if (!ReadsSource((*s)[i])) return false;
       (*s)[i].src.offset += 64;
       return true;
     },
     true},
    {"shift what is encoded",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kEncode) return false;
       (*s)[i].input_offset -= 64;
       return true;
     },
     true},
    {"encode a sum as another part of the message",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kEncodeSum) return false;
       (*s)[i].input_offset += 64;
       return true;
     },
     true},
    {"decode instead of what came before",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kAddDecoded) return false;
       (*s)[i].kind = StepKind::kDecodeSum;
       return true;
     },
     true},
    {"add what is decoded twice",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kAddDecoded) return false;
       s->insert(s->begin() + static_cast<long>(i), (*s)[i]);
       return true;
     },
     true},
    {"encode a sum twice",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kEncodeSum) return false;
       s->insert(s->begin() + static_cast<long>(i), (*s)[i]);
       return true;
     },
     true},
    {"shift what is written",
     [](Steps* s, size_t i) {
       if (IsTick((*s)[i]) || (*s)[i].kind == StepKind::kPush) return false;
       (*s)[i].dst.offset += 64;
       return true;
     },
     true},
    {"one element less",
     [](Steps* s, size_t i) {
       if (IsTick((*s)[i])) return false;
       (*s)[i].length_bytes -= 4;
       return true;
     },
     true},
    {"one element more",
     [](Steps* s, size_t i) {
       if (IsTick((*s)[i])) return false;
       (*s)[i].length_bytes += 4;
       return true;
     },
     false},
    {"read from another rank",
     [](Steps* s, size_t i) {
       if (!ReadsSource((*s)[i]) || (*s)[i].src.index == kEveryRank) return false;
       (*s)[i].src.index = static_cast<int16_t>((*s)[i].src.index == 0 ? 1 : 0);
       return true;
     },
     false},  // another rank may have the same bytes
    {"combine in the wrong order",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kCombineSums) return false;
       std::swap((*s)[i].src, (*s)[i].also);
       return true;
     },
     true},
    {"combine with itself",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kCombineSums) return false;
       (*s)[i].also = (*s)[i].src;
       return true;
     },
     true},
    {"add twice",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kAddToSum) return false;
       Step again = (*s)[i];
       again.src = again.dst;
       s->insert(s->begin() + static_cast<long>(i) + 1, again);
       return true;
     },
     true},
    {"leave out what came before",
     [](Steps* s, size_t i) {
       if ((*s)[i].kind != StepKind::kAddToSum) return false;
       (*s)[i].kind = StepKind::kBeginSum;
       return true;
     },
     true},
    {"signal before the work",
     [](Steps* s, size_t i) {
       if (i == 0 || (*s)[i].kind != StepKind::kSignal || IsTick((*s)[i - 1])) return false;
       std::swap((*s)[i - 1], (*s)[i]);
       return true;
     },
     false},
    {"work before the wait",
     [](Steps* s, size_t i) {
       if (i == 0 || (*s)[i - 1].kind != StepKind::kWait || IsTick((*s)[i])) return false;
       std::swap((*s)[i - 1], (*s)[i]);
       return true;
     },
     false},
};

// How often the damage applies to the small problems of `algorithm`, and how often it is found.
struct Count {
  int applied = 0;
  int found = 0;
};

// In place too: what the network still reads of an input is overwritten there alone.
bool IsFound(const Problem& problem, const std::vector<Schedule>& bad, Association association) {
  if (!VerifySchedules(problem, bad, association, {}).ok()) return true;
  const bool may_be_in_place =
      HasTensors(problem.kind) && TraitsOf(problem.kind).rows == RowRule::kSame;
  return may_be_in_place && !VerifySchedules(problem, bad, association, {.in_place = true}).ok();
}

Count CountFound(const Algorithm& algorithm, const Mutation& mutation) {
  Count count;
  for (const Problem& problem : SmallProblems(algorithm)) {
    const std::vector<Schedule> good = BuildAll(algorithm, problem);
    for (size_t rank = 0; rank < good.size(); ++rank) {
      for (size_t i = 0; i < good[rank].steps.size(); ++i) {
        std::vector<Schedule> bad = good;
        if (!mutation.apply(&bad[rank].steps, i)) continue;
        ++count.applied;
        const bool is_found = IsFound(problem, bad, algorithm.association);
        count.found += is_found ? 1 : 0;
        EXPECT_TRUE(!mutation.always_wrong || is_found)
            << "rank " << rank << " of " << problem.size << " step " << i << ": "
            << ToString(good[rank].steps[i]);
      }
    }
  }
  return count;
}

TEST(VerifyMutantsTest, DamageIsFound) {
  std::map<std::string, int> found;
  for (const Algorithm* algorithm : Algorithms()) {
    for (const Mutation& mutation : kMutations) {
      SCOPED_TRACE(std::string(NameOf(algorithm->kind)) + "/" + algorithm->name + ": " +
                   mutation.name);
      const Count count = CountFound(*algorithm, mutation);
      found[mutation.name] += count.found;
      EXPECT_TRUE(count.applied == 0 || count.found > 0);
    }
  }
  for (const Mutation& mutation : kMutations) EXPECT_GT(found[mutation.name], 0) << mutation.name;
}

}  // namespace
}  // namespace covey
