#include <map>

#include "core/partial/rounds.h"
#include "ops/transports/shm_words.h"
#include "tests/orders/cases.h"

namespace covey {
namespace {

constexpr size_t kElems = 32;  // two tiles
constexpr RoundSpan kSpans[1] = {{DType::kF32, kElems}};
constexpr int kMembers = 2;

// All elements of a model are alike; that one number.
float NumberOf(Execution* execution, const float* model, const std::string& what) {
  for (size_t i = 0; i < kElems; ++i)
    execution->Expect(model[i] == model[0], "partial-W12: " + what + " has " +
                                                std::to_string(model[i]) + " and " +
                                                std::to_string(model[0]));
  return model[0];
}

// Memory of rounds of models as each thread maps it.
class ModelMemory {
 public:
  explicit ModelMemory(Execution* execution, int threads, const RoundMemory::Shape& of) {
    const RoundMemory shape(of, RoundLayout(kSpans, 64));
    const size_t first_bytes = shape.BlockBytes(0);
    mappings_ = std::make_unique<Mappings>(execution, threads, first_bytes + shape.BlockBytes(1));
    for (int t = 0; t <= threads; ++t)
      memories_.emplace_back(shape).Map({(*mappings_)[t], (*mappings_)[t] + first_bytes});
    const auto watch = [&](const void* begin, const std::byte* end) {
      const auto* first = static_cast<const std::byte*>(begin);
      execution->Watch(static_cast<size_t>(first - (*mappings_)[0]),
                       static_cast<size_t>(end - first));
    };
    const RoundMemory& memory = memories_[0];
    for (int32_t i = 0; i < kMembers; ++i)
      watch(memory.Header(i, 0),
            memory.Buffer(i, 0) + shape.layout().length_bytes() * kSlotBuffers);
    for (uint32_t buffer = 0; buffer < shape.result_buffers(); ++buffer)
      watch(memory.Result(buffer), memory.Result(buffer) + shape.result_bytes());
  }
  const RoundMemory& operator[](int thread) const { return memories_[static_cast<size_t>(thread)]; }

 private:
  std::unique_ptr<Mappings> mappings_;
  std::vector<RoundMemory> memories_;  // by thread
};

// Two members average their models: in version 4 both, in the others whoever has come first. A
// third thread looks at the model of the first. Each model, each mean and each look is one number;
// a version has one mean; and the mean that a member goes on from stays while it does.
class ModelsCase final : public OrdersCase {
 public:
  int threads() const override { return kMembers + 1; }

  void Begin(Execution* execution) override {
    execution_ = execution;
    memory_ = std::make_unique<ModelMemory>(
        execution, threads(),
        RoundMemory::Shape{
            .size = kMembers, .log = 1, .hypers = 1, .models = {.group_size = 2, .sync_every = 4}});
  }

  void Run(int thread) override {
    Rounds rounds({.self = thread % kMembers,
                   .admission = {.count = 1},
                   .max_wait = kNever,
                   .kernels = &ScalarKernels()},
                  &(*memory_)[thread], &words_);
    thread < kMembers ? Train(thread, &rounds) : Look(rounds);
  }

 private:
  static constexpr uint64_t kSteps = 4;

  void Train(int thread, Rounds* rounds) {
    std::array<float, kElems> model;
    model.fill(64);
    std::memcpy(rounds->open(), model.data(), sizeof(model));
    rounds->Begin();
    const float* held = nullptr;
    float mean = 0;
    Time now = 0;
    for (uint64_t step = 1; step <= kSteps; ++step) {
      for (float& element : model) element += 1024.0F * static_cast<float>(1 + thread);
      std::memcpy(rounds->open(), model.data(), sizeof(model));
      const double hypers[] = {static_cast<double>(step)};
      rounds->Publish(hypers);
      for (bool moved = true; rounds->executed() < step; now += kMillisecond * 2) {
        rounds->Advance(now, &moved);
        if (!moved) execution_->Yield();
      }
      if (held != nullptr)
        execution_->Expect(NumberOf(execution_, held, "a mean that is held") == mean,
                           "partial-W10: a mean that is held has changed");
      void* to[] = {rounds->open()};  // where some of it may lie already
      Merged merged;
      rounds->Merge(step, to, &merged);
      std::memcpy(model.data(), to[0], sizeof(model));
      NumberOf(execution_, model.data(), "a model");
      held = reinterpret_cast<const float*>(merged.mean);
      mean = NumberOf(execution_, held, "a mean");
      const float known = means_.emplace(merged.version, mean).first->second;
      execution_->Expect(known == mean, "partial-W12: version " + std::to_string(merged.version) +
                                            " has two means");
    }
  }

  void Look(const Rounds& rounds) {
    for (int look = 0; look < 3; ++look) {
      std::array<float, kElems> model;
      void* to[] = {model.data()};
      uint64_t step = 0;
      if (rounds.Peek(0, to, &step) && step > 0)
        NumberOf(execution_, model.data(), "a model of another rank");
      execution_->Yield();
    }
  }

  Execution* execution_ = nullptr;
  std::unique_ptr<ModelMemory> memory_;
  std::map<uint64_t, float> means_;  // by version
  ShmWords words_;
};

// A member enters results into a log that keeps one. Another one holds those that it finds, and
// reads each twice: it is whole, of its version, and stays while it is held.
class HoldCase final : public OrdersCase {
 public:
  int threads() const override { return 2; }

  void Begin(Execution* execution) override {
    execution_ = execution;
    memory_ = std::make_unique<ModelMemory>(execution, threads(),
                                            RoundMemory::Shape{.size = kMembers, .log = 1});
  }

  void Run(int thread) override {
    ResultLog log(&(*memory_)[thread], &words_, &ScalarKernels());
    thread == 0 ? Hold(log) : Enter(&log);
  }

 private:
  static constexpr uint64_t kVersions = 4;

  void Enter(ResultLog* log) {
    const RoundMemory& memory = (*memory_)[1];
    for (uint64_t version = 1; version <= kVersions; ++version) {
      const uint32_t buffer = log->FreeBuffer();
      auto* words = reinterpret_cast<uint64_t*>(memory.Result(buffer));
      std::fill_n(words, memory.result_bytes() / sizeof(uint64_t), version);
      log->Enter(version, buffer);
    }
  }

  void Hold(const ResultLog& log) {
    for (uint64_t version = 1; version <= kVersions; ++version) {
      const std::byte* result = nullptr;
      if (log.Hold(0, version, &result) != Found::kYes) continue;
      for (int look = 0; look < 2; ++look) {
        const auto* words = reinterpret_cast<const uint64_t*>(result);
        for (size_t i = 0; i < (*memory_)[0].result_bytes() / sizeof(uint64_t); ++i)
          execution_->Expect(words[i] == version,
                             "partial-W10: version " + std::to_string(version) +
                                 " is held and has " + std::to_string(words[i]));
        execution_->Yield();
      }
      log.Release(0);
    }
  }

  Execution* execution_ = nullptr;
  std::unique_ptr<ModelMemory> memory_;
  ShmWords words_;
};

// A member gives its state after each of three versions, in the same place. Another one that needs
// a state takes what stands: it is whole, and of the version that the offer names.
class SnapshotCase final : public OrdersCase {
 public:
  int threads() const override { return 2; }

  void Begin(Execution* execution) override {
    execution_ = execution;
    const RoundMemory shape({.size = kMembers, .log = 1}, RoundLayout(kSpans, 64));
    const size_t block_bytes = shape.BlockBytes(0);
    mappings_ = std::make_unique<Mappings>(execution, threads(),
                                           block_bytes + sizeof(State) + shape.BlockBytes(1));
    for (int t = 0; t <= threads(); ++t)
      memories_.emplace_back(shape).Map(
          {(*mappings_)[t], (*mappings_)[t] + block_bytes + sizeof(State)});
    execution->Watch(block_bytes, sizeof(State));
    place_ = block_bytes;
  }

  void Run(int thread) override {
    Snapshots snapshots(thread, kSecond, &memories_[static_cast<size_t>(thread)], &words_,
                        &ScalarKernels());
    thread == 0 ? Give(&snapshots) : Take(&snapshots);
  }

 private:
  using State = std::array<uint64_t, 8>;
  static constexpr uint64_t kVersions = 3;

  void Give(Snapshots* snapshots) {
    for (uint64_t version = 1; version <= kVersions; ++version) {
      State state;
      state.fill(version);
      const auto* bytes = reinterpret_cast<const std::byte*>(state.data());
      constexpr size_t kHalf = sizeof(State) / 2;
      const Snapshots::Part parts[] = {{bytes, kHalf}, {bytes + kHalf, kHalf}};
      snapshots->Give(version, (*mappings_)[0] + place_, parts);
    }
  }

  void Take(Snapshots* snapshots) {
    uint64_t applied = 0;
    for (int look = 0; look < 4 && applied < kVersions; ++look) {
      const Offer offer = snapshots->Find(applied, applied);
      State state;
      if (offer.member < 0) {
        execution_->Yield();
        continue;
      }
      execution_->Expect(offer.length_bytes == sizeof(state), "partial-W10a: an offer's length");
      if (!snapshots->Take(offer, reinterpret_cast<std::byte*>(state.data()))) continue;
      for (const uint64_t word : state)
        execution_->Expect(word == offer.version, "partial-W10a: the state after " +
                                                      std::to_string(offer.version) + " has " +
                                                      std::to_string(word));
      applied = offer.version;
    }
  }

  Execution* execution_ = nullptr;
  std::unique_ptr<Mappings> mappings_;
  std::vector<RoundMemory> memories_;  // by thread
  size_t place_ = 0;                   // of a state, in the region of the first
  ShmWords words_;
};

}  // namespace

std::vector<NamedCase> ModelCases() {
  return {{"models",
           [] { return std::unique_ptr<OrdersCase>(std::make_unique<ModelsCase>()); },
           {.deviations = 2, .most_searched = 1000, .drawn = 1000}},
          {"hold",
           [] { return std::unique_ptr<OrdersCase>(std::make_unique<HoldCase>()); },
           {.deviations = 3, .most_searched = 4000, .drawn = 3000}},
          {"snapshot",
           [] { return std::unique_ptr<OrdersCase>(std::make_unique<SnapshotCase>()); },
           {.deviations = 3, .most_searched = 4000, .drawn = 3000}}};
}

}  // namespace covey
