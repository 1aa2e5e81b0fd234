// A job in one process: N complete runtimes over an InprocNetwork, driven by one seed. Nothing
// stands in for a stage; the shipped code runs.
//
// The seed decides which rank runs next, how far the clock moves, and how long messages take.
#ifndef COVEY_TESTS_SIM_WORLD_H_
#define COVEY_TESTS_SIM_WORLD_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/engine/runtime.h"
#include "core/plan/selector.h"
#include "core/plan/verify.h"
#include "ops/transports/inproc.h"
#include "tests/sim/simulator/mailed_transport.h"

namespace covey {

// Plan, but an algorithm is proven right for a problem before a world first uses it. Every group
// has a member 0, and one proof holds for all members.
inline Schedule VerifiedPlan(const void* settings, const Problem& problem) {
  const Algorithm& algorithm = Select(*static_cast<const SelectorSettings*>(settings), problem);
  if (problem.me == 0) {
    const Status status = Verify(algorithm, problem);
    EXPECT_TRUE(status.ok()) << NameOf(problem.kind) << "/" << algorithm.name << ": "
                             << status.message();
  }
  return Plan(settings, problem);
}

class World {
 public:
  struct Options {
    int32_t size = 2;
    uint64_t seed = 1;
    size_t segment_bytes = 4096;
    std::string algorithm = "auto";
    size_t flat_bytes = 1024;
    size_t read_bytes = 2048;
    bool can_read_peers = true;
    bool mirrored = false;              // ranks of different hosts mail each other what they write
    int32_t per_host = 1;               // ranks of a host, if mirrored; the last may have fewer
    std::vector<Device*> fake_devices;  // by rank; empty: there are none
    uint64_t device_arena_bytes = 1 << 20;
    LogLevel log_level = LogLevel::kOff;
    FusionRules fusion = {.threshold_bytes = 64 * 1024, .window = kMillisecond};
  };

  explicit World(const Options& options)
      : options_(options),
        network_({.size = options.size,
                  .seed = options.seed,
                  .region_bytes = 24 << 20,
                  .can_read_peers = options.can_read_peers}) {
    for (int32_t r = 0; r < options.size; ++r) {
      nodes_.push_back(std::make_unique<Node>());
      Node& node = *nodes_.back();
      node.log = std::make_unique<Log>(options.log_level, Rank{r});
      if (options.mirrored) {
        const Status opened =
            OpenMailedTransport(&network_, Rank{r}, options.per_host,
                                {.arena_bytes = kMirrorBytes, .put_bytes = 64}, &node.mirrored);
        EXPECT_TRUE(opened.ok()) << opened.message();
      }
      node.runtime = std::make_unique<Runtime>(
          Runtime::Options{.segment_bytes = options.segment_bytes,
                           .fusion = options.fusion,
                           .agreed_text = "segment_bytes=" + std::to_string(options.segment_bytes),
                           .selector = {.flat_bytes = options.flat_bytes,
                                        .read_bytes = options.read_bytes,
                                        .algorithm = options.algorithm},
                           .plan = VerifiedPlan,
                           .devices = {nullptr, nullptr,
                                       options.fake_devices.empty()
                                           ? nullptr
                                           : options.fake_devices[static_cast<size_t>(r)]},
                           .device_arena_bytes = options.device_arena_bytes,
                           .kernels = &BestKernels(),
                           .clock = &network_.clock(),
                           .log = node.log.get()},
          options.mirrored ? node.mirrored.get() : &network_.transport(Rank{r}), &node.queue);
    }
    std::vector<int32_t> all(static_cast<size_t>(options.size));
    for (int32_t r = 0; r < options.size; ++r) all[static_cast<size_t>(r)] = r;
    world_ = all;
  }

  int32_t size() const { return options_.size; }
  Rng& rng() { return network_.rng(); }
  InprocNetwork& network() { return network_; }
  Runtime& runtime(int32_t r) { return *nodes_[static_cast<size_t>(r)]->runtime; }
  const std::vector<int32_t>& everybody() const { return world_; }

  // The group of these ranks as rank r sees it.
  const Group* GroupOn(int32_t r, const std::vector<int32_t>& ranks) {
    auto group = std::make_unique<Group>();
    for (int32_t m : ranks) group->members.push_back(Rank{m});
    for (size_t i = 0; i < ranks.size(); ++i)
      if (ranks[i] == r) group->my_index = GroupIndex{static_cast<int32_t>(i)};
    group->key = static_cast<int32_t>(ranks.size()) == size() ? 0 : GroupKey(group->members);
    Node& node = *nodes_[static_cast<size_t>(r)];
    for (const auto& known : node.groups)
      if (known->key == group->key) return known.get();
    node.groups.push_back(std::move(group));
    return node.groups.back().get();
  }

  // Submits `request` on rank r. `request.group` must come from GroupOn(r, ...).
  Operation* Submit(int32_t r, Request request) {
    Node& node = *nodes_[static_cast<size_t>(r)];
    Operation* operation = node.queue.New();
    static_cast<Request&>(*operation) = std::move(request);
    uint64_t handle = 0;
    const Status status = node.queue.Submit(operation, &handle);
    EXPECT_TRUE(status.ok()) << status.message();
    return status.ok() ? operation : nullptr;
  }

  // Rank r's user begins to wait for the operation.
  void Await(int32_t r, Operation* operation) {
    nodes_[static_cast<size_t>(r)]->queue.Await(operation);
  }

  // One rank, chosen by the seed, does one pass.
  void Step() {
    const auto r = static_cast<int32_t>(rng().Below(static_cast<uint64_t>(size())));
    network_.clock().Advance(static_cast<Time>(rng().Below(20 * kMicrosecond)));
    if (network_.IsDead(Rank{r})) return;
    bool moved = false;
    runtime(r).RunOnce(&moved);
  }

  // Steps until all these operations have ended, of which the user then knows. False: they have not
  // within the bound.
  bool RunUntilEnded(const std::vector<Operation*>& operations, int max_steps = 2'000'000) {
    for (int step = 0; step < max_steps; ++step) {
      bool all = true;
      for (const Operation* operation : operations) all &= operation->ended.load();
      if (all) {
        for (const Operation* operation : operations) See(operation);
        return true;
      }
      Step();
    }
    return false;
  }

  void AdvanceClock(Time by) { network_.clock().Advance(by); }
  Time now() { return network_.clock().Now(); }
  std::byte* ArenaMemory(int32_t r, size_t length_bytes) {
    return static_cast<std::byte*>(network_.transport(Rank{r}).AllocData(length_bytes));
  }

 private:
  static constexpr size_t kMirrorBytes = 4 << 20;

  void See(const Operation* operation) {
    for (const auto& node : nodes_)
      if (node->queue.Find(operation->handle) == operation)
        HeldOperation(&node->queue, operation->handle).See();
  }

  struct Node {
    TensorQueue queue;
    std::unique_ptr<Log> log;
    std::vector<std::unique_ptr<Group>> groups;
    std::unique_ptr<Transport> mirrored;
    std::unique_ptr<Runtime> runtime;
  };

  Options options_;
  InprocNetwork network_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<int32_t> world_;
};

// A dense tensor over caller-owned memory.
inline Tensor MakeTensor(DType dtype, std::vector<int64_t> dims, void* data) {
  Tensor t;
  t.dtype = dtype;
  t.shape.ndim = static_cast<int32_t>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) t.shape.dims[i] = dims[i];
  t.data = static_cast<std::byte*>(data);
  return t;
}

}  // namespace covey
#endif  // COVEY_TESTS_SIM_WORLD_H_
