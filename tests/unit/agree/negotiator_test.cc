// What a stream keeps: one that has had 2^32 occurrences goes on, and what has ended is forgotten
// although something is always in flight.
#include "core/agree/negotiator.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

class NoBlocks final : public LandingBlocks {
 public:
  uint64_t Alloc(size_t, size_t, uint32_t* depth) override {
    *depth = kMinLandingSlots;
    return 0;
  }
  void Free(uint64_t) override {}
};

class NegotiatorTest : public testing::Test {
 protected:
  NegotiatorTest() {
    group_.members = {Rank{0}};
    group_.my_index = GroupIndex{0};
    request_.kind = Kind::kAllreduce;
    request_.name = "x";
    request_.group = &group_;
    request_.inputs = request_.outputs = {Tensor{}};
  }
  // The occurrence that begins with the next submission.
  uint64_t Run() {
    negotiator_.Submit(&request_);
    for (const Envelope& envelope : std::exchange(negotiator_.outbox(), {}))
      negotiator_.OnAnswer({.type = MessageType::kAgreed,
                            .id = envelope.message.id,
                            .entry = 1,
                            .slot_bytes = 64,
                            .depth = kMinLandingSlots,
                            .blocks = {0}});
    if (negotiator_.startable().size() != 1) return kNoOccurrence;
    Stream* stream = std::exchange(negotiator_.startable(), {})[0].stream;
    const uint64_t occurrence = stream->occurrence;
    negotiator_.OnExchangeEnd(stream, Negotiator::ExchangeEnd::kDone, {});
    return occurrence;
  }

  Group group_;
  Request request_;
  NoBlocks blocks_;
  Negotiator negotiator_{{.self = Rank{0}}, &blocks_};
};

TEST_F(NegotiatorTest, AStreamHasMoreThan32BitsOfOccurrences) {
  EXPECT_EQ(Run(), 0u);
  negotiator_.streams().Find({0, "x", 0})->occurrence = 0xFFFFFFFE;
  for (uint64_t occurrence = 0xFFFFFFFE; occurrence < 0x100000003; ++occurrence)
    EXPECT_EQ(Run(), occurrence);
}

TEST_F(NegotiatorTest, AStreamThatIsNeverIdleForgetsWhatHasEnded) {
  request_.name.clear();
  EXPECT_EQ(Run(), 0u);
  negotiator_.Submit(&request_);
  for (uint64_t occurrence = 1; occurrence < 10000; ++occurrence) {
    negotiator_.Submit(&request_);
    ASSERT_EQ(negotiator_.startable().size(), 1u);
    Stream* stream = std::exchange(negotiator_.startable(), {})[0].stream;
    ASSERT_EQ(stream->occurrence, occurrence);
    ASSERT_EQ(stream->waiting.size() - stream->head, 2u);
    ASSERT_LT(stream->waiting.size(), 200u);
    negotiator_.OnExchangeEnd(stream, Negotiator::ExchangeEnd::kDone, {});
    negotiator_.ended().clear();
  }
}

}  // namespace
}  // namespace covey
