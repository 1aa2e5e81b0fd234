#include "tests/sim/simulator/world.h"

#include <gtest/gtest.h>

#include <utility>

#include "core/plan/selector.h"
#include "core/plan/verify.h"
#include "tests/sim/simulator/mailed_transport.h"

namespace covey {
namespace {

constexpr size_t kMirrorBytes = 4 << 20;

// Plan, but an algorithm is proven right for a problem before a world first uses it. Every group
// has a member 0, and one proof holds for all members.
Schedule VerifiedPlan(const SelectorSettings& settings, const Problem& problem) {
  const Algorithm& algorithm = Select(settings, problem);
  if (problem.me == 0) {
    const Status status = Verify(algorithm, problem);
    EXPECT_TRUE(status.ok()) << NameOf(problem.kind) << "/" << algorithm.name << ": "
                             << status.message();
  }
  return Plan(settings, problem);
}

}  // namespace

World::World(const Options& options)
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

World::~World() = default;

const Group* World::GroupOn(int32_t r, const std::vector<int32_t>& ranks) {
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

Operation* World::Submit(int32_t r, Request request) {
  Node& node = *nodes_[static_cast<size_t>(r)];
  Operation* operation = node.queue.New();
  static_cast<Request&>(*operation) = std::move(request);
  uint64_t handle = 0;
  const Status status = node.queue.Submit(operation, &handle);
  EXPECT_TRUE(status.ok()) << status.message();
  return status.ok() ? operation : nullptr;
}

void World::Await(int32_t r, Operation* operation) {
  nodes_[static_cast<size_t>(r)]->queue.Await(operation);
}

void World::Step() {
  const auto r = static_cast<int32_t>(rng().Below(static_cast<uint64_t>(size())));
  network_.clock().Advance(static_cast<Time>(rng().Below(20 * kMicrosecond)));
  if (network_.IsDead(Rank{r})) return;
  bool moved = false;
  runtime(r).RunOnce(&moved);
}

bool World::RunUntilEnded(const std::vector<Operation*>& operations, int max_steps) {
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

std::byte* World::ArenaMemory(int32_t r, size_t length_bytes) {
  return static_cast<std::byte*>(network_.transport(Rank{r}).AllocData(length_bytes));
}

void World::See(const Operation* operation) {
  for (const auto& node : nodes_)
    if (node->queue.Find(operation->handle) == operation)
      HeldOperation(&node->queue, operation->handle).See();
}

Tensor MakeTensor(DType dtype, std::vector<int64_t> dims, void* data) {
  Tensor t;
  t.dtype = dtype;
  t.shape.ndim = static_cast<int32_t>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) t.shape.dims[i] = dims[i];
  t.data = static_cast<std::byte*>(data);
  return t;
}

}  // namespace covey
