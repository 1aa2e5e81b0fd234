// Handles, names in flight, and callbacks of the submission queue.
#include "core/engine/tensor_queue.h"

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

  void Finish(Operation* operation, Status status) {
    std::vector<TensorQueue::Ended> ended = {{operation, std::move(status)}};
    queue_.Finish(&ended);
    EXPECT_TRUE(ended.empty());
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
  Finish(first, Status::Ok());
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
  Finish(operation, Status::Aborted("gone"));
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
  Finish(operation, Status::Ok());
  EXPECT_EQ(queue_.in_flight(), 0u);
}

TEST_F(TensorQueueTest, WhatHasEndedWellIsReleasedInOneCall) {
  Operation* good = NewNamed("good");
  Operation* bad = NewNamed("bad");
  const uint64_t good_handle = SubmitOk(good);
  const uint64_t bad_handle = SubmitOk(bad);
  EXPECT_FALSE(queue_.ReleaseIfDone(good_handle)) << "still in flight";
  std::vector<TensorQueue::Ended> ended = {{good, Status::Ok()}, {bad, Status::Aborted("gone")}};
  queue_.Finish(&ended);
  EXPECT_TRUE(queue_.ReleaseIfDone(good_handle));
  EXPECT_FALSE(queue_.ReleaseIfDone(good_handle)) << "released already";
  EXPECT_EQ(queue_.Find(good_handle), nullptr);
  EXPECT_FALSE(queue_.ReleaseIfDone(bad_handle));
  EXPECT_EQ(queue_.Find(bad_handle)->status.code(), StatusCode::kAborted);
}

// By group: the same name in another group is another one.
TEST_F(TensorQueueTest, WhatIsKeptOfANameComesWithItsNextRequest) {
  Operation* first = NewNamed("x");
  SubmitOk(first);
  ASSERT_NE(first->memo, nullptr);
  first->memo->stream = this;
  Finish(first, Status::Ok());
  Operation* second = NewNamed("x");
  SubmitOk(second);
  EXPECT_EQ(second->memo->stream, this);
  Group other;
  other.key = 7;
  Operation* third = NewNamed("x");
  third->group = &other;
  SubmitOk(third);
  EXPECT_EQ(third->memo->stream, nullptr);
  Operation* unnamed = NewNamed("");
  SubmitOk(unnamed);
  EXPECT_EQ(unnamed->memo, nullptr);
}

TEST_F(TensorQueueTest, OneThatIsHeldStaysWhatItIs) {
  Operation* operation = NewNamed("a");
  SubmitOk(operation);
  const uint64_t handle = operation->handle;
  ASSERT_EQ(queue_.Hold(handle), operation);
  Finish(operation, Status::Mismatch("no"));
  EXPECT_TRUE(queue_.Release(handle));
  EXPECT_EQ(queue_.Find(handle), nullptr);
  EXPECT_NE(NewNamed("b"), operation);
  EXPECT_TRUE(operation->ended.load());
  EXPECT_EQ(operation->status.code(), StatusCode::kMismatch);
  queue_.LetGo(operation, false);
  EXPECT_EQ(NewNamed("c"), operation);
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
  Finish(operation, Status::Mismatch("no"));
  EXPECT_TRUE(queue_.HasCallbacks());
  queue_.RunCallbacks();
  queue_.RunCallbacks();
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(seen.code, StatusCode::kMismatch);
}

}  // namespace
}  // namespace covey
