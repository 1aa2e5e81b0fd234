// An allreduce with a codec gives every rank the same bits, those of decoding every rank's code and
// reducing in float32 in rank order, whatever the order in which ranks and messages move. Where
// some ranks share a host and others do not, those of the codes of the hosts' sums.
//
// Method: whole runtimes in one process, random scheduling from a printed seed; a slow reference
// that encodes and decodes whole messages with the scalar kernels and combines one element at a
// time. World proves each schedule before it is used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "core/run/codec.h"
#include "tests/sim/simulator/world.h"

namespace covey {
namespace {

struct Case {
  std::string codec;
  Op op = Op::kSum;
  bool average = false;
  double prescale = 1;
  std::vector<int64_t> lengths;  // of the tensors that travel together
  bool feeds_back = false;
};

size_t ElemsOf(const Case& c) {
  int64_t elems = 0;
  for (int64_t length : c.lengths) elems += length;
  return static_cast<size_t>(elems);
}

ChosenCodec Chosen(const std::string& text) {
  ChosenCodec chosen;
  const Status status = ParseCodec(text, &chosen);
  EXPECT_TRUE(status.ok()) << status.message();
  return chosen;
}

float Combine(Op op, float a, float b) {
  if (op == Op::kSum) return a + b;
  if (op == Op::kProduct) return a * b;
  return op == Op::kMin ? std::min(a, b) : std::max(a, b);
}

// The elements that decoding makes of their code.
std::vector<float> Decoded(const ChosenCodec& chosen, const std::vector<float>& elements) {
  std::vector<std::byte> code(chosen.form.EncodedBytes(elements.size()));
  chosen.codec->encode(ScalarKernels(), chosen.values, elements, 0, code.data());
  std::vector<float> decoded(elements.size());
  chosen.codec->decode(ScalarKernels(), chosen.values, code.data(), decoded);
  return decoded;
}

void AddTo(std::vector<float>* sum, Op op, const std::vector<float>& term) {
  if (sum->empty()) {
    *sum = term;
    return;
  }
  for (size_t i = 0; i < term.size(); ++i) (*sum)[i] = Combine(op, (*sum)[i], term[i]);
}

std::vector<float> Scaled(std::vector<float> elements, double scale) {
  for (float& v : elements) v *= static_cast<float>(scale);
  return elements;
}

std::vector<float> Expected(const Case& c, const std::vector<std::vector<float>>& inputs) {
  const ChosenCodec chosen = Chosen(c.codec);
  std::vector<float> result;
  for (const std::vector<float>& input : inputs)
    AddTo(&result, c.op, Scaled(Decoded(chosen, input), c.prescale));
  if (c.average)
    for (float& v : result) v /= static_cast<float>(inputs.size());
  return result;
}

// The same where hosts of `per_host` ranks encode what they have summed up.
std::vector<float> ExpectedOfHosts(const Case& c, const std::vector<std::vector<float>>& inputs,
                                   size_t per_host) {
  const ChosenCodec chosen = Chosen(c.codec);
  std::vector<float> result;
  for (size_t first = 0; first < inputs.size(); first += per_host) {
    std::vector<float> sum;
    for (size_t r = first; r < std::min(first + per_host, inputs.size()); ++r)
      AddTo(&sum, c.op, Scaled(inputs[r], c.prescale));
    AddTo(&result, c.op, Decoded(chosen, sum));
  }
  if (inputs.size() > 2 * per_host) result = Decoded(chosen, result);
  if (c.average)
    for (float& v : result) v /= static_cast<float>(inputs.size());
  return result;
}

Operation* SubmitCase(World* world, int32_t rank, const Case& c, float* data) {
  Request r;
  r.kind = Kind::kAllreduce;
  r.group = world->GroupOn(rank, world->everybody());
  r.name = c.codec + " of " + std::to_string(ElemsOf(c));
  r.op = c.op;
  r.average = c.average;
  r.prescale = c.prescale;
  const ChosenCodec chosen = Chosen(c.codec);
  r.codec = chosen.text;
  r.form = chosen.form;
  r.feeds_back = c.feeds_back;
  for (int64_t length : c.lengths) {
    r.inputs.push_back(MakeTensor(DType::kF32, {length}, data));
    data += length;
  }
  r.outputs = r.inputs;
  return world->Submit(rank, std::move(r));
}

using Reference = std::vector<float>(const Case&, const std::vector<std::vector<float>>&);

void RunCases(World* world, const std::vector<Case>& cases,
              const std::function<Reference>& reference = Expected) {
  const auto size = static_cast<size_t>(world->size());
  std::vector<std::vector<std::vector<float>>> data(cases.size());
  std::vector<std::vector<float>> expected;
  for (size_t k = 0; k < cases.size(); ++k) {
    for (size_t rank = 0; rank < size; ++rank) {
      std::vector<float>& mine = data[k].emplace_back(ElemsOf(cases[k]));
      for (float& v : mine) v = static_cast<float>(world->rng().Below(1 << 20)) / 4096.0f - 128.0f;
    }
    expected.push_back(reference(cases[k], data[k]));
  }
  std::vector<Operation*> operations;
  for (size_t rank = 0; rank < size; ++rank) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const size_t k = (i + rank) % cases.size();
      operations.push_back(
          SubmitCase(world, static_cast<int32_t>(rank), cases[k], data[k][rank].data()));
      for (uint64_t passes = world->rng().Below(4); passes > 0; --passes) world->Step();
    }
  }
  ASSERT_TRUE(world->RunUntilEnded(operations)) << "operations did not end";
  for (const Operation* operation : operations)
    ASSERT_TRUE(operation->status.ok()) << operation->status.message();
  for (size_t k = 0; k < cases.size(); ++k)
    for (size_t rank = 0; rank < size; ++rank)
      ASSERT_EQ(
          std::memcmp(data[k][rank].data(), expected[k].data(), expected[k].size() * sizeof(float)),
          0)
          << cases[k].codec << ", " << expected[k].size() << " elements, rank " << rank;
}

// All ranks have the same bits, no element farther than `bound` from the exact result: of elements
// up to 1, by a sum or an average.
void RunNear(World* world, const Case& c, double bound) {
  const auto size = static_cast<size_t>(world->size());
  std::vector<std::vector<float>> data(size, std::vector<float>(ElemsOf(c)));
  std::vector<double> exact(ElemsOf(c));
  for (std::vector<float>& mine : data)
    for (size_t i = 0; i < mine.size(); ++i) {
      mine[i] = static_cast<float>(world->rng().Below(1001)) / 1000.0f;
      exact[i] += mine[i] / (c.average ? static_cast<double>(size) : 1.0);
    }
  std::vector<Operation*> operations;
  for (size_t rank = 0; rank < size; ++rank)
    operations.push_back(SubmitCase(world, static_cast<int32_t>(rank), c, data[rank].data()));
  ASSERT_TRUE(world->RunUntilEnded(operations));
  for (const std::vector<float>& mine : data) {
    ASSERT_EQ(mine, data[0]);
    for (size_t i = 0; i < mine.size(); ++i) ASSERT_NEAR(mine[i], exact[i], bound);
  }
}

class CodecTest : public testing::TestWithParam<int32_t> {};

TEST_P(CodecTest, EveryRankHasTheBitsOfTheReference) {
  const std::vector<Case> cases = {
      {"bf16", Op::kSum, false, 1, {1}},
      {"bf16", Op::kMax, false, 1, {5000}},
      {"fp16", Op::kSum, true, 0.5, {301, 0, 7, 900}},
      {"int8@block=16", Op::kSum, false, 1, {3}},
      {"int8@block=16", Op::kMin, false, 1, {777, 500}},
      {"int8@block=64", Op::kSum, true, 1, {64, 63, 1, 4000}},
      {"int8", Op::kSum, true, 1, {256}},
      {"int8", Op::kProduct, false, 0.25, {9000}},
      {"int8@block=1000", Op::kSum, false, 1, {2, 20000}},
      {"topk@bits=2,block=64", Op::kSum, true, 1, {1, 700, 3000}},
  };
  constexpr size_t kSegments[] = {2048, 4096, 65536};
  for (uint64_t seed = 1; seed <= 9; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world({.size = GetParam(),
                 .seed = seed,
                 .segment_bytes = kSegments[seed % 3],
                 .algorithm = seed % 2 == 0 ? "auto" : "flat"});
    for (int round = 0; round < 3; ++round) {
      RunCases(&world, cases);
      if (HasFatalFailure()) return;
    }
  }
}

// Peers read the pushed bytes of a landing slot, and all of them.
TEST_P(CodecTest, OverANetwork) {
  const std::vector<Case> cases = {
      {"bf16", Op::kSum, false, 1, {5000, 3}},
      {"int8@block=16", Op::kSum, true, 1, {777}},
      {"int8", Op::kMax, false, 1, {9000}},
  };
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world({.size = GetParam(), .seed = seed, .segment_bytes = 2048, .mirrored = true});
    for (int round = 0; round < 2; ++round) {
      RunCases(&world, cases);
      if (HasFatalFailure()) return;
    }
  }
}

// Hosts of two and of three ranks, the last of fewer. Blocks are coded on their own: the bits are
// those of the codes of the whole message, wherever it is divided.
TEST_P(CodecTest, SumsOfHostsAreEncoded) {
  const std::vector<Case> cases = {
      {"bf16", Op::kSum, false, 1, {5000, 3}},
      {"fp16", Op::kSum, true, 0.5, {301, 0, 7, 900}},
      {"int8@block=16", Op::kSum, true, 1, {777}},
      {"int8@block=20", Op::kSum, false, 1, {4001}},
      {"int8@block=64", Op::kMax, false, 1, {9000}},
  };
  for (const int32_t per_host : {2, 3}) {
    if (GetParam() <= per_host) continue;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(std::to_string(per_host) + " per host, seed " + std::to_string(seed));
      World world({.size = GetParam(),
                   .seed = seed,
                   .segment_bytes = 2048,
                   .mirrored = true,
                   .per_host = per_host});
      for (int round = 0; round < 2; ++round) {
        RunCases(&world, cases, [per_host](const Case& c, const auto& inputs) {
          return ExpectedOfHosts(c, inputs, static_cast<size_t>(per_host));
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The residual of a sum is no rank's to send later.
TEST_P(CodecTest, ContributionsWithFedBackResidualsAreEncodedOneByOne) {
  World world(
      {.size = GetParam(), .seed = 5, .segment_bytes = 2048, .mirrored = true, .per_host = 2});
  RunCases(&world, {{"int8@block=64", Op::kSum, true, 1, {5000}, true},
                    {"topk@bits=2,block=64", Op::kSum, true, 1, {3000}, true}});
}

// Drawn codes are made once and read by all.
TEST_P(CodecTest, DrawnSumsOfHostsAreEqualOnAllRanks) {
  if (GetParam() < 3) return;
  World world(
      {.size = GetParam(), .seed = 4, .segment_bytes = 2048, .mirrored = true, .per_host = 2});
  // The error of each host's sum, and of all once more: the norm of a block, 8 times its largest,
  // by 127.
  RunNear(&world, {"qsgd@bits=8,block=64", Op::kSum, false, 1, {4000}}, 2.0 * GetParam() * 8 / 127);
}

// Where no block fits a landing slot, blocks are cut: still the same bits on all ranks, and within
// the bound.
TEST_P(CodecTest, SlotsSmallerThanABlock) {
  World world({.size = GetParam(), .seed = 3, .segment_bytes = 64});
  RunNear(&world, {"int8", Op::kSum, true, 1, {700}}, 1.0 / 254 + 1e-6);
}

TEST_P(CodecTest, CountsWhatTravelled) {
  World world({.size = GetParam(), .seed = 1});
  RunCases(&world, {{"int8", Op::kSum, false, 1, {25600}}});
  const Executor::Counters& counters = world.runtime(0).executor().counters();
  EXPECT_EQ(counters.moved_bytes, 25600u * 4);
  EXPECT_EQ(counters.wire_bytes, 100u * 260);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CodecTest, testing::Values(1, 2, 3, 4, 8),
                         [](const auto& info) { return "np" + std::to_string(info.param); });

}  // namespace
}  // namespace covey
