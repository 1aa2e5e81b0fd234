#include "core/gossip/gossip.h"
#include "ops/transports/shm_words.h"
#include "tests/orders/cases.h"

namespace covey {
namespace {

constexpr size_t kElems = 16;
constexpr RoundSpan kSpans[1] = {{DType::kF32, kElems}};
constexpr int kMembers = 2;

using Model = std::array<float, kElems>;

// Two members train and average with each other; a third thread looks at the first one's model. A
// model is of one number in all its elements: each copy is one of one moment, and the sum of both
// models is that of the first ones and of all progress (gossip-P1).
class PairsCase final : public OrdersCase {
 public:
  int threads() const override { return kMembers + 1; }

  void Begin(Execution* execution) override {
    execution_ = execution;
    const PairMemory shape(kMembers, RoundLayout(kSpans, 64));
    const size_t block_bytes = shape.BlockBytes();
    mappings_ = std::make_unique<Mappings>(execution, threads(), block_bytes * kMembers);
    for (int t = 0; t <= threads(); ++t) {
      PairMemory& memory = memories_.emplace_back(shape);
      memory.Map({(*mappings_)[t], (*mappings_)[t] + block_bytes});
    }
    for (int32_t i = 0; i < kMembers; ++i) {
      const std::byte* begin = memories_[0].Buffer(i, 0);
      execution->Watch(static_cast<size_t>(begin - (*mappings_)[0]),
                       shape.layout().length_bytes() * kPairBuffers);
    }
  }

  void Run(int thread) override {
    Gossip gossip(thread % kMembers, &memories_[static_cast<size_t>(thread)], &words_,
                  &ScalarKernels());
    thread < kMembers ? Train(thread, &gossip) : Look(&gossip);
  }

  void End() override {
    PairExchange exchange(0, &memories_.back(), &words_);
    float sum = 0;
    for (int32_t i = 0; i < kMembers; ++i) {
      Model model;
      std::memcpy(model.data(), memories_.back().Buffer(exchange.Settled(i)), sizeof(model));
      sum += Same(model, "at the end");
    }
    execution_->Expect(sum == kMembers * (kFirst + kSteps * kProgress),
                       "gossip-P1: the sum of models is " + std::to_string(sum));
  }

 private:
  static constexpr float kFirst = 64, kProgress = 1024;
  static constexpr int kSteps = 2;

  void Train(int thread, Gossip* gossip) {
    Model model;
    model.fill(kFirst);
    void* span[] = {model.data()};
    const void* first[] = {model.data()};
    gossip->Begin(first);
    for (int step = 0; step < kSteps; ++step) {
      for (float& element : model) element += kProgress;
      gossip->Update(span);
      Same(model, "after an update");
      if (thread == 0 || step == 0) (void)gossip->Exchange(1 - thread, span);
      Same(model, "after an exchange");
    }
  }

  void Look(Gossip* gossip) {
    for (int look = 0; look < 2; ++look) {
      Model model;
      void* to[] = {model.data()};
      if (gossip->Peek(0, to)) Same(model, "of another rank");
    }
  }

  float Same(const Model& model, const char* when) {
    for (const float element : model)
      execution_->Expect(element == model[0], std::string("gossip-P2: a model ") + when + " has " +
                                                  std::to_string(element) + " and " +
                                                  std::to_string(model[0]));
    return model[0];
  }

  Execution* execution_ = nullptr;
  std::unique_ptr<Mappings> mappings_;
  std::vector<PairMemory> memories_;  // by thread
  ShmWords words_;
};

}  // namespace

std::vector<NamedCase> GossipCases() {
  return {{"pairs",
           [] { return std::unique_ptr<OrdersCase>(std::make_unique<PairsCase>()); },
           {.deviations = 2, .most_searched = 3000, .drawn = 2000}}};
}

}  // namespace covey
