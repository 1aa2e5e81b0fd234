// Goal: any rank sees any other one's model of one moment, and how far it is, or is told why not,
// while that one trains, waits, or has closed.
// Method: ranks as threads over real memory, and over a network, models in place, looks at each
// point of a step; whole numbers, so that models are compared bit for bit.
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/api/covey_trainer.h"
#include "tests/contract/threads.h"
#include "tests/contract/trainer_adapter.h"

namespace covey {
namespace {

// A rank that trains in place, and looks at others.
struct Student : Adapter {
  Student(int rank, covey_runtime* runtime) : Adapter(rank, runtime) { in_place = true; }

  covey_seen_state See(int rank) {
    void* to[] = {head.data(), middle.data(), tail.data()};
    return Ask(rank, to);
  }
  // Of a look that copies nothing.
  int64_t VersionOf(int rank) {
    EXPECT_EQ(Ask(rank, nullptr), COVEY_SEEN_WHOLE);
    return seen.version;
  }
  // Looks until an answer is there.
  covey_seen_state Ask(int rank, void* const* to) {
    do {
      EXPECT_EQ(Peek(rank, to), COVEY_OK) << error.message;
      std::this_thread::yield();
    } while (seen.state == COVEY_SEEN_ASKED);
    return seen.state;
  }
  // Whether each number of what was seen is this one.
  bool HasSeen(double number) const {
    bool is_so = true;
    for (const float one : head) is_so &= static_cast<double>(one) == number;
    for (const double one : middle) is_so &= one == number;
    for (const float one : tail) is_so &= static_cast<double>(one) == number;
    return is_so;
  }

  std::vector<float> head = std::vector<float>(1000), tail = std::vector<float>(3);
  std::vector<double> middle = std::vector<double>(70000);
};

// A rank's model after so many steps of its own.
double OwnAfter(int rank, int64_t steps) {
  double model = 1;
  for (int64_t step = 0; step < steps; ++step) model -= GradientOf(rank, step);
  return model;
}

class TrainerPeekAnywhereTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, TrainerPeekAnywhereTest, testing::Values("", kOverNetwork));

TEST_P(TrainerPeekAnywhereTest, ARankInLocalStepsIsSeenAsItsLastUpdateHasLeftIt) {
  std::barrier all(3);
  RunRanks(3, GetParam(), [&](int rank, covey_runtime*& runtime) {
    Student student(rank, runtime);
    ASSERT_EQ(student.Open("local:H=100"), COVEY_OK) << student.error.message;
    all.arrive_and_wait();
    EXPECT_EQ(student.See(0), COVEY_SEEN_NOTHING) << "its first step has not begun";
    EXPECT_EQ(student.VersionOf(0), 0);
    all.arrive_and_wait();
    ASSERT_EQ(student.BeginPass(), COVEY_OK) << student.error.message;
    all.arrive_and_wait();
    for (int other = 0; other < 3; ++other) {
      EXPECT_EQ(student.See(other), COVEY_SEEN_WHOLE);
      EXPECT_TRUE(student.HasSeen(1));
    }
    all.arrive_and_wait();
    for (int64_t step = 0; step < 2 * rank + 1; ++step)
      ASSERT_EQ(student.Step(step), COVEY_OK) << student.error.message;
    all.arrive_and_wait();
    for (int other = 0; other < 3; ++other) {
      EXPECT_EQ(student.See(other), COVEY_SEEN_WHOLE);
      EXPECT_EQ(student.seen.version, 2 * other + 1);
      EXPECT_TRUE(student.HasSeen(OwnAfter(other, 2 * other + 1))) << other << " by " << rank;
      EXPECT_EQ(student.VersionOf(other), 2 * other + 1);
    }
    all.arrive_and_wait();
    ASSERT_EQ(student.Finish(), COVEY_OK) << student.error.message;
    all.arrive_and_wait();
    EXPECT_EQ(student.See((rank + 1) % 3), COVEY_SEEN_WHOLE);
    EXPECT_EQ(student.middle, student.model[1]) << "the mean of all";
    EXPECT_EQ(static_cast<double>(student.head[999]), student.model[0][999]);
    all.arrive_and_wait();
  });
}

TEST_P(TrainerPeekAnywhereTest, AModelThatIsNotInPlaceIsNotSeen) {
  std::barrier both(2);
  RunRanks(2, GetParam(), [&](int rank, covey_runtime*& runtime) {
    Student student(rank, runtime);
    student.in_place = rank == 0;
    ASSERT_EQ(student.Open("local:H=100"), COVEY_OK) << student.error.message;
    ASSERT_EQ(student.Step(0), COVEY_OK) << student.error.message;
    both.arrive_and_wait();
    EXPECT_EQ(student.See(0), COVEY_SEEN_WHOLE);
    EXPECT_EQ(student.See(1), COVEY_SEEN_NOTHING);
    EXPECT_EQ(student.seen.version, 1);
    EXPECT_EQ(student.VersionOf(1), 1);
    both.arrive_and_wait();
  });
}

// Counts the copies of a model that a step makes.
struct Copying : Student {
  Copying(int rank, covey_runtime* runtime) : Student(rank, runtime) {
    in_place = false;
    copies = true;
    within = [this](covey_verb verb) { made += verb == COVEY_COLLECT_MODEL ? 1 : 0; };
  }
  int made = 0;
};

TEST(TrainerPeekTest, AModelThatIsTrainedElsewhereIsCopiedWhenAnotherRankHasAsked) {
  std::barrier both(2);
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Copying student(rank, runtime);
    ASSERT_EQ(student.Open("local:H=100"), COVEY_OK) << student.error.message;
    for (int64_t step = 0; step < 6; ++step) {
      ASSERT_EQ(student.Step(step), COVEY_OK) << student.error.message;
      both.arrive_and_wait();
      // Rank 0 asks after steps 0 and 3, and gets the copy of the step after that.
      if (rank == 0) {
        const bool asks = step == 0 || step == 3, gets = step == 1 || step == 4;
        if (asks) {
          EXPECT_EQ(student.See(1), COVEY_SEEN_CHANGING);
        }
        if (gets) {
          EXPECT_EQ(student.See(1), COVEY_SEEN_WHOLE);
          EXPECT_EQ(student.seen.version, step + 1);
          EXPECT_TRUE(student.HasSeen(OwnAfter(1, step + 1)));
        }
        EXPECT_EQ(student.VersionOf(1), step + 1) << "a look that asks for nothing";
      }
      both.arrive_and_wait();
    }
    EXPECT_EQ(student.made, rank == 1 ? 2 : 0);
  });
}

TEST(TrainerPeekTest, ModelsThatAreCopiedAreAveragedAsOthersAre) {
  for (const char* method : {"local:H=2", "local:H=2,codec=int8", "dpsgd:topology=ring"}) {
    double means[2] = {0, 0};
    for (const bool asks : {false, true}) {
      std::barrier both(2);
      RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
        Copying student(rank, runtime);
        student.copies = asks;
        ASSERT_EQ(student.Open(method), COVEY_OK) << student.error.message;
        for (int64_t step = 0; step < 7; ++step) {
          ASSERT_EQ(student.Step(step), COVEY_OK) << student.error.message;
          if (asks) student.See(1 - rank);
          both.arrive_and_wait();
        }
        ASSERT_EQ(student.Finish(), COVEY_OK) << student.error.message;
        if (rank == 0) means[asks] = student.model[1][69999];
        both.arrive_and_wait();
      });
    }
    EXPECT_EQ(means[0], means[1]) << method;
  }
}

TEST(TrainerPeekTest, ARankThatLooksAtOthersShowsItsOwnModel) {
  std::barrier both(2);
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Copying student(rank, runtime);
    ASSERT_EQ(student.Open("local:H=3"), COVEY_OK) << student.error.message;
    for (int64_t step = 0; step < 2; ++step)
      ASSERT_EQ(student.Step(step), COVEY_OK) << student.error.message;
    const std::vector<float> head(student.model[0].begin(), student.model[0].end());
    const std::vector<float> tail(student.model[2].begin(), student.model[2].end());
    const void* own[] = {head.data(), student.model[1].data(), tail.data()};
    const auto show = [&] {
      return covey_trainer_show(runtime, student.trainer, own, &student.error);
    };
    ASSERT_EQ(show(), COVEY_OK) << student.error.message;
    both.arrive_and_wait();
    EXPECT_EQ(student.See(1 - rank), COVEY_SEEN_WHOLE);
    EXPECT_EQ(student.seen.version, 2);
    EXPECT_TRUE(student.HasSeen(OwnAfter(1 - rank, 2)));
    both.arrive_and_wait();
    ASSERT_EQ(student.Step(2), COVEY_OK) << student.error.message;
    both.arrive_and_wait();
    EXPECT_EQ(student.See(1 - rank), COVEY_SEEN_CHANGING) << "a call has hidden it";
    EXPECT_EQ(covey_trainer_show(runtime, student.trainer, nullptr, &student.error),
              COVEY_INVALID_ARGUMENT);
    own[1] = nullptr;
    EXPECT_EQ(show(), COVEY_INVALID_ARGUMENT);
    EXPECT_STREQ(student.error.message, "trainer: span 1 has no address");
    both.arrive_and_wait();
  });
}

TEST(TrainerPeekTest, AModelIsNotSeenWithinAnUpdate) {
  std::barrier both(2);
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Student student(rank, runtime);
    ASSERT_EQ(student.Open("local:H=100"), COVEY_OK) << student.error.message;
    if (rank == 0) {
      student.within = [&](covey_verb verb) {
        if (verb != COVEY_UPDATE) return;
        both.arrive_and_wait();
        both.arrive_and_wait();
      };
      EXPECT_EQ(student.Step(0), COVEY_OK) << student.error.message;
    } else {
      both.arrive_and_wait();
      EXPECT_EQ(student.See(0), COVEY_SEEN_CHANGING);
      EXPECT_TRUE(student.HasSeen(0)) << "nothing is written";
      EXPECT_EQ(student.VersionOf(0), 0);
      both.arrive_and_wait();
    }
    both.arrive_and_wait();
    EXPECT_EQ(student.See(0), COVEY_SEEN_WHOLE);
    EXPECT_TRUE(student.HasSeen(OwnAfter(0, 1)));
    both.arrive_and_wait();
  });
}

// Rank 0 waits in the average, or has given it up for the time being; rank 1 comes to it later.
TEST(TrainerPeekTest, ARankThatWaitsIsSeenByOneThatHasNotComeAndByNoOther) {
  for (const bool halts : {false, true}) {
    std::barrier both(2);
    RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
      Student student(rank, runtime);
      const char* method = halts ? "dpsgd:topology=full,order=atc,max_wait=20ms" : "local:H=1";
      ASSERT_EQ(student.Open(method), COVEY_OK) << student.error.message;
      double expected = 1;
      for (int64_t step = 0; step < 5; ++step) {
        const double own = expected - GradientOf(0, step);
        expected -= (GradientOf(0, step) + GradientOf(1, step)) / 2;
        if (rank == 0) {
          EXPECT_EQ(student.Step(step, nullptr, halts ? -1 : 1'000'000), COVEY_TIMEOUT);
          EXPECT_EQ(student.last, halts ? COVEY_DONE : COVEY_PENDING);
          both.arrive_and_wait();
          EXPECT_EQ(student.See(0), COVEY_SEEN_CHANGING) << "it has begun the average itself";
          both.arrive_and_wait();
          EXPECT_EQ(student.Step(step), COVEY_OK) << student.error.message;
          both.arrive_and_wait();
        } else {
          both.arrive_and_wait();
          EXPECT_EQ(student.See(0), COVEY_SEEN_WHOLE);
          EXPECT_TRUE(student.HasSeen(own)) << "before the average";
          EXPECT_EQ(student.seen.version, step + 1);
          covey_code code = COVEY_TIMEOUT;
          while (code == COVEY_TIMEOUT) code = student.Step(step);
          EXPECT_EQ(code, COVEY_OK) << student.error.message;
          EXPECT_EQ(student.See(0), COVEY_SEEN_CHANGING) << "rank 0 has not taken up the average";
          EXPECT_EQ(student.VersionOf(0), step + 1);
          both.arrive_and_wait();
          both.arrive_and_wait();
          EXPECT_EQ(student.See(0), COVEY_SEEN_WHOLE);
          EXPECT_TRUE(student.HasSeen(expected)) << "the average";
        }
        both.arrive_and_wait();
      }
    });
  }
}

class TrainerPeekMethodsTest : public testing::TestWithParam<std::tuple<const char*, const char*>> {
};

TEST_P(TrainerPeekMethodsTest, VersionsAreKnownInEveryPart) {
  const std::string method = std::get<1>(GetParam());
  std::barrier all(3);
  std::vector<int64_t> versions(3);
  RunRanks(3, std::get<0>(GetParam()), [&](int rank, covey_runtime*& runtime) {
    Student student(rank, runtime);
    student.in_place = rank < 2;
    ASSERT_EQ(student.Open(method.c_str()), COVEY_OK) << student.error.message;
    for (int64_t step = 0; step < 5; ++step) {
      ASSERT_EQ(student.Step(step), COVEY_OK) << student.error.message;
      versions[static_cast<size_t>(rank)] = student.Position().version;
      all.arrive_and_wait();
      for (int other = 0; other < 3; ++other)
        EXPECT_EQ(student.VersionOf(other), versions[static_cast<size_t>(other)]) << step;
      all.arrive_and_wait();
    }
    covey_position back = student.Position();
    if (method == "local:H=2") {
      back.version = 77;
      ASSERT_EQ(covey_trainer_restore(runtime, student.trainer, &back, &student.error), COVEY_OK);
      all.arrive_and_wait();
      EXPECT_EQ(student.VersionOf(1), 77);
    }
    all.arrive_and_wait();
  });
}

TEST_P(TrainerPeekMethodsTest, ARankThatHasHiddenOrClosedIsNotSeen) {
  std::barrier both(2);
  RunRanks(2, std::get<0>(GetParam()), [&](int rank, covey_runtime*& runtime) {
    auto student = std::make_unique<Student>(rank, runtime);
    ASSERT_EQ(student->Open(std::get<1>(GetParam())), COVEY_OK) << student->error.message;
    ASSERT_EQ(student->Step(0), COVEY_OK) << student->error.message;
    if (rank == 0) covey_trainer_hide(runtime, student->trainer);
    both.arrive_and_wait();
    EXPECT_EQ(student->Ask(0, nullptr), COVEY_SEEN_CLOSED);
    EXPECT_EQ(student->VersionOf(1), 1);
    both.arrive_and_wait();
    EXPECT_EQ(student->Step(1), COVEY_OK) << "it trains on: " << student->error.message;
    EXPECT_EQ(student->Finish(), COVEY_OK) << student->error.message;
    both.arrive_and_wait();
    if (rank == 1) student.reset();
    both.arrive_and_wait();
    if (rank == 0) {
      for (const int other : {0, 1}) {
        EXPECT_EQ(student->Ask(other, nullptr), COVEY_SEEN_CLOSED);
        void* to[] = {student->head.data(), student->middle.data(), student->tail.data()};
        if (student->Peek(other, to) == COVEY_OK) {
          EXPECT_EQ(student->seen.state, COVEY_SEEN_CLOSED);
        }
      }
    }
    both.arrive_and_wait();
  });
}

constexpr auto kParts = {"allreduce",
                         "local:H=2",
                         "dpsgd:topology=full,order=cwa",
                         "eager:admit=all,max_wait=60s",
                         "diloco:H=2,admit=all",
                         "wagma:S=2,tau=2",
                         "local:H=2,codec=int8"};
INSTANTIATE_TEST_SUITE_P(Shared, TrainerPeekMethodsTest,
                         testing::Combine(testing::Values(""), testing::ValuesIn(kParts)));
INSTANTIATE_TEST_SUITE_P(
    Pairs, TrainerPeekMethodsTest,
    testing::Combine(testing::Values(""),
                     testing::Values("adpsgd", "allreduce:then=local@1:H=2,then=adpsgd@3")));
// Pairs tell their versions with their models there.
INSTANTIATE_TEST_SUITE_P(Network, TrainerPeekMethodsTest,
                         testing::Combine(testing::Values(kOverNetwork),
                                          testing::ValuesIn(kParts)));

TEST_P(TrainerPeekAnywhereTest, TheModelThatARankHasPublishedLastIsSeen) {
  std::barrier all(3);
  double published[3];
  RunRanks(3, GetParam(), [&](int rank, covey_runtime*& runtime) {
    Student student(rank, runtime);
    ASSERT_EQ(student.Open("wagma:S=3,tau=100"), COVEY_OK) << student.error.message;
    EXPECT_EQ(student.See(1), COVEY_SEEN_NOTHING) << "none has been published";
    all.arrive_and_wait();
    for (int64_t step = 0; step < 3; ++step) {
      published[rank] = student.model[1][0] - GradientOf(rank, step);
      ASSERT_EQ(student.Step(step), COVEY_OK) << student.error.message;
      all.arrive_and_wait();
      for (int other = 0; other < 3; ++other) {
        EXPECT_EQ(student.See(other), COVEY_SEEN_WHOLE);
        EXPECT_EQ(student.middle, std::vector<double>(70000, published[other]))
            << other << " by " << rank;
        EXPECT_EQ(student.seen.step, step + 1);
        EXPECT_EQ(student.seen.superseded, 0);
      }
      all.arrive_and_wait();
    }
    ASSERT_EQ(student.Finish(), COVEY_OK) << student.error.message;
    all.arrive_and_wait();
  });
}

TEST(TrainerPeekTest, WhereModelsAreNotExchangedThereIsNoneToBeSeen) {
  for (const char* method : {"allreduce", "eager:admit=all,max_wait=60s", "diloco:H=2"}) {
    std::barrier both(2);
    RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
      Student student(rank, runtime);
      ASSERT_EQ(student.Open(method), COVEY_OK) << student.error.message;
      void* to[] = {student.head.data(), student.middle.data(), student.tail.data()};
      EXPECT_EQ(student.Peek(1, to), COVEY_UNSUPPORTED) << method;
      EXPECT_EQ(student.VersionOf(1), 0);
      both.arrive_and_wait();
    });
  }
  RunRanks(1, "", [](int rank, covey_runtime*& runtime) {
    Student student(rank, runtime);
    ASSERT_EQ(student.Open("local:H=2"), COVEY_OK) << student.error.message;
    ASSERT_EQ(student.Step(0), COVEY_OK) << student.error.message;
    EXPECT_EQ(student.VersionOf(0), 1) << "at itself";
  });
}

}  // namespace
}  // namespace covey
