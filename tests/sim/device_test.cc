// Tensors of a device that the host cannot reach: nothing is read before its event, copies are
// waited for, results are those of the CPU bit for bit, and the user's stream comes after them.
//
// Method: LateDevice, which copies late and ends the process of a host that touches its memory.
// The simulator's draws for it (all kinds, losses, deviations) are in tests/sim/swarm_test.
#include <gtest/gtest.h>

#include "tests/sim/simulator/late_device.h"
#include "tests/sim/simulator/world.h"

namespace covey {
namespace {

// A world with a device for each rank, and tensors on them.
class Devices {
 public:
  explicit Devices(World::Options options, Time longest = 100 * kMicrosecond)
      : longest_(longest), clock_(std::make_unique<Borrowed>()) {
    for (int32_t r = 0; r < options.size; ++r) {
      devices_.push_back(std::make_unique<LateDevice>(
          clock_.get(), options.seed * 31 + static_cast<uint64_t>(r), longest));
      options.fake_devices.push_back(devices_.back().get());
    }
    world_ = std::make_unique<World>(options);
    clock_->world = world_.get();
  }

  World& world() { return *world_; }
  LateDevice& device(int32_t r) { return *devices_[static_cast<size_t>(r)]; }

  Tensor On(DType dtype, Bytes& memory, void* stream, void* event) {
    const auto elems = static_cast<int64_t>(memory.size() / SizeOf(dtype));
    Tensor t = MakeTensor(dtype, {elems}, LateDevice::OnDevice(memory.data()));
    t.device = DeviceType::kFake;
    t.stream = stream;
    t.ready_event = event;
    return t;
  }

  Request Allreduce(int32_t r, const std::string& name, Op op = Op::kSum) {
    Request request;
    request.kind = Kind::kAllreduce;
    request.group = world_->GroupOn(r, world_->everybody());
    request.name = name;
    request.op = op;
    return request;
  }

 private:
  // The world's clock, before there is a world.
  struct Borrowed final : Clock {
    Time Now() override { return world == nullptr ? 0 : world->now(); }
    World* world = nullptr;
  };

  Time longest_;
  std::unique_ptr<Borrowed> clock_;
  std::vector<std::unique_ptr<LateDevice>> devices_;
  std::unique_ptr<World> world_;
};

Bytes Floats(size_t count, float value) {
  Bytes memory(count * sizeof(float));
  for (size_t i = 0; i < count; ++i)
    std::memcpy(memory.data() + i * sizeof(float), &value, sizeof(float));
  return memory;
}

TEST(DeviceTest, LateEventsOutOfOrderAreWaitedFor) {
  constexpr int kOps = 4;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Devices on({.size = 3, .seed = seed});
    World& world = on.world();
    std::vector<Bytes> data(3 * kOps, Floats(100, -1000.0f));
    std::vector<Operation*> operations;
    std::vector<void*> events;
    std::vector<size_t> open;
    for (size_t i = 0; i < data.size(); ++i) {
      const auto rank = static_cast<int32_t>(i / kOps);
      events.push_back(on.device(rank).Compute(kNever, [&data, i] {
        const Bytes computed = Floats(100, static_cast<float>(1 << (i / kOps)));
        std::copy(computed.begin(), computed.end(), data[i].begin());
      }));
      Request r = on.Allreduce(rank, "t" + std::to_string(i % kOps));
      r.inputs = r.outputs = {on.On(DType::kF32, data[i], &data[i], events[i])};
      operations.push_back(world.Submit(rank, std::move(r)));
      open.push_back(i);
    }
    while (!open.empty()) {
      for (int step = 0; step < 20; ++step) world.Step();
      const size_t pick = world.rng().Below(open.size());
      const size_t i = open[pick];
      EXPECT_FALSE(operations[i]->ended.load()) << "ended before its input was ready";
      on.device(static_cast<int32_t>(i / kOps)).Finish(events[i]);
      open.erase(open.begin() + static_cast<long>(pick));
    }
    ASSERT_TRUE(world.RunUntilEnded(operations));
    for (size_t i = 0; i < data.size(); ++i) {
      on.device(static_cast<int32_t>(i / kOps)).Synchronize(&data[i]);
      ASSERT_EQ(data[i], Floats(100, 7.0f));
    }
  }
}

// Every op of every type, in place and not, for lengths of some segments and of none, over memory
// that ranks share and over a network, with staging buffers in the arena and without.
TEST(DeviceTest, GivesTheBitsOfTheCpu) {
  constexpr int32_t kRanks = 3;
  uint64_t seed = 1;
  for (const bool mirrored : {false, true})
    for (int type = 0; type < static_cast<int>(DType::kBool); ++type)
      for (const Op op : {Op::kSum, Op::kMin, Op::kMax, Op::kProduct})
        for (const size_t elems : {size_t{0}, size_t{1}, size_t{900}, size_t{20011}}) {
          const DType dtype{static_cast<uint8_t>(type)};
          SCOPED_TRACE(std::string(NameOf(dtype)) + " " + NameOf(op) + " of " +
                       std::to_string(elems) + " elements" + (mirrored ? ", mirrored" : ""));
          ++seed;
          Devices on({.size = kRanks,
                      .seed = seed,
                      .mirrored = mirrored,
                      .device_arena_bytes = seed % 3 == 0 ? 0 : uint64_t{1} << 20});
          const bool in_place = seed % 2 == 0;
          std::vector<Bytes> inputs(kRanks, Bytes(elems * SizeOf(dtype)));
          for (Bytes& input : inputs)
            for (std::byte& b : input) b = static_cast<std::byte>(on.world().rng().Below(64));
          Bytes expected(elems * SizeOf(dtype));
          std::vector<const std::byte*> sources;
          for (const Bytes& input : inputs) sources.push_back(input.data());
          std::byte* target = expected.data();
          ScalarKernels().reduce({dtype, op, 1.0, 1.0}, sources, {&target, 1}, elems,
                                 Stores::kCached);
          std::vector<Bytes> outputs(kRanks, Bytes(expected.size()));
          std::vector<Operation*> operations;
          for (int32_t r = 0; r < kRanks; ++r) {
            Bytes& input = inputs[static_cast<size_t>(r)];
            Bytes& output = in_place ? input : outputs[static_cast<size_t>(r)];
            Request request = on.Allreduce(r, "x", op);
            request.inputs = {on.On(dtype, input, &input, nullptr)};
            request.outputs = {on.On(dtype, output, &input, nullptr)};
            operations.push_back(on.world().Submit(r, std::move(request)));
          }
          ASSERT_TRUE(on.world().RunUntilEnded(operations));
          for (int32_t r = 0; r < kRanks; ++r) {
            Bytes& input = inputs[static_cast<size_t>(r)];
            ASSERT_TRUE(operations[static_cast<size_t>(r)]->status.ok());
            on.device(r).Synchronize(&input);
            ASSERT_EQ(in_place ? input : outputs[static_cast<size_t>(r)], expected);
          }
        }
}

// device-F4: data still to be copied to the device is not overwritten by the next exchange.
TEST(DeviceTest, ARoomIsNotTakenBeforeItsCopiesAreOver) {
  Devices on({.size = 2, .seed = 5}, 0);
  std::vector<std::vector<Bytes>> data(2);
  for (int32_t r = 0; r < 2; ++r)
    for (int k = 0; k < 8; ++k)
      data[static_cast<size_t>(r)].push_back(Floats(5000, static_cast<float>(k + r + 1)));
  for (size_t k = 0; k < 8; ++k) {
    std::vector<Operation*> operations;
    for (int32_t r = 0; r < 2; ++r) {
      Bytes& memory = data[static_cast<size_t>(r)][k];
      Request request = on.Allreduce(r, "x");
      request.inputs = request.outputs = {on.On(DType::kF32, memory, &memory, nullptr)};
      operations.push_back(on.world().Submit(r, std::move(request)));
    }
    ASSERT_TRUE(on.world().RunUntilEnded(operations));
  }
  for (int32_t r = 0; r < 2; ++r)
    for (size_t k = 0; k < 8; ++k) {
      Bytes& memory = data[static_cast<size_t>(r)][k];
      on.device(r).Synchronize(&memory);
      ASSERT_EQ(memory, Floats(5000, 2 * static_cast<float>(k) + 3)) << "operation " << k;
    }
}

// Buffers beyond the part of the arena that staging buffers may take are on the heap.
TEST(DeviceTest, StagingBuffersLeaveTheArenaToOthers) {
  Devices on({.size = 2, .seed = 9, .device_arena_bytes = 64 << 10});
  for (const size_t elems : {size_t{30'000}, size_t{100}}) {
    std::vector<Bytes> data(2, Floats(elems, 2.0f));
    std::vector<Operation*> operations;
    for (int32_t r = 0; r < 2; ++r) {
      Bytes& memory = data[static_cast<size_t>(r)];
      Request request = on.Allreduce(r, "x" + std::to_string(elems));
      request.inputs = request.outputs = {on.On(DType::kF32, memory, &memory, nullptr)};
      operations.push_back(on.world().Submit(r, std::move(request)));
    }
    ASSERT_TRUE(on.world().RunUntilEnded(operations));
    for (int32_t r = 0; r < 2; ++r) {
      Bytes& memory = data[static_cast<size_t>(r)];
      on.device(r).Synchronize(&memory);
      EXPECT_EQ(memory, Floats(elems, 4.0f));
      const DeviceTransfers* transfers =
          on.world().runtime(r).executor().transfers(DeviceType::kFake);
      EXPECT_EQ(transfers->pinned_buffers().arena_slabs(), elems == 100 ? 1u : 0u);
    }
  }
}

// Over a network the first results go back while the last inputs are still to come.
TEST(DeviceTest, CopiesOverlapWithTheExchange) {
  Devices on({.size = 2, .seed = 7, .mirrored = true}, 2 * kSecond);
  std::vector<Bytes> data(2, Floats(200'000, 1.0f));
  bool overlapped = false;
  LateDevice& device = on.device(0);
  device.OnCopy([&](Device::Queue queue) {
    overlapped |= queue == Device::Queue::kToDevice && device.Waiting(Device::Queue::kToHost) > 0;
  });
  std::vector<Operation*> operations;
  for (int32_t r = 0; r < 2; ++r) {
    Bytes& memory = data[static_cast<size_t>(r)];
    Request request = on.Allreduce(r, "x");
    request.inputs = request.outputs = {on.On(DType::kF32, memory, &memory, nullptr)};
    operations.push_back(on.world().Submit(r, std::move(request)));
  }
  ASSERT_TRUE(on.world().RunUntilEnded(operations));
  EXPECT_TRUE(overlapped);
}

// Wherever it fails, all ranks come to an end, and ranks that are not done name the failed rank.
TEST(DeviceTest, ADeviceThatFailsNeverHangsAPeer) {
  int done_everywhere = 0;
  for (int calls = 0; calls < 40; ++calls) {
    for (const bool mirrored : {false, true}) {
      SCOPED_TRACE("after " + std::to_string(calls) + (mirrored ? ", mirrored" : ""));
      Devices on({.size = 3, .seed = static_cast<uint64_t>(calls + 1), .mirrored = mirrored});
      on.device(1).FailAfter(calls);
      std::vector<Bytes> data(3, Floats(3000, 1.0f));
      std::vector<Operation*> operations;
      for (int32_t r = 0; r < 3; ++r) {
        Bytes& memory = data[static_cast<size_t>(r)];
        Request request = on.Allreduce(r, "x");
        request.inputs = request.outputs = {on.On(DType::kF32, memory, &memory, nullptr)};
        operations.push_back(on.world().Submit(r, std::move(request)));
      }
      ASSERT_TRUE(on.world().RunUntilEnded(operations)) << "a rank waits for ever";
      bool all = true;
      for (int32_t r = 0; r < 3; ++r) {
        const Status& status = operations[static_cast<size_t>(r)]->status;
        on.device(r).Synchronize(&data[static_cast<size_t>(r)]);
        all &= status.ok();
        if (status.ok() && r == 1) continue;  // what it told the user's stream may be lost
        if (status.ok()) {
          EXPECT_EQ(data[static_cast<size_t>(r)], Floats(3000, 3.0f));
          continue;
        }
        EXPECT_EQ(status.code(), StatusCode::kAborted);
        EXPECT_EQ(status.peer(), Rank{1});
        const char* why = r == 1 ? "lost its device: it has fallen off the bus" : "rank 1 ";
        EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
      }
      done_everywhere += all;
    }
  }
  EXPECT_GT(done_everywhere, 0) << "it always failed in time: the test never saw the end";
}

// A device rings no thread: the driving thread must be told to come again soon.
TEST(DeviceTest, WhoWaitsForADeviceComesAgainSoon) {
  Devices on({.size = 1, .seed = 1}, kMillisecond);
  World& world = on.world();
  Bytes values = Floats(100, 1.0f);
  void* event = on.device(0).Compute(kNever, nullptr);
  Request r = on.Allreduce(0, "t");
  r.inputs = r.outputs = {on.On(DType::kF32, values, &values, event)};
  r.recorded = {event};
  Operation* operation = world.Submit(0, std::move(r));
  for (int pass = 0; pass < 20; ++pass) world.Step();
  bool moved = false;
  EXPECT_LE(world.runtime(0).RunOnce(&moved), world.now() + kMillisecond);
  EXPECT_NE(world.runtime(0).StatusText().find("waits for the device of this rank"),
            std::string::npos);
  on.device(0).Finish(event);
  EXPECT_EQ(on.device(0).given_back(), 0);
  ASSERT_TRUE(world.RunUntilEnded({operation}));
  EXPECT_EQ(on.device(0).given_back(), 1);
  world.runtime(0).RunOnce(&moved);
  EXPECT_GT(world.runtime(0).RunOnce(&moved), world.now() + kMillisecond);
}

}  // namespace
}  // namespace covey
