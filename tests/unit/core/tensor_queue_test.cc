// Handles, names in flight, and callbacks of the submission queue.
#include "core/tensor_queue.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

class TensorQueueTest : public testing::Test {
 protected:
  Operation* NewNamed(const std::string& name) {
    Operation* operation = queue_.New();
    operation->group = &group_;
    operation->name = name;
    return operation;
  }
  uint64_t SubmitOk(Operation* operation) {
    uint64_t handle = 0;
    EXPECT_TRUE(queue_.Submit(operation, &handle).ok());
    return handle;
  }

  Group group_;
  TensorQueue queue_;
};

TEST_F(TensorQueueTest, ANameInFlightIsRefusedUntilItEnds) {
  Operation* first = NewNamed("x");
  SubmitOk(first);
  uint64_t handle = 0;
  const Status again = queue_.Submit(NewNamed("x"), &handle);
  EXPECT_EQ(again.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(again.message().find("'x' is already in flight"), std::string::npos) << again.message();
  queue_.Finish(first, Status::Ok());
  SubmitOk(NewNamed("x"));
}

TEST_F(TensorQueueTest, UnnamedOperationsMayBeMany) {
  SubmitOk(NewNamed(""));
  SubmitOk(NewNamed(""));
  std::vector<Operation*> taken;
  queue_.TakeAll(&taken);
  EXPECT_EQ(taken.size(), 2u);
  EXPECT_FALSE(queue_.HasQueued());
}

TEST_F(TensorQueueTest, AReleasedHandleIsUnknownEvenWhenItsSlotIsReused) {
  Operation* operation = NewNamed("a");
  const uint64_t handle = SubmitOk(operation);
  EXPECT_EQ(queue_.Find(handle), operation);
  queue_.Finish(operation, Status::Aborted("gone"));
  EXPECT_EQ(queue_.Find(handle)->status.code(), StatusCode::kAborted);
  EXPECT_TRUE(queue_.Release(handle));
  EXPECT_EQ(queue_.Find(handle), nullptr);
  EXPECT_FALSE(queue_.Release(handle));
  const uint64_t later = SubmitOk(NewNamed("b"));
  EXPECT_NE(later, handle);
  EXPECT_EQ(queue_.Find(handle), nullptr);
  EXPECT_EQ(queue_.Find(0), nullptr);
  EXPECT_EQ(queue_.Find(~uint64_t{0}), nullptr);
}

TEST_F(TensorQueueTest, ReleasedBeforeItEndsItIsKeptUntilThen) {
  Operation* operation = NewNamed("a");
  const uint64_t handle = SubmitOk(operation);
  EXPECT_TRUE(queue_.Release(handle));
  EXPECT_EQ(queue_.Find(handle), nullptr);
  EXPECT_EQ(operation->name, "a") << "its memory was reused while in flight";
  queue_.Finish(operation, Status::Ok());
  EXPECT_EQ(queue_.in_flight(), 0u);
}

TEST_F(TensorQueueTest, CallbacksFireOnceWithTheStatus) {
  struct Seen {
    int calls = 0;
    StatusCode code = StatusCode::kOk;
  } seen;
  Operation* operation = NewNamed("a");
  operation->context = &seen;
  operation->callback = [](void* context, uint64_t, const Status& status) {
    auto* s = static_cast<Seen*>(context);
    ++s->calls;
    s->code = status.code();
  };
  SubmitOk(operation);
  EXPECT_FALSE(queue_.HasCallbacks());
  queue_.Finish(operation, Status::Mismatch("no"));
  EXPECT_TRUE(queue_.HasCallbacks());
  queue_.RunCallbacks();
  queue_.RunCallbacks();
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(seen.code, StatusCode::kMismatch);
}

}  // namespace
}  // namespace covey
