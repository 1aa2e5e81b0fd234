// Every collective, on any number of ranks, is right whatever the order in which ranks and messages
// move.
//
// Method: N whole runtimes in one process; operations with random shapes, groups, algorithms and
// memory are submitted on each rank in a random order; results are compared bit for bit with a slow
// obvious reference. Values are random integers, so that a contribution lost, doubled or swapped
// shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <numeric>

#include "tests/sim/simulator/world.h"

namespace covey {
namespace {

// The memory of one rank for one operation.
struct Share {
  std::vector<float> input;
  std::vector<float> output;
  std::vector<int64_t> splits;  // alltoall, in rows
  float* arena = nullptr;  // input and output in place, instead: two tensors with a gap between
  int64_t gap = 0;
  Operation* operation = nullptr;
};

struct Case {
  Kind kind;
  Op op = Op::kSum;
  bool average = false;
  bool arena = false;
  std::vector<int32_t> members;
  int32_t root = 0;
  std::string name;
  int64_t elems = 0;
  int64_t width = 1;          // alltoall: elems of a row
  std::vector<Share> shares;  // by group index
};

float Combine(Op op, float a, float b) {
  switch (op) {
    case Op::kMin:
      return std::min(a, b);
    case Op::kMax:
      return std::max(a, b);
    case Op::kProduct:
      return a * b;
    default:
      return a + b;
  }
}

// Where the message is cut into two tensors: a place all ranks agree on.
int64_t CutOf(const Case& c) { return c.elems % 2 == 0 ? c.elems : c.elems / 3; }

// The part of member `index` of the two tensors of a reducescatter: rows [begin, end) of the
// message.
std::vector<std::pair<int64_t, int64_t>> PartsOf(const Case& c, size_t index) {
  const auto size = static_cast<int64_t>(c.members.size());
  const auto me = static_cast<int64_t>(index);
  const int64_t cut = CutOf(c);
  return {{PartBegin(cut, size, me), PartBegin(cut, size, me + 1)},
          {cut + PartBegin(c.elems - cut, size, me), cut + PartBegin(c.elems - cut, size, me + 1)}};
}

int64_t Sum(const std::vector<int64_t>& splits, size_t count) {
  return std::accumulate(splits.begin(), splits.begin() + static_cast<long>(count), int64_t{0});
}

std::vector<float> Expected(const Case& c, size_t index) {
  std::vector<float> result;
  if (c.kind == Kind::kAlltoall) {
    for (const Share& s : c.shares) {
      const auto from = s.input.begin() + Sum(s.splits, index) * c.width;
      result.insert(result.end(), from, from + s.splits[index] * c.width);
    }
    return result;
  }
  if (c.kind == Kind::kGather && c.members[index] != c.root) return {};
  if (c.kind == Kind::kAllgather || c.kind == Kind::kGather) {
    for (const Share& s : c.shares) result.insert(result.end(), s.input.begin(), s.input.end());
    return result;
  }
  if (c.kind == Kind::kBroadcast) {
    const auto at = std::find(c.members.begin(), c.members.end(), c.root) - c.members.begin();
    return c.shares[static_cast<size_t>(at)].input;
  }
  if (c.kind == Kind::kBarrier) return c.shares[index].input;
  result = c.shares[0].input;
  for (size_t j = 1; j < c.shares.size(); ++j)
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = Combine(c.op, result[i], c.shares[j].input[i]);
  if (c.average)
    for (float& v : result) v /= static_cast<float>(c.members.size());
  if (c.kind == Kind::kAllreduce) return result;
  std::vector<float> part;
  for (const auto& [begin, end] : PartsOf(c, index))
    part.insert(part.end(), result.begin() + begin, result.begin() + end);
  return part;
}

void CopyToArena(const Case& c, Share* s) {
  const int64_t cut = CutOf(c);
  std::copy(s->input.begin(), s->input.begin() + cut, s->arena);
  std::copy(s->input.begin() + cut, s->input.end(), s->arena + cut + s->gap);
}

// Rows for each member; some get none, some rows may stay.
std::vector<int64_t> RandomSplits(Rng* rng, size_t members, int64_t rows) {
  std::vector<int64_t> splits;
  for (size_t j = 0; j < members; ++j) {
    const bool all = j + 1 == members && rng->Percent(70);
    const auto most = static_cast<uint64_t>(rows) * 2 / members;
    const auto some = static_cast<int64_t>(rng->Percent(25) ? 0 : rng->Below(most + 1));
    splits.push_back(all ? rows : std::min(rows, some));
    rows -= splits.back();
  }
  return splits;
}

Case MakeCase(World* world, int number) {
  Rng& rng = world->rng();
  constexpr Op kOps[] = {Op::kSum, Op::kMin, Op::kMax, Op::kProduct};
  Case c;
  constexpr Kind kKinds[] = {Kind::kAllreduce,    Kind::kBroadcast, Kind::kAllgather,
                             Kind::kBarrier,      Kind::kGather,    Kind::kAlltoall,
                             Kind::kReducescatter};
  c.kind = kKinds[rng.Below(std::size(kKinds))];
  c.op = kOps[rng.Below(4)];
  c.average = Reduces(c.kind) && c.op == Op::kSum && rng.Percent(40);
  c.arena = Reduces(c.kind) && rng.Percent(40);
  c.members = world->everybody();
  while (c.members.size() > 1 && rng.Percent(30))
    c.members.erase(c.members.begin() + static_cast<long>(rng.Below(c.members.size())));
  c.root = c.members[rng.Below(c.members.size())];
  c.name = rng.Percent(70) ? "op" + std::to_string(number) : "";
  c.elems = rng.Percent(20) ? 0 : static_cast<int64_t>(rng.Below(rng.Percent(30) ? 9000 : 60));
  c.width = c.kind == Kind::kAlltoall ? static_cast<int64_t>(rng.Below(4)) : 1;
  for (size_t j = 0; j < c.members.size(); ++j) {
    Share s;
    int64_t mine = c.elems;
    if (Gathers(c.kind))
      mine = rng.Percent(20) ? 0 : static_cast<int64_t>(rng.Below(rng.Percent(50) ? 3000 : 60));
    if (c.kind == Kind::kAlltoall) {
      s.splits = RandomSplits(&rng, c.members.size(), mine);
      mine *= c.width;
    }
    for (int64_t i = 0; i < mine; ++i)
      s.input.push_back(static_cast<float>(rng.Below(c.op == Op::kProduct ? 4 : 1000)));
    s.output.assign(static_cast<size_t>(c.elems), -1.0f);
    if (c.arena && c.elems > 0) {
      // In some cases the ranks' tensors lie differently, and cannot be addressed alike.
      s.gap = static_cast<int64_t>(c.elems % 3 == 0 ? 16 * (j + 1) : 16);
      const size_t length = s.input.size() + static_cast<size_t>(s.gap);
      s.arena = reinterpret_cast<float*>(world->ArenaMemory(c.members[j], length * sizeof(float)));
      CopyToArena(c, &s);
    }
    c.shares.push_back(std::move(s));
  }
  return c;
}

void SubmitShare(World* world, Case* c, size_t index) {
  Share& s = c->shares[index];
  const int32_t rank = c->members[index];
  Request r;
  r.kind = c->kind;
  r.group = world->GroupOn(rank, c->members);
  r.name = c->name;
  r.op = Reduces(c->kind) ? c->op : Op::kSum;
  r.average = c->average;
  if (HasRoot(c->kind)) r.root = Rank{c->root};
  const auto rows = static_cast<int64_t>(s.input.size());
  if (TraitsOf(c->kind).output == OutputRule::kInputs) {
    r.inputs = {MakeTensor(DType::kF32, {rows}, s.input.data())};
  } else if (c->kind == Kind::kAlltoall) {
    const int64_t whole = c->width == 0 ? Sum(s.splits, s.splits.size()) : rows / c->width;
    r.inputs = {MakeTensor(DType::kF32, {whole, c->width}, s.input.data())};
    r.splits = s.splits;
  } else if (c->kind != Kind::kBarrier) {
    // Two tensors travelling together.
    const int64_t cut = CutOf(*c);
    float* from = s.arena != nullptr ? s.arena : s.input.data();
    float* to = s.arena != nullptr ? s.arena : s.output.data();
    const int64_t gap = s.arena != nullptr ? s.gap : 0;
    r.inputs = {MakeTensor(DType::kF32, {cut}, from),
                MakeTensor(DType::kF32, {rows - cut}, from + cut + gap)};
    r.outputs = {MakeTensor(DType::kF32, {cut}, to),
                 MakeTensor(DType::kF32, {rows - cut}, to + cut + gap)};
    if (c->kind == Kind::kReducescatter) {
      to = s.output.data();
      r.outputs.clear();
      for (const auto& [begin, end] : PartsOf(*c, index)) {
        r.outputs.push_back(MakeTensor(DType::kF32, {end - begin}, to));
        to += end - begin;
      }
    }
  }
  s.operation = world->Submit(rank, std::move(r));
}

void CheckShare(const Case& c, size_t index) {
  const Share& s = c.shares[index];
  ASSERT_TRUE(s.operation->status.ok()) << s.operation->status.message();
  const std::vector<float> expected = Expected(c, index);
  const float* got = s.output.data();
  if (Gathers(c.kind)) got = reinterpret_cast<const float*>(s.operation->gathered.get());
  if (c.kind == Kind::kBarrier) return;
  const bool gets = Gets(c.kind, c.members[index] == c.root);
  for (size_t j = 0; Gathers(c.kind) && j < c.members.size(); ++j)
    ASSERT_EQ(s.operation->rows[j], c.kind == Kind::kAlltoall ? c.shares[j].splits[index]
                                    : gets ? static_cast<int64_t>(c.shares[j].input.size())
                                           : 0);
  std::vector<float> joined;
  if (s.arena != nullptr && c.kind == Kind::kAllreduce) {
    const int64_t cut = CutOf(c);
    joined.assign(s.arena, s.arena + cut);
    joined.insert(joined.end(), s.arena + cut + s.gap, s.arena + c.elems + s.gap);
    got = joined.data();
  }
  if (expected.empty()) return;
  EXPECT_EQ(std::memcmp(got, expected.data(), expected.size() * sizeof(float)), 0)
      << NameOf(c.kind) << " of " << c.elems << " elems on " << c.members.size()
      << " ranks, member " << index;
}

// Each rank submits its shares in its own random order, except that unnamed operations keep theirs.
void RunRound(World* world, std::vector<Case>* cases) {
  std::vector<Operation*> operations;
  for (int32_t rank = 0; rank < world->size(); ++rank) {
    std::vector<std::pair<Case*, size_t>> named;
    std::vector<std::pair<Case*, size_t>> unnamed;
    for (Case& c : *cases)
      for (size_t j = 0; j < c.members.size(); ++j)
        if (c.members[j] == rank) (c.name.empty() ? unnamed : named).emplace_back(&c, j);
    for (size_t i = named.size(); i > 1; --i) std::swap(named[i - 1], named[world->rng().Below(i)]);
    while (!named.empty() || !unnamed.empty()) {
      auto& from =
          unnamed.empty() || (!named.empty() && world->rng().Percent(60)) ? named : unnamed;
      SubmitShare(world, from.front().first, from.front().second);
      operations.push_back(from.front().first->shares[from.front().second].operation);
      from.erase(from.begin());
      for (uint64_t passes = world->rng().Below(4); passes > 0; --passes) world->Step();
    }
  }
  ASSERT_TRUE(world->RunUntilEnded(operations)) << "operations did not end";
  for (const Case& c : *cases)
    for (size_t j = 0; j < c.members.size(); ++j) CheckShare(c, j);
}

// The same streams twice: by agreement, then in-band.
void RunTwice(World* world) {
  std::vector<Case> cases;
  for (int i = 0; i < 8; ++i) cases.push_back(MakeCase(world, i));
  RunRound(world, &cases);
  if (testing::Test::HasFatalFailure()) return;
  for (Case& c : cases) {
    for (Share& s : c.shares) {
      for (float& v : s.input) v += 1.0f;
      // Splits are no part of what is agreed.
      if (!s.splits.empty()) std::rotate(s.splits.begin(), s.splits.begin() + 1, s.splits.end());
      if (s.arena != nullptr) CopyToArena(c, &s);
    }
  }
  const uint64_t announced = world->runtime(0).negotiator().announced();
  RunRound(world, &cases);
  if (testing::Test::HasFatalFailure()) return;
  EXPECT_EQ(world->runtime(0).negotiator().announced(), announced)
      << "a steady round asked the coordinator";
}

class CollectivesTest : public testing::TestWithParam<int32_t> {};

TEST_P(CollectivesTest, AnyOrderAnyGroupAnyMemory) {
  constexpr const char* kAlgorithms[] = {"auto", "flat",     "staged",   "direct", "ring",
                                         "read", "pairwise", "doubling", "tree"};
  constexpr size_t kSegments[] = {64, 4096, 65536};
  for (uint64_t seed = 1; seed <= 3 * std::size(kAlgorithms); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world({.size = GetParam(),
                 .seed = seed,
                 .segment_bytes = kSegments[seed % 3],
                 .algorithm = kAlgorithms[seed / 3 % std::size(kAlgorithms)],
                 .flat_bytes = seed % 2 == 0 ? size_t{0} : size_t{1024}});
    RunTwice(&world);
    if (HasFatalFailure()) return;
  }
}

TEST_P(CollectivesTest, AnyOrderAnyGroupOverHosts) {
  constexpr const char* kAlgorithms[] = {"auto", "hierarchical", "flat"};
  constexpr size_t kSegments[] = {512, 4096, 65536};
  for (uint64_t seed = 1; seed <= 18; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world({.size = GetParam(),
                 .seed = seed,
                 .segment_bytes = kSegments[seed % 3],
                 .algorithm = kAlgorithms[seed / 3 % std::size(kAlgorithms)],
                 .flat_bytes = seed % 2 == 0 ? size_t{0} : size_t{1024},
                 .mirrored = true,
                 .per_host = static_cast<int32_t>(2 + seed % 2)});
    RunTwice(&world);
    if (HasFatalFailure()) return;
  }
}

// The bits of a small whole number in half precision.
uint16_t Half(uint32_t v) {
  const auto exponent = static_cast<uint32_t>(std::bit_width(v)) - 1;
  return static_cast<uint16_t>(v == 0 ? 0 : (15 + exponent) << 10 | (v << (10 - exponent) & 1023));
}

// Its partial sums are wider than the message.
TEST_P(CollectivesTest, HalfPrecisionWithEveryAlgorithm) {
  for (const Algorithm* algorithm : Algorithms()) {
    if (algorithm->kind != Kind::kAllreduce) continue;
    SCOPED_TRACE(algorithm->name);
    World world({.size = GetParam(),
                 .seed = 7,
                 .segment_bytes = 256,
                 .algorithm = algorithm->name,
                 .flat_bytes = 0});
    constexpr size_t kElems = 700;
    std::vector<std::vector<uint16_t>> data(static_cast<size_t>(GetParam()));
    std::vector<uint32_t> sums(kElems);
    std::vector<Operation*> operations;
    for (int32_t rank = 0; rank < GetParam(); ++rank) {
      std::vector<uint16_t>& mine = data[static_cast<size_t>(rank)];
      for (size_t i = 0; i < kElems; ++i) {
        const auto value = static_cast<uint32_t>(world.rng().Below(100));
        mine.push_back(Half(value));
        sums[i] += value;
      }
      Request r;
      r.kind = Kind::kAllreduce;
      r.group = world.GroupOn(rank, world.everybody());
      r.name = "half";
      r.inputs = r.outputs = {MakeTensor(DType::kF16, {kElems}, mine.data())};
      operations.push_back(world.Submit(rank, std::move(r)));
    }
    ASSERT_TRUE(world.RunUntilEnded(operations));
    for (const std::vector<uint16_t>& mine : data)
      for (size_t i = 0; i < kElems; ++i) ASSERT_EQ(mine[i], Half(sums[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesTest, testing::Values(1, 2, 3, 4, 5, 7, 8, 13),
                         [](const auto& info) { return "np" + std::to_string(info.param); });

}  // namespace
}  // namespace covey
