// Members make a sum together: by host and in rank order, whatever order pieces come in, with the
// same bytes at each; what they do not expect they drop; and a member that lacks shards fetches
// each of them once of each holder.
//
// Method: formations with a queue of messages between them, delivered in drawn order. Numbers whose
// sum depends on the order of additions.
#include "core/replicated/formation.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "core/base/rng.h"
#include "core/replicated/sum_fetcher.h"

namespace covey {
namespace {

constexpr size_t kElems = 1000;
constexpr Origin kMade{3, 7};

class FormationTest : public testing::Test {
 protected:
  void Open(const std::vector<uint64_t>& roles, bool average = false,
            const ModelRule& models = {}) {
    size_ = static_cast<int32_t>(roles.size());
    roles_ = roles;
    const RoundSpan spans[] = {{DType::kF32, kElems - 300}, {DType::kF32, 300}};
    geometry_ = std::make_unique<RoundMemory>(RoundMemory::Shape{.size = size_, .models = models},
                                              RoundLayout(spans, 256));
    const std::vector<int32_t> sums = geometry_->SumsOf(1, false);
    log_ = std::make_unique<ReplicatedLog>(size_, 4);
    for (int32_t r = 0; r < size_; ++r) {
      outboxes_.push_back(std::make_unique<Outbox>(&term_, &known_, log_.get()));
      formations_.push_back(std::make_unique<Formation>(
          Formation::Site{.self = r,
                          .geometry = geometry_.get(),
                          .kernels = &ScalarKernels(),
                          .average = average,
                          .limits = {.least_bytes = 64, .most_bytes = 256},
                          .outbox = outboxes_.back().get()},
          Entry(), sums[static_cast<size_t>(r)], &buffers_));
    }
  }

  // All with a role contribute.
  ReplicatedEntry Entry() const {
    ReplicatedEntry entry{.version = 1, .made = kMade, .roles = roles_};
    Bytes record(geometry_->record_bytes());
    const RecordHeader header{.version = 1, .divisor = size_};
    std::memcpy(record.data(), &header, sizeof(header));
    for (size_t i = 0; i < roles_.size(); ++i) {
      const Contribution one{.first = 1, .last = 1, .count = roles_[i] > 0 ? 1u : 0u, .arrived = 1};
      std::memcpy(record.data() + sizeof(header) + i * sizeof(one), &one, sizeof(one));
    }
    entry.body = std::move(record);
    return entry;
  }

  static float ValueOf(int32_t rank, size_t element) {
    return rank % 2 == 0 ? 1e8F + static_cast<float>(element) : 0.37F * static_cast<float>(rank);
  }

  Bytes ContentOf(int32_t rank) const {
    Bytes content(geometry_->layout().length_bytes(), std::byte{0x55});
    ForEach([&](size_t element, size_t offset) {
      const float value = ValueOf(rank, element);
      std::memcpy(content.data() + offset, &value, sizeof(value));
    });
    return content;
  }

  template <typename Do>
  void ForEach(const Do& act) const {
    size_t element = 0;
    for (size_t span = 0; span < 2; ++span)
      for (size_t at = 0; at < geometry_->layout().lengths_bytes()[span]; at += sizeof(float))
        act(element++, geometry_->layout().offsets_bytes()[span] + at);
  }

  // Delivers until nothing is under way.
  void Deliver(Rng* rng, int copies = 1) {
    std::vector<std::pair<int32_t, QueuedMessage>> mail;
    for (;;) {
      for (int32_t r = 0; r < size_; ++r)
        for (QueuedMessage& one : outboxes_[static_cast<size_t>(r)]->Take())
          mail.emplace_back(r, std::move(one));
      if (mail.empty()) return;
      std::swap(mail[rng->Below(mail.size())], mail.back());
      const auto [from, one] = std::move(mail.back());
      mail.pop_back();
      sent_[static_cast<size_t>(from)] += one.message.body.size();
      for (int i = 0; i < copies; ++i)
        formations_[static_cast<size_t>(one.to)]->OnPiece(from, one.message);
    }
  }

  void Contribute() {
    sent_.assign(static_cast<size_t>(size_), 0);
    for (int32_t r = 0; r < size_; ++r)
      if (roles_[static_cast<size_t>(r)] > 0)
        formations_[static_cast<size_t>(r)]->Contribute(ContentOf(r));
  }

  void ExpectSum(const std::vector<std::vector<int32_t>>& hosts, float divisor) {
    for (auto& formation : formations_) {
      if (formation->plan().HostOf(static_cast<int32_t>(&formation - formations_.data())) < 0)
        continue;
      ASSERT_TRUE(formation->is_whole());
      const ReplicatedEntry entry = formation->Take();
      ForEach([&](size_t element, size_t offset) {
        float sum = 0;
        for (size_t h = 0; h < hosts.size(); ++h) {
          float of_host = ValueOf(hosts[h][0], element);
          for (size_t i = 1; i < hosts[h].size(); ++i) of_host += ValueOf(hosts[h][i], element);
          sum = h == 0 ? of_host : sum + of_host;
        }
        float value = 0;
        std::memcpy(&value, entry.body.data() + geometry_->record_bytes() + offset, sizeof(value));
        ASSERT_EQ(value, sum / divisor) << element;
      });
    }
  }

  int32_t size_ = 0;
  uint64_t term_ = 3;
  KnownCommitted known_;
  std::vector<uint64_t> roles_;
  std::unique_ptr<RoundMemory> geometry_;
  std::unique_ptr<ReplicatedLog> log_;
  std::vector<std::unique_ptr<Outbox>> outboxes_;
  EntryBuffers buffers_;
  std::vector<std::unique_ptr<Formation>> formations_;
  std::vector<size_t> sent_;
};

TEST_F(FormationTest, SumsByHostAndInRankOrder) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    formations_.clear();
    outboxes_.clear();
    Rng rng(seed);
    Open({2, 5, 2, 5, 5});
    Contribute();
    Deliver(&rng);
    ExpectSum({{0, 2}, {1, 3, 4}}, 1);
  }
}

TEST_F(FormationTest, SumsInRankOrderWhereEachHasAHost) {
  Rng rng(1);
  Open({1, 2, 3, 4}, true);
  Contribute();
  Deliver(&rng);
  ExpectSum({{0}, {1}, {2}, {3}}, 4);
}

TEST_F(FormationTest, DividesOnceOnOneHost) {
  Rng rng(1);
  Open({1, 1, 1}, true);
  Contribute();
  Deliver(&rng);
  ExpectSum({{0, 1, 2}}, 3);
}

// A member that was left out takes no part, and the others do without it.
TEST_F(FormationTest, LeavesOutWhoHasNoRole) {
  Rng rng(1);
  Open({1, 0, 2});
  Contribute();
  Deliver(&rng);
  EXPECT_EQ(sent_[1], 0u);
  EXPECT_FALSE(formations_[1]->is_whole());
  ExpectSum({{0}, {2}}, 1);
}

TEST_F(FormationTest, PiecesThatComeTwiceCountOnce) {
  Rng rng(1);
  Open({1, 1, 2, 2});
  Contribute();
  Deliver(&rng, 2);
  ExpectSum({{0, 1}, {2, 3}}, 1);
}

ReplicaMessage PieceOf(ShardStage stage, uint64_t shard, size_t length_bytes, int value) {
  ReplicaMessage message{.kind = ReplicaMessage::Kind::kPiece,
                         .version = 1,
                         .made = kMade,
                         .stage = stage,
                         .shard = shard};
  message.body = Bytes(length_bytes, static_cast<std::byte>(value));
  return message;
}

// The sums of its host are made, its own shards' in their place, when it gets the sums of all of
// another member: what comes of them late is dropped, and what it has sent stays as it was.
TEST_F(FormationTest, AShardThatIsThereDoesNotChange) {
  Open({1, 1, 2, 2});
  Formation& one = *formations_[0];
  const auto length = [&](size_t shard) { return one.plan().shard(shard).length_bytes; };
  one.Contribute(ContentOf(0));
  for (size_t shard = 0; shard < one.plan().size(); ++shard)
    one.OnPiece(1, PieceOf(ShardStage::kContributed, shard, length(shard), 1));
  const std::vector<QueuedMessage> sent = outboxes_[0]->Take();
  std::vector<Bytes> bytes;
  for (const QueuedMessage& each : sent) bytes.push_back(each.message.Encode());
  for (size_t shard = 0; shard < one.plan().size(); ++shard)
    one.OnPiece(1, PieceOf(ShardStage::kSummed, shard, length(shard), 3));
  ASSERT_TRUE(one.is_whole());
  for (size_t shard = 0; shard < one.plan().size(); ++shard) {
    const int32_t delegate = one.plan().DelegateOf(shard, 1);
    one.OnPiece(delegate, PieceOf(ShardStage::kHosted, shard, length(shard), 2));
    one.OnPiece(delegate, PieceOf(ShardStage::kSummed, shard, length(shard), 2));
  }
  const Slice sum = one.Take().body.From(geometry_->record_bytes());
  ForEach([&](size_t, size_t offset) { ASSERT_EQ(sum.data()[offset], std::byte{3}) << offset; });
  for (size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(sent[i].message.Encode(), bytes[i]) << i;
}

// As long as an entry or a message holds it, it is no other entry's.
TEST(EntryBuffersTest, MemoryOfAnEntryIsTakenAgainOnceItIsGone) {
  EntryBuffers buffers;
  const Slice first = buffers.Take(100);
  Slice second = buffers.Take(100);
  const std::byte* place = second.data();
  EXPECT_NE(first.data(), place);
  Slice message = second.Part(10, 20);
  second = {};
  EXPECT_NE(buffers.Take(100).data(), place);
  message = {};
  const Slice third = buffers.Take(100), fourth = buffers.Take(100);
  EXPECT_TRUE(third.data() == place || fourth.data() == place);
}

// Unexpected pieces are dropped, and the sum is right all the same.
TEST_F(FormationTest, DropsWhatItDoesNotExpect) {
  Open({1, 1, 2, 0});
  const auto piece = [](ShardStage stage, uint64_t shard, size_t length_bytes) {
    return PieceOf(stage, shard, length_bytes, 1);
  };
  for (auto& formation : formations_) {
    for (size_t shard = 0; shard < formation->plan().size(); ++shard) {
      const size_t length = formation->plan().shard(shard).length_bytes;
      // Another length, a member without a role, a member that is not its host's delegate.
      formation->OnPiece(0, piece(ShardStage::kSummed, shard, length + 1));
      formation->OnPiece(3, piece(ShardStage::kContributed, shard, length));
      formation->OnPiece(3, piece(ShardStage::kHosted, shard, length));
      const int32_t delegate = formation->plan().DelegateOf(shard, 0);
      formation->OnPiece(1 - delegate, piece(ShardStage::kHosted, shard, length));
    }
    formation->OnPiece(0, piece(ShardStage::kSummed, formation->plan().size(), 64));
  }
  Rng rng(1);
  Contribute();
  Deliver(&rng);
  ExpectSum({{0, 1}, {2}}, 1);
}

// Each rank of 2 hosts with 2 ranks each sends 2 (P - 1) / P sums of two levels at most.
TEST_F(FormationTest, NoMemberSendsMoreThanTwoSums) {
  Rng rng(1);
  Open({1, 1, 2, 2});
  Contribute();
  Deliver(&rng);
  for (const size_t sent : sent_)
    EXPECT_LE(static_cast<double>(sent),
              2.2 * static_cast<double>(geometry_->layout().length_bytes()));
}

// With models each group makes its own mean, and sends no other member anything. By version 1 the
// groups of two of 4 ranks are {0 2} {1 3}.
TEST_F(FormationTest, EachGroupMakesItsOwnMean) {
  Rng rng(1);
  Open({1, 2, 2, 1}, false, {.group_size = 2, .sync_every = 1000});
  ASSERT_EQ(geometry_->SumsOf(1, false), (std::vector<int32_t>{0, 1, 0, 1}));
  Contribute();
  Deliver(&rng);
  for (int32_t r = 0; r < size_; ++r) {
    ASSERT_TRUE(formations_[static_cast<size_t>(r)]->is_whole());
    const ReplicatedEntry entry = formations_[static_cast<size_t>(r)]->Take();
    ForEach([&](size_t element, size_t offset) {
      float value = 0;
      std::memcpy(&value, entry.body.data() + geometry_->record_bytes() + offset, sizeof(value));
      const float sum = r % 2 == 0 ? ValueOf(0, element) + ValueOf(2, element)
                                   : ValueOf(1, element) + ValueOf(3, element);
      ASSERT_EQ(value, sum / 2) << element;
    });
  }
}

// A group that has no models in the version is whole at once, and without a mean. So is one that
// gives up.
TEST_F(FormationTest, AMeanMayBeAbsent) {
  Open({1, 0, 2, 0}, false, {.group_size = 2, .sync_every = 1000});
  ASSERT_TRUE(formations_[1]->is_whole());
  EXPECT_EQ(formations_[1]->Take().body.size(), geometry_->record_bytes());
  ASSERT_FALSE(formations_[2]->is_whole());
  formations_[2]->GiveUp();
  ASSERT_TRUE(formations_[2]->is_whole());
  EXPECT_EQ(formations_[2]->Take().body.size(), geometry_->record_bytes());
}

// The shards that were asked for since the last call, by holder.
std::map<int32_t, std::vector<uint64_t>> Asked(Outbox* outbox) {
  std::map<int32_t, std::vector<uint64_t>> asked;
  for (const QueuedMessage& one : outbox->Take()) asked[one.to].push_back(one.message.shard);
  return asked;
}

TEST_F(FormationTest, FetchesOfSeveralHoldersInTurns) {
  Open({1, 2, 3, 4});
  constexpr Time kPatience = 10;
  Outbox* outbox = outboxes_[0].get();
  SumFetcher fetcher(size_);
  EXPECT_FALSE(fetcher.HasHolder());
  fetcher.AddHolders({false, true, true, false});
  fetcher.Advance(*formations_[0], outbox, kPatience, 1);
  auto asked = Asked(outbox);
  ASSERT_EQ(asked.size(), 2u);
  for (const auto& [holder, shards] : asked) EXPECT_EQ(shards.size(), SumFetcher::kMostAsked);
  // One answers: it is asked for another. The other is overdue: what it was asked for goes on.
  fetcher.OnSummed(1, asked[1][0], 5);
  fetcher.Advance(*formations_[0], outbox, kPatience, 5);
  const size_t again = Asked(outbox)[1].size();
  EXPECT_EQ(again, 1u);
  for (const uint64_t shard : asked[1]) fetcher.OnSummed(1, shard, 12);
  fetcher.Advance(*formations_[0], outbox, kPatience, 12);
  const auto later = Asked(outbox);
  EXPECT_EQ(later.count(2), 0u);
  ASSERT_EQ(later.count(1), 1u);
  EXPECT_EQ(later.at(1)[0], asked[2][0]);
  // A lost one is asked for nothing.
  fetcher.OnLoss(1);
  fetcher.OnLoss(2);
  fetcher.Advance(*formations_[0], outbox, kPatience, 40);
  EXPECT_TRUE(outbox->empty());
  EXPECT_FALSE(fetcher.HasHolder());
}

}  // namespace
}  // namespace covey
