// A job in one process: N complete runtimes over an InprocNetwork, driven by one seed. Nothing
// stands in for a stage; the shipped code runs.
//
// The seed decides which rank runs next, how far the clock moves, and how long messages take.
#ifndef COVEY_TESTS_SIM_SIMULATOR_WORLD_H_
#define COVEY_TESTS_SIM_SIMULATOR_WORLD_H_

#include <memory>
#include <string>
#include <vector>

#include "core/engine/runtime.h"
#include "ops/transports/inproc.h"

namespace covey {

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

  explicit World(const Options& options);
  ~World();

  int32_t size() const { return options_.size; }
  Rng& rng() { return network_.rng(); }
  InprocNetwork& network() { return network_; }
  Runtime& runtime(int32_t r) { return *nodes_[static_cast<size_t>(r)]->runtime; }
  const std::vector<int32_t>& everybody() const { return world_; }

  // The group of these ranks as rank r sees it.
  const Group* GroupOn(int32_t r, const std::vector<int32_t>& ranks);

  // Submits `request` on rank r. `request.group` must come from GroupOn(r, ...).
  Operation* Submit(int32_t r, Request request);

  // Rank r's user begins to wait for the operation.
  void Await(int32_t r, Operation* operation);

  // One rank, chosen by the seed, does one pass.
  void Step();

  // Steps until all these operations have ended, of which the user then knows. False: they have not
  // within the bound.
  bool RunUntilEnded(const std::vector<Operation*>& operations, int max_steps = 2'000'000);

  void AdvanceClock(Time by) { network_.clock().Advance(by); }
  Time now() { return network_.clock().Now(); }
  std::byte* ArenaMemory(int32_t r, size_t length_bytes);

 private:
  void See(const Operation* operation);

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
Tensor MakeTensor(DType dtype, std::vector<int64_t> dims, void* data);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_WORLD_H_
