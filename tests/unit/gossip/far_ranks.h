// Ranks on hosts of their own that average models in pairs, and the links between them: the test
// delivers each message.
#ifndef COVEY_TESTS_UNIT_GOSSIP_FAR_RANKS_H_
#define COVEY_TESTS_UNIT_GOSSIP_FAR_RANKS_H_

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/gossip/far_pairs.h"
#include "core/replicated/private_blocks.h"
#include "core/transport/private_atomics.h"

namespace covey {

inline constexpr size_t kFloats = 2000;  // more than a chunk

class Ranks {
 public:
  explicit Ranks(int32_t size, const PairCodec& codec = {}) {
    for (int32_t r = 0; r < size; ++r) {
      ranks_.push_back(std::make_unique<One>(r, size, codec));
      Set(r, 0, 0);
    }
    links_.resize(static_cast<size_t>(size * size));
  }

  // Its model before it begins: all numbers, and what is added to the i-th for each i.
  void Set(int32_t r, double value, double slope) {
    for (size_t i = 0; i < kFloats; ++i)
      At(r).floats[i] = static_cast<float>(value + slope * static_cast<double>(i));
    At(r).number = value;
  }
  void Begin() {
    for (int32_t r = 0; r < size(); ++r) {
      const void* spans[] = {At(r).floats.data(), &At(r).number};
      At(r).gossip.Begin(spans);
      At(r).far.Begin();
    }
    DeliverAll();
  }
  // One step of this rank.
  void Learn(int32_t r, double by) {
    At(r).number += by;
    for (float& one : At(r).floats) one += static_cast<float>(by);
    void* spans[] = {At(r).floats.data(), &At(r).number};
    At(r).gossip.Update(spans);
  }
  FarPairs& far(int32_t r) { return At(r).far; }
  double number(int32_t r) { return Look(r).second; }
  std::vector<float> floats(int32_t r) { return Look(r).first; }
  double Sum() {
    double sum = 0;
    for (int32_t r = 0; r < size(); ++r) sum += number(r);
    return sum;
  }

  // Its messages are on their way.
  void Send(int32_t r) {
    for (EncodedMessage& message : At(r).far.TakeMessages()) {
      bytes_ += message.bytes.size();
      LinkOf(r, message.to).push_back(std::move(message.bytes));
    }
  }
  // The first message on its way; false: there is none.
  bool Deliver(int32_t from, int32_t to) {
    std::deque<Bytes>& link = LinkOf(from, to);
    if (link.empty()) return false;
    last_ = std::move(link.front());
    link.pop_front();
    At(to).far.OnMessage(from, last_);
    return true;
  }
  void DeliverAll() {
    for (bool any = true; any;) {
      any = false;
      for (int32_t from = 0; from < size(); ++from) {
        Send(from);
        for (int32_t to = 0; to < size(); ++to) any |= Deliver(from, to);
      }
    }
  }
  // Both have averaged, or not.
  void Average(int32_t r, int32_t partner) {
    EXPECT_EQ(far(r).Offer(partner), Gossip::Outcome::kDone);
    DeliverAll();
  }
  // The partner has accepted an offer of `r`, whose model is on its way.
  void SendInput(int32_t r, int32_t partner) {
    EXPECT_EQ(far(r).Offer(partner), Gossip::Outcome::kDone);
    Send(r);
    EXPECT_TRUE(Deliver(r, partner));
    Send(partner);
    EXPECT_TRUE(Deliver(partner, r));
    Send(r);
  }
  const Bytes& last() const { return last_; }
  size_t TakeBytes() { return std::exchange(bytes_, 0); }

 private:
  struct One {
    One(int32_t r, int32_t size, const PairCodec& codec)
        : layout(std::vector<RoundSpan>{{DType::kF32, kFloats}, {DType::kF64, 1}}, 1 << 12),
          memory(1, layout),
          gossip(0, Mapped(), &words, &BestKernels(), codec, Gossip::End::kElsewhere),
          far(r, size, &gossip, &layout, &BestKernels(), codec) {}
    PairMemory* Mapped() {
      memory.Map({blocks.Add(memory.BlockBytes())});
      return &memory;
    }

    RoundLayout layout;
    PairMemory memory;
    PrivateBlocks blocks;
    PrivateAtomics words;
    Gossip gossip;
    FarPairs far;
    std::vector<float> floats = std::vector<float>(kFloats);
    double number = 0;
  };

  int32_t size() const { return static_cast<int32_t>(ranks_.size()); }
  One& At(int32_t r) { return *ranks_[static_cast<size_t>(r)]; }
  std::deque<Bytes>& LinkOf(int32_t from, int32_t to) {
    return links_[static_cast<size_t>(from * size() + to)];
  }
  std::pair<std::vector<float>, double> Look(int32_t r) {
    std::pair<std::vector<float>, double> model{std::vector<float>(kFloats), 0};
    void* spans[] = {model.first.data(), &model.second};
    EXPECT_TRUE(At(r).gossip.Peek(0, spans));
    return model;
  }

  std::vector<std::unique_ptr<One>> ranks_;
  std::vector<std::deque<Bytes>> links_;  // [from * size + to]
  Bytes last_;
  size_t bytes_ = 0;
};

inline Ranks Begun(std::vector<double> models, const PairCodec& codec = {}) {
  Ranks ranks(static_cast<int32_t>(models.size()), codec);
  for (size_t r = 0; r < models.size(); ++r) ranks.Set(static_cast<int32_t>(r), models[r], 0);
  ranks.Begin();
  return ranks;
}

}  // namespace covey
#endif  // COVEY_TESTS_UNIT_GOSSIP_FAR_RANKS_H_
