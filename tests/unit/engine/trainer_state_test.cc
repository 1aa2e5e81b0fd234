// Goal: the union of the lists of all members, how few allreduces it takes, and what differs.
// Method: the states of all members in one thread; the test does their allreduces.
#include "core/engine/trainer_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace covey {
namespace {

using Array = TrainerState::Array;
using Allreduce = TrainerState::Allreduce;

// A member whose optimizer keeps arrays of float64.
struct Member {
  Group group;
  std::unique_ptr<TrainerState> state;
  std::vector<std::pair<std::string, std::vector<double>>> kept;

  void List(bool is_average = true) {
    std::vector<Array> arrays;
    for (auto& [name, values] : kept)
      arrays.push_back({.name = name,
                        .dtype = DType::kF64,
                        .is_average = is_average,
                        .count = static_cast<int64_t>(values.size()),
                        .data = reinterpret_cast<std::byte*>(values.data())});
    state->List(std::move(arrays));
  }
};

template <typename Number>
void ReduceAs(const std::vector<Allreduce*>& all) {
  for (int64_t at = 0; at < all[0]->count; ++at) {
    const auto of = [&](size_t i) { return reinterpret_cast<Number*>(all[i]->data) + at; };
    Number result = *of(0);
    for (size_t i = 1; i < all.size(); ++i)
      result =
          all[0]->op == Op::kMax ? std::max(result, *of(i)) : static_cast<Number>(result + *of(i));
    if (all[0]->is_average) result = static_cast<Number>(result / static_cast<Number>(all.size()));
    for (size_t i = 0; i < all.size(); ++i) *of(i) = result;
  }
}

void Reduce(const std::vector<Allreduce*>& all) {
  for (const Allreduce* it : all) {
    ASSERT_EQ(it->word, all[0]->word);
    ASSERT_EQ(it->dtype, all[0]->dtype);
    ASSERT_EQ(it->count, all[0]->count);
    ASSERT_GT(it->count, 0);
    ASSERT_EQ(it->op, all[0]->op);
    ASSERT_EQ(it->is_average, all[0]->is_average);
  }
  if (all[0]->dtype == DType::kI64) return ReduceAs<int64_t>(all);
  if (all[0]->dtype == DType::kU8) return ReduceAs<uint8_t>(all);
  ASSERT_EQ(all[0]->dtype, DType::kF64);
  ReduceAs<double>(all);
}

class TrainerStateTest : public testing::Test {
 protected:
  // Members are ranks 10, 11, ...
  void Make(size_t size) {
    members = std::vector<Member>(size);
    for (size_t i = 0; i < size; ++i) {
      for (size_t k = 0; k < size; ++k)
        members[i].group.members.push_back(Rank{static_cast<int32_t>(10 + k)});
      members[i].group.my_index = GroupIndex{static_cast<int32_t>(i)};
      members[i].state = std::make_unique<TrainerState>("test", &members[i].group);
    }
  }
  // Until it is over, or has failed, alike on all.
  Status Run() {
    words.clear();
    for (;;) {
      std::vector<std::vector<Allreduce>> next(members.size());
      Status first;
      for (size_t i = 0; i < members.size(); ++i) {
        const Status status = members[i].state->Next(&next[i]);
        if (i == 0) first = status;
        EXPECT_EQ(status.code(), first.code());
        EXPECT_EQ(next[i].size(), next[0].size());
      }
      if (!first.ok() || next[0].empty()) return first;
      for (size_t k = 0; k < next[0].size(); ++k) {
        std::vector<Allreduce*> all;
        for (std::vector<Allreduce>& it : next) all.push_back(&it[k]);
        words.push_back(all[0]->word);
        Reduce(all);
      }
    }
  }
  // The union as member `i` has it: "name: 1 2; ".
  std::string UnionOf(size_t i) const {
    std::string text;
    for (const Array& array : members[i].state->arrays()) {
      text += array.name + ":";
      for (int64_t at = 0; at < array.count; ++at)
        text += " " + std::to_string(static_cast<int>(reinterpret_cast<double*>(array.data)[at]));
      text += "; ";
    }
    return text;
  }
  void ExpectUnion(const std::string& text) const {
    for (size_t i = 0; i < members.size(); ++i) EXPECT_EQ(UnionOf(i), text) << "member " << i;
  }

  std::vector<Member> members;
  std::vector<std::string> words;  // of the allreduces
};

using Words = std::vector<std::string>;

TEST_F(TrainerStateTest, EqualListsTakeOneSmallAllreduceMore) {
  for (const size_t size : {1, 2, 3}) {
    Make(size);
    for (size_t i = 0; i < size; ++i) {
      members[i].kept = {{"a", {6, 1}}, {"b", {}}, {"c", {3}}};
      if (i == 1) std::reverse(members[i].kept.begin(), members[i].kept.end());
      members[i].List();
    }
    ASSERT_TRUE(Run().ok());
    EXPECT_EQ(words, (Words{"state", "state.0", "state.2"}));
    ExpectUnion("a: 6 1; b:; c: 3; ");
    EXPECT_EQ(static_cast<void*>(members[0].state->arrays()[0].data),
              members[0].kept[0].second.data());
  }
}

TEST_F(TrainerStateTest, ListsThatDifferAreUnited) {
  Make(4);
  members[0].kept = {{"b", {4}}, {"a b", {8, 8}}};
  members[1].kept = {};
  members[2].kept = {{"z\n 7", {12}}, {"b", {8}}, {"empty", {}}};
  members[3].kept = {{"\xff", {4}}, {"a", {4}}};
  for (Member& member : members) member.List();
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(words,
            (Words{"state", "state.lists", "state.0", "state.1", "state.2", "state.4", "state.5"}));
  ExpectUnion("a: 1; a b: 2 2; b: 3; empty:; z\n 7: 3; \xff: 1; ");
  EXPECT_EQ(members[2].kept[1].second[0], 3) << "in its own memory";
}

// Texts of equal length, and one that begins with another.
TEST_F(TrainerStateTest, AnyDifferenceOfListsIsSeen) {
  using Kept = std::vector<std::pair<std::string, std::vector<double>>>;
  for (const Kept& other :
       {Kept{{"b", {2}}}, Kept{{"a", {2}}, {"b", {2}}}, Kept{}, Kept{{"aa", {2}}}}) {
    Make(2);
    members[0].kept = {{"a", {2}}};
    members[1].kept = other;
    for (Member& member : members) member.List();
    ASSERT_TRUE(Run().ok());
    EXPECT_EQ(words[1], "state.lists");
    EXPECT_EQ(UnionOf(0), UnionOf(1));
  }
}

TEST_F(TrainerStateTest, MaximaAreThoseOfAll) {
  Make(2);
  members[0].kept = {{"a", {-3}}, {"b", {1, 5}}};
  members[1].kept = {{"b", {2, 4}}};
  for (Member& member : members) member.List(false);
  ASSERT_TRUE(Run().ok());
  ExpectUnion("a: 0; b: 2 5; ");
}

TEST_F(TrainerStateTest, KindsThatDifferAreNamedAlikeAndListedAnewWork) {
  Make(3);
  members[0].kept = {{"a", {1}}};
  members[1].kept = {{"b", {1, 2}}};
  members[2].kept = {{"b", {1}}};
  for (Member& member : members) member.List();
  const Status status = Run();
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_EQ(status.message(),
            "array 'b' of the optimizer of 'test' is float64[2] (average) on rank 11, and "
            "float64[1] (average) on rank 12");
  EXPECT_EQ(words, (Words{"state", "state.lists"}));
  members[1].kept = {{"b", {5}}};
  for (Member& member : members) member.List();
  ASSERT_TRUE(Run().ok());
  ExpectUnion("a: 0; b: 2; ");
  for (Member& member : members) member.state->Clear();
  ExpectUnion("");
}

TEST_F(TrainerStateTest, OpsAreOfTheKind) {
  Make(2);
  for (Member& member : members) member.kept = {{"a", {1}}};
  members[0].List(true);
  members[1].List(false);
  const Status status = Run();
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_NE(status.message().find("(max) on rank 11"), std::string::npos) << status.message();
}

TEST_F(TrainerStateTest, WithoutNamesAllListTheSame) {
  Make(3);
  const auto run = [&] {
    for (Member& member : members) member.List();
    return Run();
  };
  for (Member& member : members) member.kept = {{"", {2}}, {"", {4, 4}}};
  ASSERT_TRUE(run().ok());
  ExpectUnion(": 2; : 4 4; ");
  members[2].kept.pop_back();
  EXPECT_NE(run().message().find("keep 1 to 2 arrays"), std::string::npos);
  members[2].kept.clear();
  EXPECT_NE(run().message().find("keep 0 to 2 arrays"), std::string::npos);
  members[2].kept = {{"", {2}}, {"", {4}}};
  EXPECT_NE(run().message().find("array 1 of"), std::string::npos);
  members[2].kept = {{"a", {2}}, {"b", {4, 4}}};
  const std::string message = run().message();
  EXPECT_NE(message.find("names its arrays on rank 12, and not on rank 10"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace covey
