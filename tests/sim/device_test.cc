// Tensors of a device whose events complete late and out of order are not read before their event.
//
// Method: a fake device whose memory is host memory; values are written only when the test
// completes the event, so an early read shows as a wrong sum.
#include <gtest/gtest.h>

#include <set>

#include "tests/sim/world.h"

namespace covey {
namespace {

class FakeDevice final : public Device {
 public:
  bool IsReady(void* ready_event) override { return completed_.count(ready_event) > 0; }
  void OrderAfter(void* stream) override { ordered_.insert(stream); }
  void Complete(void* event) { completed_.insert(event); }
  bool Ordered(void* stream) const { return ordered_.count(stream) > 0; }

 private:
  std::set<void*> completed_;
  std::set<void*> ordered_;
};

TEST(DeviceTest, LateEventsOutOfOrderAreWaitedFor) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FakeDevice device;
    World world({.size = 3, .seed = seed, .fake_device = &device});
    constexpr int kOps = 4;
    std::vector<std::vector<float>> data(3 * kOps, std::vector<float>(100, -1000.0f));
    std::vector<Operation*> operations;
    std::vector<size_t> events;
    for (int32_t rank = 0; rank < 3; ++rank) {
      for (size_t k = 0; k < kOps; ++k) {
        std::vector<float>& values = data[static_cast<size_t>(rank) * kOps + k];
        Request r;
        r.kind = Kind::kAllreduce;
        r.group = world.GroupOn(rank, world.everybody());
        r.name = "t" + std::to_string(k);
        Tensor t = MakeTensor(DType::kF32, {100}, values.data());
        t.device = DeviceType::kFake;
        t.ready_event = &values;
        t.stream = values.data();
        r.inputs = r.outputs = {t};
        operations.push_back(world.Submit(rank, std::move(r)));
        events.push_back(static_cast<size_t>(rank) * kOps + k);
      }
    }
    while (!events.empty()) {
      for (int step = 0; step < 20; ++step) world.Step();
      const size_t pick = world.rng().Below(events.size());
      std::vector<float>& values = data[events[pick]];
      EXPECT_FALSE(operations[events[pick]]->ended.load()) << "ended before its input was ready";
      for (float& v : values) v = static_cast<float>(1 << (events[pick] / kOps));
      device.Complete(&values);
      events.erase(events.begin() + static_cast<long>(pick));
    }
    ASSERT_TRUE(world.RunUntilEnded(operations));
    for (std::vector<float>& values : data) {
      for (float v : values) ASSERT_EQ(v, 7.0f);
      EXPECT_TRUE(device.Ordered(values.data()))
          << "the result was not ordered on the user's stream";
    }
  }
}

// A device rings nobody: whoever drives must be told to come again soon.
TEST(DeviceTest, WhoWaitsForADeviceComesAgainSoon) {
  FakeDevice device;
  World world({.size = 1, .seed = 1, .fake_device = &device});
  std::vector<float> values(100);
  Request r;
  r.kind = Kind::kAllreduce;
  r.group = world.GroupOn(0, world.everybody());
  r.name = "t";
  Tensor t = MakeTensor(DType::kF32, {100}, values.data());
  t.device = DeviceType::kFake;
  t.ready_event = &values;
  r.inputs = r.outputs = {t};
  Operation* operation = world.Submit(0, std::move(r));
  for (int pass = 0; pass < 20; ++pass) world.Step();
  bool moved = false;
  EXPECT_LE(world.runtime(0).RunOnce(&moved), world.now() + kMillisecond);
  device.Complete(&values);
  ASSERT_TRUE(world.RunUntilEnded({operation}));
  world.runtime(0).RunOnce(&moved);
  EXPECT_GT(world.runtime(0).RunOnce(&moved), world.now() + kMillisecond);
}

}  // namespace
}  // namespace covey
