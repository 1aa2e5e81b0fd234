// Which steps versions come after, as counted one by one, and a rank that has missed some.
#include "core/train/course.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace covey {
namespace {

constexpr int64_t kNowhere = int64_t{1} << 62;

TEST(CourseTest, VersionsComeLengthApartAndAtTheEnd) {
  for (const int64_t begin : {0, 2})
    for (const int64_t until : {int64_t{7}, int64_t{8}, int64_t{9}, kNowhere})
      for (const int64_t length : {1, 2, 3, 9}) {
        const Course course(begin, until, length, begin);
        std::set<int64_t> ends;
        for (int64_t k = 0; k < 30 && until < kNowhere; ++k) ends.insert(until + k * length);
        for (int64_t k = 1; k < 30; ++k)
          if (begin + k * length < until) ends.insert(begin + k * length);
        for (int64_t at = begin; at < 20; ++at) {
          const std::vector<int64_t> after(ends.upper_bound(at), ends.end());
          EXPECT_EQ(course.After(at, 0), at);
          for (size_t versions = 1; versions < 8; ++versions)
            EXPECT_EQ(course.After(at, static_cast<int64_t>(versions)), after[versions - 1])
                << begin << ' ' << until << ' ' << length << ' ' << at << ' ' << versions;
        }
      }
}

TEST(CourseTest, ATrainingThatIsTakenUpBetweenTwoVersionsGoesOnToTheNextOne) {
  const Course course(0, kNowhere, 4, 6);
  EXPECT_EQ(course.at(), 6);
  EXPECT_EQ(course.left(), 2);
}

TEST(CourseTest, MissedVersionsCountAsDone) {
  Course course(0, kNowhere, 4, 0);
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(course.left(), 4 - step);
    course.OnUpdated();
  }
  EXPECT_EQ(course.steps(), 4);
  course.OnPublished(0);
  course.OnMerged(1);
  EXPECT_EQ(course.at(), 4);
  course.OnUpdated();
  course.OnPublished(1);
  course.OnMerged(4);
  EXPECT_EQ(course.at(), 16);
  EXPECT_EQ(course.left(), 4);
}

TEST(CourseTest, AfterFinishARankGoesOnWhereTheOthersAre) {
  Course course(0, 10, 4, 0);
  course.OnUpdated();
  course.OnPublished(0);
  course.OnFinished(6);
  EXPECT_EQ(course.steps(), 6);
  EXPECT_EQ(course.left(), 2);
  EXPECT_FALSE(course.IsAtEnd());
  course.OnPublished(2);
  course.OnMerged(4);
  EXPECT_TRUE(course.IsAtEnd());
  EXPECT_EQ(course.left(), 4);
}

}  // namespace
}  // namespace covey
