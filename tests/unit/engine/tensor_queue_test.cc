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

// Submitted, ended as told, and released.
class RepeatedTest : public TensorQueueTest {
 protected:
  Operation* RunNamed(const std::string& name, const Status& status = Status::Ok()) {
    Operation* operation = NewNamed(name);
    const uint64_t handle = SubmitOk(operation);
    std::vector<Operation*> taken;
    queue_.TakeAll(&taken);
    operation->repeats = true;
    Finish(operation, status);
    EXPECT_TRUE(queue_.Release(handle));
    return operation;
  }
};

TEST_F(RepeatedTest, StaysWithItsRequestUnderANewHandle) {
  Operation* operation = RunNamed("x");
  const uint64_t old = operation->handle;
  EXPECT_EQ(queue_.TakeRepeatable(0, "y"), nullptr);
  EXPECT_EQ(queue_.TakeRepeatable(7, "x"), nullptr) << "of another group";
  EXPECT_EQ(queue_.TakeRepeatable(0, "x"), operation);
  EXPECT_EQ(queue_.TakeRepeatable(0, "x"), nullptr) << "taken";
  uint64_t refused = 0;
  EXPECT_FALSE(queue_.Submit(NewNamed("x"), &refused).ok()) << "engine-Q2";
  queue_.Forget({operation->memo});
  EXPECT_EQ(queue_.known_names(), 1u) << "engine-Q7";
  EXPECT_EQ(operation->name, "x");
  EXPECT_EQ(SubmitOk(operation), old);
  EXPECT_EQ(queue_.Find(old), operation);
}

TEST_F(RepeatedTest, UnnamedOnesStayToo) {
  Operation* operation = RunNamed("");
  EXPECT_EQ(operation->memo, nullptr);
  EXPECT_EQ(queue_.TakeRepeatable(0, ""), operation);
  SubmitOk(operation);
  SubmitOk(NewNamed(""));
  EXPECT_EQ(queue_.in_flight(), 2u);
}

TEST_F(RepeatedTest, OnesThatFailOrAreRefusedDoNotStay) {
  RunNamed("x", Status::Aborted("gone"));
  EXPECT_EQ(queue_.TakeRepeatable(0, "x"), nullptr) << "engine-Q7";
  RunNamed("x");
  queue_.Discard(queue_.TakeRepeatable(0, "x"));
  RunNamed("x");  // the name is free
  queue_.Discard(queue_.TakeRepeatable(0, "x"));
  EXPECT_EQ(queue_.TakeRepeatable(0, "x"), nullptr);
  EXPECT_EQ(queue_.New()->name, "") << "a discarded one is empty";
}

TEST_F(RepeatedTest, NewOnesAreEmptyAndFewStay) {
  constexpr int kNames = 500;
  for (int i = 0; i < kNames; ++i) RunNamed("x" + std::to_string(i));
  for (int i = 0; i < kNames; ++i) {
    const Operation* operation = queue_.New();
    EXPECT_EQ(operation->name, "");
    EXPECT_FALSE(operation->repeats);
  }
  int kept = 0;
  for (int i = 0; i < kNames; ++i)
    kept += queue_.TakeRepeatable(0, "x" + std::to_string(i)) == nullptr ? 0 : 1;
  EXPECT_GT(kept, 10);
  EXPECT_LE(kept, 64);
}

TEST_F(RepeatedTest, NoneStaysOfANameThatIsForgotten) {
  Operation* operation = RunNamed("x");
  NameMemo* memo = operation->memo;
  ASSERT_NE(memo, nullptr);
  queue_.Forget({memo});
  EXPECT_EQ(queue_.TakeRepeatable(0, "x"), nullptr) << "engine-Q7";
  EXPECT_EQ(queue_.known_names(), 0u);
}

TEST_F(RepeatedTest, IsTakenAtOnceUnlessOthersAreQueued) {
  RunNamed("x");
  uint64_t handle = 0;
  bool is_taken = false;
  std::vector<Operation*> queued;
  Operation* first = queue_.TakeRepeatable(0, "x");
  ASSERT_TRUE(queue_.SubmitTaken(first, &handle, &is_taken).ok());
  EXPECT_TRUE(is_taken);
  EXPECT_FALSE(queue_.HasQueued());
  EXPECT_EQ(queue_.in_flight(), 1u);
  EXPECT_FALSE(queue_.SubmitTaken(NewNamed("x"), &handle, &is_taken).ok()) << "engine-Q2";
  Operation* other = NewNamed("y");
  SubmitOk(other);
  Operation* last = NewNamed("z");
  ASSERT_TRUE(queue_.SubmitTaken(last, &handle, &is_taken).ok());
  EXPECT_FALSE(is_taken) << "engine-Q8";
  queue_.TakeAll(&queued);
  EXPECT_EQ(queued, (std::vector<Operation*>{other, last}));
}

TEST_F(RepeatedTest, AnEndIsSeenWithItsStatus) {
  Operation* operation = NewNamed("x");
  const uint64_t handle = SubmitOk(operation);
  Status status = Status::Ok();
  EXPECT_FALSE(queue_.See(handle, &status));
  Finish(operation, Status::Aborted("gone"));
  EXPECT_TRUE(queue_.See(handle, &status));
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_EQ(queue_.waits(), 1u) << "agree-N7";
  EXPECT_TRUE(queue_.Release(handle));
  EXPECT_FALSE(queue_.See(handle, &status));
}

}  // namespace
}  // namespace covey
