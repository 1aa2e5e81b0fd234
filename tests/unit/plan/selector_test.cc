// Goal: an algorithm is chosen by the preferences that the catalogue holds, and by name.
// Method: problems on both sides of each condition; every algorithm by its name.
#include "core/plan/selector.h"

#include <gtest/gtest.h>

#include "tests/unit/plan/problems.h"

namespace covey {
namespace {

constexpr uint64_t kSlot = 64 * 1024;

std::string Chosen(Problem problem, const SelectorSettings& settings = {}) {
  return Select(settings, problem).name;
}

TEST(Selector, TakesThePreferenceOfTheHighestPriorityThatHolds) {
  const auto allreduce = [](int32_t size, uint64_t bytes) {
    return MakeProblem(Kind::kAllreduce, size, bytes, kSlot);
  };
  EXPECT_EQ(Chosen(allreduce(3, 32 * 1024)), "flat");
  EXPECT_EQ(Chosen(allreduce(3, 32 * 1024 + 64)), "staged");
  EXPECT_EQ(Chosen(allreduce(2, 1 << 20)), "flat");
  Problem arena = allreduce(2, 1 << 20);
  arena.all_arena = true;
  EXPECT_EQ(Chosen(arena), "direct");
  arena.length_bytes = 1024;
  EXPECT_EQ(Chosen(arena), "flat");
  Problem readable = allreduce(3, 1 << 20);
  readable.all_readable = true;
  EXPECT_EQ(Chosen(readable), "staged");
  EXPECT_EQ(Chosen(readable, {.read_bytes = 1 << 19}), "read");
  Problem hosted = allreduce(3, 1 << 20);
  hosted.mirrored = true;
  EXPECT_EQ(Chosen(hosted), "staged");
  hosted.hosts = {0, 0, 1};
  EXPECT_EQ(Chosen(hosted), "hierarchical");
  hosted.length_bytes = 1024;
  EXPECT_EQ(Chosen(hosted), "flat");
  Problem coded = hosted;
  coded.form = {.block_elems = 256, .header_bytes = 4, .elem_bits = 8};
  coded.encodes_sums = true;
  EXPECT_EQ(Chosen(coded), "coded");
  coded.length_bytes = 1 << 20;
  EXPECT_EQ(Chosen(coded), "coded_hierarchical");
  EXPECT_EQ(Chosen(coded, {.algorithm = "coded"}), "coded");
  coded.encodes_sums = false;
  EXPECT_EQ(Chosen(coded), "coded") << "residuals are of single contributions";
  for (const Kind kind : {Kind::kBroadcast, Kind::kAllgather, Kind::kReducescatter}) {
    for (const auto& [bytes, name] :
         {std::pair{uint64_t{8192}, "flat"}, {8 * kSlot, "hierarchical"}}) {
      Problem two_levels = MakeProblem(kind, 3, bytes, kSlot);
      two_levels.mirrored = true;
      EXPECT_NE(Chosen(two_levels), "hierarchical");
      two_levels.hosts = {0, 0, 1};
      EXPECT_EQ(Chosen(two_levels), name) << NameOf(kind) << " of " << bytes << " bytes";
    }
  }
  EXPECT_EQ(Chosen(MakeProblem(Kind::kReducescatter, 2, 1024, kSlot)), "flat");
  EXPECT_EQ(Chosen(MakeProblem(Kind::kReducescatter, 2, 4 * kSlot, kSlot)), "staged");
  EXPECT_EQ(Chosen(MakeProblem(Kind::kAlltoall, 2, 64 * kSlot, kSlot)), "pairwise");
}

TEST(Selector, EveryAlgorithmIsTakenByItsNameWhereItFits) {
  for (const Algorithm* algorithm : Algorithms()) {
    if (algorithm->codes) continue;
    for (const uint64_t bytes : {uint64_t{256}, 4 * kSlot}) {
      const Problem problem = MakeProblem(algorithm->kind, 3, bytes, kSlot);
      const SelectorSettings named{.algorithm = algorithm->name}, automatic;
      const Algorithm& taken = Select(named, problem);
      const Algorithm& wanted =
          CanDo(*algorithm, problem) ? *algorithm : Select(automatic, problem);
      EXPECT_EQ(&taken, &wanted) << NameOf(algorithm->kind) << "/" << algorithm->name;
    }
  }
}

TEST(Selector, PrioritiesOfAKindAreDistinct) {
  for (const Algorithm* a : Algorithms()) {
    for (const Algorithm* b : Algorithms()) {
      if (a == b || a->kind != b->kind || a->codes != b->codes) continue;
      if (a->prefer.priority == Preference::kByNameOnly) continue;
      EXPECT_NE(a->prefer.priority, b->prefer.priority) << a->name << " and " << b->name;
    }
  }
}

// Those few tests have in their libcovey.so. One that gets a preference leaves `seldom` of
// ops/algorithms/BUILD, and this list.
TEST(Selector, TheseAreTakenByTheirNameAlone) {
  std::vector<std::string> names;
  for (const Algorithm* a : Algorithms())
    if (a->prefer.priority == Preference::kByNameOnly)
      names.push_back(std::string(NameOf(a->kind)) + "_" + a->name);
  EXPECT_EQ(names, (std::vector<std::string>{"allreduce_doubling", "allreduce_ring",
                                             "allreduce_tree", "broadcast_tree"}));
}

TEST(Selector, NamesAreThoseOfTheCatalogue) {
  EXPECT_TRUE(CheckAlgorithmName("auto").ok());
  for (const Algorithm* a : Algorithms()) EXPECT_TRUE(CheckAlgorithmName(a->name).ok()) << a->name;
  EXPECT_EQ(CheckAlgorithmName("bruck").message(),
            "algorithm is \"bruck\", which is not one of auto, coded, coded_hierarchical, direct, "
            "doubling, flat, "
            "hierarchical, "
            "pairwise, put, read, ring, staged, tree");
  EXPECT_FALSE(CheckAlgorithmName("").ok());
}

}  // namespace
}  // namespace covey
