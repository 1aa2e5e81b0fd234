// Goal: the unwinder of libcovey.so finds what glibc's own function would find.
// Method: both, for code of the program, of libraries, and for addresses that are no code. That
// exceptions are caught in what is linked as libcovey.so is: unit/transport/plugin_test.
#include "core/base/find_object.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

namespace covey {
namespace {

TEST(FindObjectTest, FindsWhatGlibcFinds) {
  void* libc = dlopen("libc.so.6", RTLD_NOW);
  ASSERT_NE(libc, nullptr);
  const auto theirs =
      reinterpret_cast<int (*)(void*, dl_find_object*)>(dlsym(libc, "_dl_find_object"));
  if (theirs == nullptr) GTEST_SKIP() << "this glibc has none";
  int on_stack = 0;
  const std::vector<int> on_heap(10);
  const std::vector<void*> places = {
      reinterpret_cast<void*>(&FindObject),
      reinterpret_cast<void*>(static_cast<int (*)()>([] { return 1; })),
      reinterpret_cast<void*>(&std::printf),
      reinterpret_cast<void*>(static_cast<double (*)(double)>(&std::cos)),
      dlsym(RTLD_DEFAULT, "_Znwm"),
      &on_stack,
      const_cast<int*>(on_heap.data()),
      nullptr,
  };
  for (size_t i = 0; i < places.size(); ++i) {
    dl_find_object a{};
    dl_find_object b{};
    ASSERT_EQ(FindObject(places[i], &a), theirs(places[i], &b)) << i;
    EXPECT_EQ(a.dlfo_eh_frame, b.dlfo_eh_frame) << i;
  }
}

}  // namespace
}  // namespace covey
