// The bell of a descriptor: once for each time it is armed, at once where there is something
// already, and never for nothing.
#include "core/transport/descriptor_bell.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <semaphore>

namespace covey {
namespace {

class DescriptorBellTest : public ::testing::Test {
 protected:
  DescriptorBellTest() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    const Status opened = DescriptorBell::Open(
        descriptor_,
        [this] {
          ++rung_;
          rings_.release();
        },
        &bell_);
    EXPECT_TRUE(opened.ok()) << opened.message();
  }
  ~DescriptorBellTest() override {
    bell_.reset();
    close(descriptor_);
  }
  void Drain() {
    eventfd_t value = 0;
    eventfd_read(descriptor_, &value);
  }

  int descriptor_;
  std::counting_semaphore<> rings_{0};
  std::atomic<int> rung_{0};
  std::unique_ptr<DescriptorBell> bell_;
};

TEST_F(DescriptorBellTest, RingsOncePerArming) {
  bell_->Arm();
  bell_->Arm();  // without effect: it is armed
  for (int time = 1; time <= 3; ++time) {
    eventfd_write(descriptor_, 1);
    rings_.acquire();
    EXPECT_EQ(rung_.load(), time);
    Drain();
    bell_->Arm();
  }
}

TEST_F(DescriptorBellTest, RingsAtOnceWhereThereIsSomething) {
  eventfd_write(descriptor_, 1);
  bell_->Arm();
  rings_.acquire();
  bell_->Arm();  // not drained: again
  rings_.acquire();
  EXPECT_EQ(rung_.load(), 2);
}

TEST_F(DescriptorBellTest, SaysNothingUnlessArmed) {
  eventfd_write(descriptor_, 1);
  bell_.reset();  // its thread has ended
  EXPECT_EQ(rung_.load(), 0);
}

TEST(DescriptorBellOpenTest, RefusesWhatIsNoDescriptor) {
  std::unique_ptr<DescriptorBell> bell;
  EXPECT_EQ(DescriptorBell::Open(
                -1, [] {}, &bell)
                .code(),
            StatusCode::kExhausted);
}

}  // namespace
}  // namespace covey
