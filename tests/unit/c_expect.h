/* What tests in C say what they expect with: a function that returns 1 where it does not hold. */
#ifndef COVEY_TESTS_UNIT_C_EXPECT_H_
#define COVEY_TESTS_UNIT_C_EXPECT_H_

#include <stdio.h>

#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                       \
    }                                                                 \
  } while (0)

#endif /* COVEY_TESTS_UNIT_C_EXPECT_H_ */
