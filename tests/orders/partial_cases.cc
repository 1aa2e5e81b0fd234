#include <map>

#include "core/partial/rounds.h"
#include "ops/transports/shm_words.h"
#include "tests/orders/cases.h"

namespace covey {
namespace {

constexpr size_t kElems = 32;  // two tiles
constexpr RoundSpan kSpans[1] = {{DType::kF32, kElems}};
constexpr int kMembers = 2;

using Gradient = std::array<float, kElems>;

// Two members make versions of gradients, any of them alone if it comes first; a third thread reads
// the first version from the log, which keeps one. A gradient is of one number, a power of two that
// no other has: a result is one number, equal on all ranks, and each gradient counts once.
class RoundsCase final : public OrdersCase {
 public:
  int threads() const override { return kMembers + 1; }

  void Begin(Execution* execution) override {
    execution_ = execution;
    const RoundMemory shape({.size = kMembers, .log = 1, .hypers = 1}, RoundLayout(kSpans, 64));
    const size_t lengths[] = {shape.BlockBytes(0), shape.BlockBytes(1)};
    mappings_ = std::make_unique<Mappings>(execution, threads(), lengths[0] + lengths[1]);
    for (int t = 0; t <= threads(); ++t) {
      RoundMemory& memory = memories_.emplace_back(shape);
      memory.Map({(*mappings_)[t], (*mappings_)[t] + lengths[0]});
    }
    const RoundMemory& memory = memories_[0];
    for (int32_t i = 0; i < kMembers; ++i)
      WatchFrom(reinterpret_cast<std::byte*>(memory.Header(i, 0)),
                memory.Buffer(i, 0) + shape.layout().length_bytes() * kSlotBuffers);
    for (uint32_t buffer = 0; buffer < shape.result_buffers(); ++buffer)
      WatchFrom(memory.Result(buffer), memory.Result(buffer) + shape.result_bytes());
  }

  void Run(int thread) override { thread < kMembers ? Train(thread) : Look(thread); }

 private:
  static constexpr uint64_t kSteps = 3;

  void WatchFrom(const std::byte* begin, const std::byte* end) {
    execution_->Watch(static_cast<size_t>(begin - (*mappings_)[0]),
                      static_cast<size_t>(end - begin));
  }

  void Train(int thread) {
    Rounds rounds({.self = thread,
                   .admission = {.count = 1},
                   .max_wait = kNever,
                   .kernels = &ScalarKernels()},
                  &memories_[static_cast<size_t>(thread)], &words_);
    uint64_t applied = 0;
    Time now = 0;
    for (uint64_t step = 1; step <= kSteps; ++step) {
      const auto value = static_cast<float>(1u << (2 * step + static_cast<uint64_t>(thread)));
      auto* gradient = reinterpret_cast<float*>(rounds.open());
      std::fill(gradient, gradient + kElems, value);
      const double hypers[] = {value};
      rounds.Publish(hypers);
      Gradient sum;
      void* to[] = {sum.data()};
      rounds.RegisterOutput(to);
      // Each look comes later than a claimed tile may take: a late member's tiles are done again.
      for (bool moved = true; rounds.executed() <= applied; now += kMillisecond * 2) {
        rounds.Advance(now, &moved);
        if (!moved) execution_->Yield();
      }
      RoundRecord record;
      const uint64_t version = applied + 1;
      const Found found = rounds.Read(version, to, &record);
      if (found == Found::kYes) Check(version, sum, record);
      applied = version;
    }
  }

  void Look(int thread) {
    const ResultLog log(&memories_[static_cast<size_t>(thread)], &words_, &ScalarKernels());
    for (int look = 0; look < 3; ++look) {
      Gradient sum;
      void* to[] = {sum.data()};
      RoundRecord record;
      if (log.Read(1, to, &record) == Found::kYes) Check(1, sum, record);
      execution_->Yield();
    }
  }

  void Check(uint64_t version, const Gradient& sum, const RoundRecord& record) {
    const std::string name = "version " + std::to_string(version);
    for (const float element : sum)
      execution_->Expect(element == sum[0], "partial-W10: " + name + " has " +
                                                std::to_string(element) + " and " +
                                                std::to_string(sum[0]));
    execution_->Expect(record.header.version == version,
                       "partial-W10: the record of " + name + " is of another one");
    const auto number = static_cast<uint64_t>(sum[0]);
    const bool is_new = results_.find(version) == results_.end();
    for (const auto& [other, result] : results_)
      execution_->Expect(other == version ? result == number : (result & number) == 0,
                         "partial-W2: " + name + " is " + std::to_string(number) + ", version " +
                             std::to_string(other) + " " + std::to_string(result));
    if (is_new) results_[version] = number;
    uint64_t count = 0;
    for (const Contribution& one : record.contributions) count += one.count;
    execution_->Expect(count == static_cast<uint64_t>(__builtin_popcountll(number)),
                       "partial-W3: the record of " + name + " counts others");
  }

  Execution* execution_ = nullptr;
  std::unique_ptr<Mappings> mappings_;
  std::vector<RoundMemory> memories_;     // by thread
  std::map<uint64_t, uint64_t> results_;  // by version
  ShmWords words_;
};

}  // namespace

std::vector<NamedCase> PartialCases() {
  return {{"rounds",
           [] { return std::unique_ptr<OrdersCase>(std::make_unique<RoundsCase>()); },
           {.deviations = 2, .most_searched = 1000, .drawn = 1000}}};
}

}  // namespace covey
