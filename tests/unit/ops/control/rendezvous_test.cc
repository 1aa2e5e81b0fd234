// Goal: every row of the rendezvous' table: who is let in with which number and ranks, what is
// refused with which words, who hears of what, and that silence has an end.
// Method: the decisions called by hand with given times; no network.
#include "ops/control/rendezvous.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

using Kind = ControlEvent::Kind;
using Phase = Rendezvous::Phase;
using Report = ControlReport::Kind;

constexpr Time kLease = kSecond;

Rendezvous::Offer OfferOf(int32_t node, int32_t slots, const std::string& host = "a") {
  return {.node = {.node = node, .slots = slots, .host = host, .host_id = host, .process = 7},
          .build = "build"};
}

// A rendezvous under test and what it has sent since the last look.
struct Stage {
  explicit Stage(int32_t nodes)
      : rendezvous({.nodes = nodes, .lease = kLease, .build = "build", .job = "drawn"}) {}

  int32_t Join(const Rendezvous::Offer& offer, Time now = 0) {
    int32_t ticket = -1;
    const Rendezvous::Decision decision = rendezvous.Join(now, offer, &ticket);
    reason = decision.reason;
    return decision.accepted ? ticket : -1;
  }
  bool Tell(int32_t ticket, Report kind, const std::string& text = "", Time now = 0) {
    const Rendezvous::Decision decision = rendezvous.Report(now, ticket, {kind, text});
    reason = decision.reason;
    return decision.accepted;
  }
  // "0:lost 1:lost": to whom what.
  std::string Sent() {
    constexpr const char* kNames[] = {"waiting", "view",  "shared", "failed",
                                      "lost",    "ended", "refused"};
    std::string text;
    last.clear();
    for (const Rendezvous::Mail& mail : rendezvous.TakeMail()) {
      text += (text.empty() ? "" : " ") + std::to_string(mail.ticket) + ":" +
              kNames[static_cast<int>(mail.event->kind)];
      last[mail.ticket] = *mail.event;
    }
    return text;
  }
  // All in, running.
  void Run(int32_t nodes) {
    for (int32_t i = 0; i < nodes; ++i) ASSERT_EQ(Join(OfferOf(i, 2)), i);
    for (int32_t i = 0; i < nodes; ++i) ASSERT_TRUE(Tell(i, Report::kReady));
    ASSERT_EQ(rendezvous.phase(), Phase::kRunning);
    Sent();
  }

  Rendezvous rendezvous;
  std::string reason;
  std::map<int32_t, ControlEvent> last;  // of each ticket
};

testing::AssertionResult Holds(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no \"" << part << "\" in \"" << text << "\"";
}

TEST(RendezvousTest, NumbersAreGivenInOrderOfArrivalAroundThoseAskedFor) {
  Stage stage(3);
  EXPECT_EQ(stage.Join(OfferOf(-1, 3)), 0);
  EXPECT_EQ(stage.Sent(), "0:waiting");
  EXPECT_EQ(stage.last[0].text,
            "1 of 3 nodes have joined; waiting for 2 more. Here: a node on a (process 7)");
  EXPECT_EQ(stage.Join(OfferOf(0, 2)), 1);
  EXPECT_EQ(stage.Sent(), "0:waiting 1:waiting");
  EXPECT_EQ(stage.Join(OfferOf(-1, 1)), 2);
  EXPECT_EQ(stage.rendezvous.phase(), Phase::kComplete);
  EXPECT_EQ(stage.Sent(), "0:view 1:view 2:view");
  EXPECT_EQ(stage.last[0].node, 1);
  EXPECT_EQ(stage.last[1].node, 0);
  EXPECT_EQ(stage.last[2].node, 2);
  const std::vector<Node>& nodes = stage.last[0].nodes;
  ASSERT_EQ(nodes.size(), 3u);
  for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(nodes[static_cast<size_t>(i)].node, i);
  EXPECT_EQ(nodes[0].first_rank, 0);
  EXPECT_EQ(nodes[1].first_rank, 2);
  EXPECT_EQ(nodes[2].first_rank, 5);
}

TEST(RendezvousTest, AJobOfOneNodeBeginsAtOnce) {
  Stage stage(1);
  EXPECT_EQ(stage.Join(OfferOf(-1, 4)), 0);
  EXPECT_EQ(stage.Sent(), "0:view");
}

TEST(RendezvousTest, WhatDoesNotFitIsRefusedInWordsAndChangesNothing) {
  Stage stage(2);
  ASSERT_EQ(stage.Join(OfferOf(1, 2)), 0);
  stage.Sent();
  Rendezvous::Offer offer = OfferOf(-1, 2);
  offer.build = "older";
  EXPECT_EQ(stage.Join(offer), -1);
  EXPECT_TRUE(Holds(stage.reason, "this node has older, the rendezvous build"));
  offer = OfferOf(-1, 2);
  offer.nodes = 3;
  EXPECT_EQ(stage.Join(offer), -1);
  EXPECT_TRUE(Holds(stage.reason, "this node was told of 3 nodes, the rendezvous of 2"));
  EXPECT_EQ(stage.Join(OfferOf(1, 2)), -1);
  EXPECT_TRUE(Holds(stage.reason, "node 1 is taken by process 7 on a"));
  EXPECT_EQ(stage.Join(OfferOf(2, 2)), -1);
  EXPECT_TRUE(Holds(stage.reason, "there is no node 2 in a job of 2 nodes"));
  EXPECT_EQ(stage.Join(OfferOf(-2, 2)), -1);
  EXPECT_EQ(stage.Join(OfferOf(-1, 0)), -1);
  EXPECT_TRUE(Holds(stage.reason, "at least 1 rank, not 0"));
  EXPECT_EQ(stage.Join(OfferOf(-1, kMaxControlRanks)), -1);
  EXPECT_TRUE(Holds(stage.reason, "would have 1026 ranks; at most 1024"));
  EXPECT_EQ(stage.Join(OfferOf(-1, INT32_MAX)), -1);
  EXPECT_EQ(stage.Sent(), "");
  offer = OfferOf(-1, 2);
  offer.nodes = 2;
  EXPECT_EQ(stage.Join(offer), 1);
  EXPECT_EQ(stage.Join(OfferOf(-1, 2)), -1);
  EXPECT_TRUE(Holds(stage.reason, "all 2 nodes of the job have joined already"));
}

TEST(RendezvousTest, NodesOfSeveralHostsAreToldWhoSharesMemory) {
  Stage stage(3);
  stage.Join(OfferOf(0, 2, "a"));
  stage.Join(OfferOf(1, 1, "b"));
  stage.Join(OfferOf(2, 2, "a"));
  EXPECT_TRUE(Holds(stage.Sent(), "0:view 1:view 2:view"));
  for (const auto& [ticket, view] : stage.last) {
    EXPECT_EQ(view.text, "drawn");
    ASSERT_EQ(view.nodes.size(), 3u);
    EXPECT_EQ(view.nodes[0].host_id + view.nodes[1].host_id + view.nodes[2].host_id, "aba");
  }
}

TEST(RendezvousTest, APlaceLeftBeforeTheBeginningIsFreeAgain) {
  for (const bool dies : {false, true}) {
    Stage stage(2);
    ASSERT_EQ(stage.Join(OfferOf(1, 2)), 0);
    stage.Sent();
    if (dies) {
      stage.rendezvous.Lose(0, "has died");
    } else {
      EXPECT_TRUE(stage.Tell(0, Report::kLeft));
    }
    EXPECT_EQ(stage.Sent(), "");
    EXPECT_EQ(stage.Join(OfferOf(1, 2)), 1);
    EXPECT_EQ(stage.Join(OfferOf(0, 2)), 2);
    EXPECT_EQ(stage.Sent(), "1:waiting 1:view 2:view");
  }
}

TEST(RendezvousTest, SharedTextsGoToAllWhenAllAreThere) {
  Stage stage(2);
  stage.Join(OfferOf(1, 2));
  EXPECT_FALSE(stage.Tell(0, Report::kShare, "early")) << "nobody knows the size yet";
  EXPECT_FALSE(stage.Tell(0, Report::kReady));
  EXPECT_FALSE(stage.Tell(0, Report::kFailed));
  stage.Join(OfferOf(0, 2));
  stage.Sent();
  for (const std::string round : {"first", "second"}) {
    EXPECT_TRUE(stage.Tell(0, Report::kShare, "of 1, " + round));
    EXPECT_FALSE(stage.Tell(0, Report::kShare, "once more"));
    EXPECT_TRUE(Holds(stage.reason, "this node has shared, and not all others have"));
    EXPECT_EQ(stage.Sent(), "");
    EXPECT_TRUE(stage.Tell(1, Report::kShare, "of 0, " + round));
    EXPECT_EQ(stage.Sent(), "0:shared 1:shared");
    for (int32_t ticket : {0, 1})
      EXPECT_EQ(stage.last[ticket].texts,
                (std::vector<std::string>{"of 0, " + round, "of 1, " + round}));
  }
  EXPECT_TRUE(stage.Tell(0, Report::kReady));
  EXPECT_TRUE(stage.Tell(0, Report::kReady));
  EXPECT_EQ(stage.rendezvous.phase(), Phase::kComplete);
  EXPECT_TRUE(stage.Tell(1, Report::kReady));
  EXPECT_EQ(stage.rendezvous.phase(), Phase::kRunning);
  EXPECT_FALSE(stage.Tell(1, Report::kShare, "late"));
  EXPECT_TRUE(Holds(stage.reason, "it is not the time to share"));
}

TEST(RendezvousTest, WhoSharesAfterALossIsNotRefusedAndHearsOfIt) {
  Stage stage(2);
  stage.Join(OfferOf(0, 1));
  stage.Join(OfferOf(1, 1));
  stage.Sent();
  stage.rendezvous.Lose(1, "has died");
  EXPECT_TRUE(stage.Tell(0, Report::kShare, "x"));
  EXPECT_EQ(stage.Sent(), "0:lost");
}

TEST(RendezvousTest, WhatIsSharedAtOnceIsBounded) {
  Stage stage(2);
  stage.Join(OfferOf(0, 1));
  stage.Join(OfferOf(1, 1));
  stage.Sent();
  EXPECT_TRUE(stage.Tell(0, Report::kShare, "x"));
  EXPECT_FALSE(stage.Tell(1, Report::kShare, std::string(kMaxSharedBytes, 'x')));
  EXPECT_TRUE(Holds(stage.reason, "more than 2097152 bytes"));
  EXPECT_TRUE(stage.Tell(1, Report::kShare, std::string(kMaxSharedBytes - 1, 'x')));
  EXPECT_EQ(stage.Sent(), "0:shared 1:shared");
}

TEST(RendezvousTest, AFailureIsToldToTheOthers) {
  Stage stage(3);
  stage.Run(3);
  EXPECT_TRUE(stage.Tell(1, Report::kFailed, "rank 2: boom"));
  EXPECT_EQ(stage.Sent(), "0:failed 2:failed");
  EXPECT_EQ(stage.last[0].node, 1);
  EXPECT_EQ(stage.last[0].text, "rank 2: boom");
  EXPECT_EQ(stage.rendezvous.phase(), Phase::kRunning);
}

TEST(RendezvousTest, ALossIsToldToTheOthersWithItsRanks) {
  Stage stage(3);
  stage.Run(3);
  stage.rendezvous.Lose(1, "has died");
  stage.rendezvous.Lose(1, "has died");
  EXPECT_EQ(stage.Sent(), "0:lost 2:lost");
  EXPECT_EQ(stage.last[2].text, "node 1 on a (process 7, ranks 2-3) has died");
  ASSERT_EQ(stage.last[2].nodes.size(), 1u);
  EXPECT_EQ(stage.last[2].nodes[0].first_rank, 2);
  EXPECT_EQ(stage.rendezvous.phase(), Phase::kEnded);
  EXPECT_FALSE(stage.Tell(1, Report::kBeat)) << "the lost one hears that it was given up";
  EXPECT_TRUE(stage.Tell(0, Report::kFailed, "rank 0: rank 2 has died"));
  EXPECT_EQ(stage.Sent(), "2:failed");
  EXPECT_EQ(stage.Join(OfferOf(-1, 1)), -1);
  EXPECT_TRUE(Holds(stage.reason, "is over"));
}

TEST(RendezvousTest, WhoHasLeftIsNotMissed) {
  Stage stage(2);
  stage.Run(2);
  EXPECT_TRUE(stage.Tell(1, Report::kLeft));
  stage.rendezvous.Lose(1, "has died");
  stage.rendezvous.Tick(100 * kLease);
  EXPECT_EQ(stage.Sent(), "1:lost 1:ended") << "only node 0, which was silent, is lost";
}

TEST(RendezvousTest, TheJobEndsWhenTheLastHasLeft) {
  Stage stage(2);
  stage.Run(2);
  EXPECT_TRUE(stage.Tell(0, Report::kLeft));
  EXPECT_EQ(stage.Sent(), "");
  EXPECT_TRUE(stage.Tell(1, Report::kLeft));
  EXPECT_EQ(stage.Sent(), "0:ended 1:ended");
  EXPECT_EQ(stage.rendezvous.phase(), Phase::kEnded);
}

TEST(RendezvousTest, ALeaseIsLostByTimeAndKeptByBeats) {
  Stage stage(2);
  stage.Run(2);
  EXPECT_TRUE(stage.Tell(0, Report::kBeat, "", kLease));
  stage.rendezvous.Tick(kLease);
  EXPECT_EQ(stage.Sent(), "") << "exactly a lease is no loss";
  stage.rendezvous.Tick(kLease + 1);
  EXPECT_EQ(stage.Sent(), "0:lost");
  EXPECT_TRUE(Holds(stage.last[0].text, "node 1 on a (process 7, ranks 2-3) is silent for longer"));
  stage.rendezvous.Tick(2 * kLease + 1);
  EXPECT_EQ(stage.Sent(), "") << "nobody is left to be told";
}

TEST(RendezvousTest, ALeaseRunsOutBeforeTheBeginningToo) {
  Stage stage(2);
  stage.Join(OfferOf(0, 1));
  stage.Join(OfferOf(0, 1));
  stage.Sent();
  stage.rendezvous.Tick(kLease + 1);
  EXPECT_EQ(stage.Join(OfferOf(0, 1), kLease + 1), 1);
}

TEST(RendezvousTest, StrangersAreToldOfEverMoreSeldom) {
  Stage stage(2);
  stage.Join(OfferOf(0, 1));
  stage.Sent();
  std::string told;
  for (int i = 1; i <= 9; ++i) {
    stage.rendezvous.NoteStranger();
    if (stage.Sent() == "0:waiting") told += " " + std::to_string(i);
  }
  EXPECT_EQ(told, " 1 2 4 8");
  stage.Join(OfferOf(0, 2));
  stage.Join(OfferOf(1, 2));
  stage.Sent();
  for (int i = 10; i <= 16; ++i) stage.rendezvous.NoteStranger();
  EXPECT_EQ(stage.Sent(), "") << "nobody is missing any more";
}

TEST(RendezvousTest, UnknownTicketsAreRefused) {
  Stage stage(1);
  EXPECT_FALSE(stage.Tell(5, Report::kBeat));
  stage.rendezvous.Lose(5, "has died");
  EXPECT_EQ(stage.Sent(), "");
}

}  // namespace
}  // namespace covey
