// Goal: every algorithm of the catalogue is right for any number of ranks, any size, dtype and
// memory; and the verifier says in words what is wrong with a schedule that is not.
// Method: the symbolic verifier over the whole catalogue; pinned damage, one per rule. (That damage
// of any kind anywhere is found: verify_mutants_test.cc.)
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/unit/plan/problems.h"

namespace covey {
namespace {

constexpr uint64_t kSlot = 16384;

// A sanitizer makes the verifier ten times as slow; all sizes are for builds without one.
bool IsTaken(int32_t size) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return size <= 9 || size == 16 || size == 31 || size == 64;
#else
  return size <= 64;
#endif
}

void VerifyAll(Kind kind, int32_t size, uint64_t elems, DType dtype, uint64_t slot_bytes,
               uint32_t depth = kMinLandingSlots) {
  for (const Algorithm* algorithm : Algorithms()) {
    if (algorithm->kind != kind) continue;
    Problem base = MakeProblem(kind, size, elems * SizeOf(dtype), slot_bytes, dtype);
    base.depth = depth;
    for (const Problem& problem : InEveryMemory(*algorithm, base)) {
      const Status status = Verify(*algorithm, problem);
      ASSERT_TRUE(status.ok()) << NameOf(kind) << "/" << algorithm->name << " on " << size
                               << " ranks, " << elems << " " << NameOf(dtype)
                               << (problem.all_arena ? " in the arena" : "") << ", " << depth
                               << " slots: " << status.message();
    }
  }
}

class VerifyTest : public testing::TestWithParam<int> {
 protected:
  static Kind KindOf(int number) { return static_cast<Kind>(number); }
};

TEST_P(VerifyTest, EveryNumberOfRanksAndSize) {
  for (int32_t size = 1; size <= 64; ++size) {
    if (!IsTaken(size)) continue;
    VerifyAll(KindOf(GetParam()), size, 1237, DType::kF32, kSlot);
    if (size > 9 && size != 16 && size != 63) continue;
    for (const uint64_t elems : {0, 1, 4096, 4097, 25 * 1024 + 3})
      VerifyAll(KindOf(GetParam()), size, elems, DType::kF32, kSlot);
  }
}

TEST_P(VerifyTest, EveryDType) {
  for (int type = 0; type < kNumDTypes; ++type) {
    const DType dtype{static_cast<uint8_t>(type)};
    if (dtype == DType::kBool || dtype > DType::kI16) continue;  // Those are as others are.
    for (const int32_t size : {1, 2, 3, 6, 17})
      for (const uint64_t elems : {1, 4095, 40001})
        VerifyAll(KindOf(GetParam()), size, elems, dtype, kSlot);
  }
}

TEST_P(VerifyTest, SmallSlots) {
  for (const int32_t size : {1, 2, 3, 4, 13})
    for (const uint64_t elems : {1, 16, 17, 1000})
      VerifyAll(KindOf(GetParam()), size, elems, DType::kF32, 64);
}

TEST_P(VerifyTest, MoreSlots) {
  for (const uint32_t depth : {4, 5, 6, 9, 24, 64})
    for (const int32_t size : {1, 2, 3, 5, 8})
      for (const uint64_t elems : {17, 3 * 128, 70 * 128 + 3})
        VerifyAll(KindOf(GetParam()), size, elems, DType::kF32, 512, depth);
}

TEST_P(VerifyTest, MoreElementsThanAnIntCounts) {
  for (const int32_t size : {1, 2, 3, 8})
    VerifyAll(KindOf(GetParam()), size, (uint64_t{1} << 33) + 5, DType::kF32, uint64_t{1} << 33);
}

// The landing slots are for peers.
TEST(AlgorithmTest, AGroupOfOneStagesNothing) {
  for (const Kind kind :
       {Kind::kAllreduce, Kind::kAllgather, Kind::kBroadcast, Kind::kReducescatter}) {
    const Problem alone = MakeProblem(kind, 1, 10 * kSlot + 4, kSlot);
    const Schedule schedule = BuildSchedule(*FindAlgorithm(kind, "flat"), alone);
    EXPECT_FALSE(schedule.steps.empty()) << NameOf(kind);
    for (const Step& step : schedule.steps)
      EXPECT_NE(step.dst.place, Place::kLanding) << NameOf(kind) << ": " << ToString(step);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, VerifyTest, testing::Range(0, kNumKinds),
                         [](const auto& info) { return NameOf(static_cast<Kind>(info.param)); });

struct Damage {
  const char* name;
  Kind kind;
  const char* algorithm;
  std::function<void(std::vector<Schedule>*)> change;
  const char* text;  // part of the message
};

void Drop(Schedule* s, StepKind kind, size_t number) {
  for (size_t i = 0; i < s->steps.size(); ++i) {
    if (s->steps[i].kind != kind || number-- > 0) continue;
    s->steps.erase(s->steps.begin() + static_cast<long>(i));
    return;
  }
  FAIL() << "no such step";
}

Step* Nth(Schedule* s, StepKind kind, size_t number) {
  for (Step& step : s->steps)
    if (step.kind == kind && number-- == 0) return &step;
  return nullptr;
}

const Damage kDamages[] = {
    {"read before written", Kind::kAllreduce, "flat",
     [](auto* s) { Drop(&(*s)[0], StepKind::kWait, 0); },
     "rank 0 step 5 (reduce output[0]+16384 <- landing[*].1+0 16384 bytes): reads landing[1].1+0, "
     "of which byte 0 is not written by then"},
    {"mixed while written", Kind::kNeighborAllreduce, "flat",
     [](auto* s) { Drop(&(*s)[0], StepKind::kWait, 1); },
     "rank 0 step 6 (mix output[0]+16384 <- landing[*].1+0, input+16384 16384 bytes): reads "
     "landing[2].1+0 while rank 2 may still write it (S2)"},
    {"mixed with other bytes", Kind::kNeighborAllreduce, "flat",
     [](auto* s) { Nth(&(*s)[0], StepKind::kMix, 1)->input_offset = 0; }, "combines byte"},
    {"read while written", Kind::kAllgather, "flat",
     [](auto* s) { Drop(&(*s)[2], StepKind::kWait, 0); },
     "rank 2 step 5 (copy output[2]+16384 <- landing[0].1+0 16384 bytes): reads landing[0].1+0 "
     "while rank 0 may still write it (S2)"},
    {"overwritten while read", Kind::kAllreduce, "staged",
     [](auto* s) { Drop(&(*s)[1], StepKind::kWait, 5); },
     "rank 2 step 35 (reduce landing[2].5+384 <- landing[*].5+384 256 bytes): overwrites "
     "landing[2].5+384, which rank 1 may still use (S3)"},
    {"overwritten by the next exchange", Kind::kBroadcast, "flat",
     [](auto* s) {
       for (Schedule& one : *s) ++one.slots;
     },
     "rank 1 at its end: a first segment of the next exchange overwrites landing[1].7, which "
     "rank 2 may still use (S3)"},
    {"left while used", Kind::kAllreduce, "direct",
     [](auto* s) { Drop(&(*s)[1], StepKind::kWait, 0); },
     "rank 1 at its end: rank 0 may still use its memory (S4)"},
    {"never signalled", Kind::kAllreduce, "flat",
     [](auto* s) { Drop(&(*s)[2], StepKind::kSignal, 4); },
     "rank 0 step 19 (wait * >= 6): never satisfied, rank 2 waits itself: rank 2 step 18"},
    {"slots differ", Kind::kAllreduce, "flat", [](auto* s) { ++(*s)[2].slots; },
     "rank 2 uses 6 ticks and 7 slots, rank 0 6 and 6 (S5)"},
    {"tick too high", Kind::kAllreduce, "flat",
     [](auto* s) { ++Nth(&(*s)[1], StepKind::kWait, 4)->tick; },
     "rank 1 step 19 (wait * >= 7): beyond the 6 ticks of the schedule (S5)"},
    {"tick does not rise", Kind::kAllreduce, "flat",
     [](auto* s) { Nth(&(*s)[1], StepKind::kSignal, 1)->tick = 2; },
     "rank 1 step 5 (signal 2): a tick that does not rise"},
    {"beyond the output", Kind::kAllreduce, "flat",
     [](auto* s) { Nth(&(*s)[1], StepKind::kReduce, 5)->dst.offset += 4; },
     "640 bytes at output[1]+81924 reach beyond its 82560"},
    {"another's rows", Kind::kAllgather, "flat",
     [](auto* s) { Nth(&(*s)[1], StepKind::kCopy, 0)->src.index = 2; },
     "rank 1 at its end: output bytes 0 to 16384: hold the input of rank 2 instead of the input of "
     "rank 0"},
    {"other bytes twice", Kind::kAllreduce, "ring",
     [](auto* s) {
       Schedule& last = (*s)[2];
       const Step add = *Nth(&last, StepKind::kAddToSum, 0);
       Step* later = Nth(&last, StepKind::kAddToSum, 1);
       *later = add;
       later->src = add.dst;
       Nth(&last, StepKind::kFinishSum, 1)->src = add.dst;
     },
     "rank 0 at its end: output bytes 8192 to 16384: hold byte 0 of the result over ranks 0 1 2 "
     "2 "},
    {"counted twice", Kind::kAllreduce, "ring",
     [](auto* s) {
       Schedule& last = (*s)[2];
       Step again = *Nth(&last, StepKind::kAddToSum, 0);
       again.src = again.dst;
       const auto finish = std::find_if(last.steps.begin(), last.steps.end(), [](const Step& step) {
         return step.kind == StepKind::kFinishSum;
       });
       last.steps.insert(finish, again);
     },
     "rank 0 at its end: output bytes 0 to 8192: the result over ranks 0 1 2 2 counts the "
     "contribution of rank 2 2 times"},
    {"left out", Kind::kAllreduce, "ring",
     [](auto* s) { Nth(&(*s)[1], StepKind::kAddToSum, 0)->kind = StepKind::kBeginSum; },
     "rank 0 at its end: output bytes 0 to 8192: the result over ranks 1 2 lacks the contribution "
     "of rank 0"},
    {"other bytes", Kind::kAllreduce, "ring",
     [](auto* s) { Nth(&(*s)[1], StepKind::kAddToSum, 0)->input_offset += 4; },
     "combines byte 0 of the message with byte 4"},
    {"a part of a code", Kind::kAllreduce, "coded",
     [](auto* s) { Nth(&(*s)[1], StepKind::kReduceCoded, 0)->length_bytes -= 1024; },
     "decodes a part of the code of rank 0"},
    {"another segment's code", Kind::kAllreduce, "coded",
     [](auto* s) { Nth(&(*s)[1], StepKind::kEncode, 0)->input_offset -= 1024; },
     "combines byte 64512 of the message with byte 63488"},
    {"no code", Kind::kAllreduce, "coded",
     [](auto* s) {
       Step* encode = Nth(&(*s)[1], StepKind::kEncode, 0);
       encode->kind = StepKind::kCopy;
       encode->src = {Place::kInput, 1, 0, 0};
       encode->length_bytes = 16380;
     },
     "decodes the input of rank 1 as if it were a code"},
    {"a code as a number", Kind::kAllreduce, "coded",
     [](auto* s) {
       Step* reduce = Nth(&(*s)[1], StepKind::kReduceCoded, 0);
       reduce->kind = StepKind::kReduce;
       reduce->length_bytes = 640;
     },
     "combines the code of rank 0 as if it were an input"},
    {"own code is not staged", Kind::kNeighborAllreduce, "coded",
     [](auto* s) { Nth(&(*s)[1], StepKind::kEncode, 0)->input_offset -= 1024; }, "combines byte"},
    {"codes added to other bytes", Kind::kNeighborAllreduce, "coded",
     [](auto* s) { Nth(&(*s)[1], StepKind::kMixCoded, 0)->input_offset += 1024; },
     "adds to other bytes than it decodes"},
    {"codes mixed while written", Kind::kNeighborAllreduce, "coded",
     [](auto* s) { Drop(&(*s)[1], StepKind::kWait, 0); }, "(S2)"},
    {"half an element", Kind::kAllreduce, "flat",
     [](auto* s) { Nth(&(*s)[1], StepKind::kReduce, 0)->length_bytes -= 2; },
     "16382 bytes are no whole number of float32"},
    {"writes an input", Kind::kBroadcast, "flat",
     [](auto* s) { Nth(&(*s)[0], StepKind::kCopy, 0)->dst.place = Place::kInput; },
     "rank 0 step 0 (copy input[0]+0 <- landing[1].0+0 16384 bytes): writes an input"},
};

TEST(VerifyMessageTest, NamesRankStepAndReason) {
  for (const Damage& damage : kDamages) {
    SCOPED_TRACE(damage.name);
    const Algorithm* algorithm = FindAlgorithm(damage.kind, damage.algorithm);
    ASSERT_NE(algorithm, nullptr);
    Problem problem = MakeProblem(damage.kind, 3, 5 * kSlot + 640, kSlot);
    problem.all_arena = true;
    if (algorithm->codes) problem.form = {.block_elems = 256, .header_bytes = 4, .elem_bits = 8};
    std::vector<Schedule> schedules = BuildAll(*algorithm, problem);
    damage.change(&schedules);
    const Status status = VerifySchedules(problem, schedules, algorithm->association, {});
    EXPECT_NE(status.message().find(damage.text), std::string::npos) << status.message();
  }
}

TEST(VerifyMessageTest, UserMemoryIsNotWrittenBeforeAllHaveBegun) {
  Problem problem = MakeProblem(Kind::kBroadcast, 3, 640, kSlot);
  problem.root = 0;
  const Algorithm* flat = FindAlgorithm(Kind::kBroadcast, "flat");
  const Status status = VerifySchedules(problem, BuildAll(*flat, problem), flat->association,
                                        {.begins_awaited = false});
  EXPECT_NE(status.message().find("writes user memory before rank 1 is known to have begun (N4)"),
            std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace covey
