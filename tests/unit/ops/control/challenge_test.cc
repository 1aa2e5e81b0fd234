// Goal: nobody gets in without the secret, nothing said in one session is worth anything in another
// or a second time, and who waits at the door costs little.
// Method: both sides played by hand over the door's calls, with given times and nonces.
#include "ops/control/challenge.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

const std::string kSecret = "0123456789abcdef0123456789abcdef";

std::string Nonce(int number) {
  std::string nonce = std::to_string(number);
  nonce.resize(kNonceBytes, '.');
  return nonce;
}

struct Entered {
  Status status = Status::Ok();
  std::string server_proof;
  SessionKeys keys;  // the client's
};

Entered Enter(Door* door, const std::string& secret, const std::string& client,
              const std::string& server, Time now = 0) {
  Entered entered{.keys = MakeKeys(secret, client, server)};
  entered.status = door->Hello(now, kControlProtocol, client, server);
  if (entered.status.ok())
    entered.status = door->Prove(now, server, entered.keys.client_proof, &entered.server_proof);
  return entered;
}

TEST(ChallengeTest, HmacIsThatOfRfc4231) {
  constexpr const char* kWanted =
      "\x5b\xdc\xc1\x46\xbf\x60\x75\x4e\x6a\x04\x24\x26\x08\x95\x75\xc7"
      "\x5a\x00\x3f\x08\x9d\x27\x39\x83\x9d\xec\x58\xb9\x64\xec\x38\x43";
  EXPECT_EQ(Hmac("Jefe", "what do ya want for nothing?"), std::string(kWanted, 32));  // case 2
}

TEST(ChallengeTest, NoncesDiffer) {
  EXPECT_EQ(NewNonce().size(), kNonceBytes);
  EXPECT_NE(NewNonce(), NewNonce());
}

TEST(ChallengeTest, BothProveThemselves) {
  Door door(kSecret);
  const Entered entered = Enter(&door, kSecret, Nonce(1), Nonce(2));
  ASSERT_TRUE(entered.status.ok()) << entered.status.message();
  EXPECT_EQ(entered.server_proof, entered.keys.server_proof);
  EXPECT_NE(entered.keys.server_proof, entered.keys.client_proof) << "it could be handed back";
  EXPECT_NE(entered.keys.server_seal, entered.keys.client_seal);
}

TEST(ChallengeTest, AClientWithAnotherSecretLearnsNothing) {
  Door door(kSecret);
  const Entered entered = Enter(&door, kSecret + "x", Nonce(1), Nonce(2));
  EXPECT_EQ(entered.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(entered.status.message(), "the secrets differ");
  EXPECT_EQ(entered.server_proof, "");
  EXPECT_EQ(door.refused(), 1u);
}

TEST(ChallengeTest, AServerWithAnotherSecretCannotProveItself) {
  Door impostor(kSecret + "x");
  ASSERT_TRUE(impostor.Hello(0, kControlProtocol, Nonce(1), Nonce(2)).ok());
  const SessionKeys wanted = MakeKeys(kSecret, Nonce(1), Nonce(2));
  const SessionKeys made = MakeKeys(kSecret + "x", Nonce(1), Nonce(2));
  EXPECT_FALSE(SameBytes(made.server_proof, wanted.server_proof));
  EXPECT_FALSE(SameBytes("", wanted.server_proof));
  EXPECT_FALSE(SameBytes("", ""));
}

TEST(ChallengeTest, AProofIsGoodForOneSessionOnce) {
  Door door(kSecret);
  const Entered first = Enter(&door, kSecret, Nonce(1), Nonce(2));
  std::string proof;
  EXPECT_EQ(door.Prove(0, Nonce(2), first.keys.client_proof, &proof).code(), StatusCode::kAborted)
      << "a second time";
  ASSERT_TRUE(door.Hello(0, kControlProtocol, Nonce(1), Nonce(3)).ok());  // replays the hello
  EXPECT_FALSE(door.Prove(0, Nonce(3), first.keys.client_proof, &proof).ok());
  const SessionKeys right = MakeKeys(kSecret, Nonce(1), Nonce(3));
  EXPECT_FALSE(door.Prove(0, Nonce(3), right.client_proof, &proof).ok()) << "a wrong one ended it";
  EXPECT_EQ(proof, "");
}

TEST(ChallengeTest, TheServersProofIsNoClientsProof) {
  Door door(kSecret);
  std::string proof;
  ASSERT_TRUE(door.Hello(0, kControlProtocol, Nonce(1), Nonce(2)).ok());
  const SessionKeys keys = MakeKeys(kSecret, Nonce(1), Nonce(2));
  EXPECT_FALSE(door.Prove(0, Nonce(2), keys.server_proof, &proof).ok());
}

TEST(ChallengeTest, AnotherProtocolAndAnotherNonceAreRefusedInWords) {
  Door door(kSecret);
  const Status other = door.Hello(0, kControlProtocol + 1, Nonce(1), Nonce(2));
  EXPECT_EQ(other.code(), StatusCode::kUnsupported);
  EXPECT_NE(other.message().find("speaks protocol 3 of Covey's control plane, not 4"),
            std::string::npos);
  EXPECT_FALSE(door.Hello(0, kControlProtocol, "short", Nonce(2)).ok());
  EXPECT_FALSE(door.Hello(0, kControlProtocol, Nonce(1), "").ok()) << "no randomness";
}

TEST(ChallengeTest, ASealedMessageIsTakenOnceAndUnchanged) {
  Door door(kSecret);
  const Entered entered = Enter(&door, kSecret, Nonce(1), Nonce(2));
  const std::string seal = Seal(entered.keys.client_seal, "Report", 7, "body");
  EXPECT_FALSE(door.Open(Nonce(2), "Report", 7, "another", seal).ok());
  EXPECT_FALSE(door.Open(Nonce(2), "Report", 8, "body", seal).ok());
  EXPECT_FALSE(door.Open(Nonce(2), "Join", 7, "body", seal).ok());
  EXPECT_FALSE(door.Open(Nonce(3), "Report", 7, "body", seal).ok());
  EXPECT_FALSE(door.Open(Nonce(2), "Report", 7, "body", "").ok());
  EXPECT_TRUE(door.Open(Nonce(2), "Report", 7, "body", seal).ok());
  EXPECT_EQ(door.Open(Nonce(2), "Report", 7, "body", seal).message(), "a message was repeated");
  const std::string older = Seal(entered.keys.client_seal, "Report", 6, "body");
  EXPECT_FALSE(door.Open(Nonce(2), "Report", 6, "body", older).ok());
  const std::string watch = Seal(entered.keys.client_seal, "Watch", 5, "");
  EXPECT_TRUE(door.Open(Nonce(2), "Watch", 5, "", watch).ok()) << "it was under way meanwhile";
  EXPECT_FALSE(door.Open(Nonce(2), "Watch", 5, "", watch).ok());
}

TEST(ChallengeTest, WhatTheServerSaysCannotBeSaidToIt) {
  Door door(kSecret);
  const Entered entered = Enter(&door, kSecret, Nonce(1), Nonce(2));
  const std::string said = door.SealOf(Nonce(2), "Report", 1, "body");
  EXPECT_EQ(said, Seal(entered.keys.server_seal, "Report", 1, "body"));
  EXPECT_FALSE(door.Open(Nonce(2), "Report", 1, "body", said).ok());
}

TEST(ChallengeTest, ThoseAtTheDoorAreBoundedInNumberAndTime) {
  Door door(kSecret);
  std::string proof;
  const auto prove = [&](Time now, int number) {
    const SessionKeys keys = MakeKeys(kSecret, Nonce(0), Nonce(number));
    return door.Prove(now, Nonce(number), keys.client_proof, &proof).ok();
  };
  const int count = static_cast<int>(Door::kMaxAtDoor) + 1;
  for (int i = 1; i <= count; ++i)
    ASSERT_TRUE(door.Hello(i, kControlProtocol, Nonce(0), Nonce(i)).ok());
  EXPECT_FALSE(prove(count, 1)) << "the oldest had to go";
  EXPECT_TRUE(prove(count, 2));
  EXPECT_FALSE(prove(count + Door::kPatience + 1, count)) << "too slow";
}

}  // namespace
}  // namespace covey
