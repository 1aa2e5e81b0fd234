// Tests in C as tests of this program.
#include <gtest/gtest.h>

extern "C" int MisuseMain(void);

TEST(MisuseTest, WrongCallsAreErrors) { EXPECT_EQ(MisuseMain(), 0); }
