// Mirrored over a link that the test plays: which pushes become puts, in which order they leave,
// and what wakes a sleeper.
#include "core/transport/mirrored.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/base/clock.h"

namespace covey {
namespace {

constexpr uint64_t kArenaBytes = uint64_t{1} << 20;

// The state of a scripted link, which outlives it.
struct Script {
  int room = 1000;                 // parcels that it still takes
  bool flushed = true;             // what it says when asked
  std::vector<std::string> taken;  // "message", or "put OFFSET LENGTH"
  std::span<const std::byte> put;  // the last one's data
  std::vector<Rank> dropped;
  std::vector<PeerLoss> losses;  // still to be told
  std::span<std::byte> landing;  // of rank 1
  int descriptor = -1;
  size_t eager_bytes = 0;
  std::vector<Bytes> messages;
  size_t read = 0;  // of the messages, as if rank 1 had sent them; only if they are to be read
  bool is_read = false;
};

class ScriptedLink final : public Link {
 public:
  explicit ScriptedLink(Script* script) : script_(script) {}
  Rank rank() const override { return Rank{0}; }
  int size() const override { return 2; }
  bool Send(Rank, std::span<const std::byte> message) override {
    if (!Take("message")) return false;
    script_->messages.emplace_back(message.begin(), message.end());
    return true;
  }
  size_t EagerBytes() const override { return script_->eager_bytes; }
  bool Puts() const override { return true; }
  void Land(Rank, std::span<std::byte> memory) override { script_->landing = memory; }
  bool Put(Rank, uint64_t offset, std::span<const std::byte> data) override {
    script_->put = data;
    return Take("put " + std::to_string(offset) + " " + std::to_string(data.size()));
  }
  void Drop(Rank peer) override { script_->dropped.push_back(peer); }
  bool Receive(Rank* from, std::span<const std::byte>* message) override {
    if (!script_->is_read || script_->read == script_->messages.size()) return false;
    *from = Rank{1};
    *message = script_->messages[script_->read++];
    return true;
  }
  bool Flushed() override { return script_->flushed; }
  int Descriptor() const override { return script_->descriptor; }
  std::vector<PeerLoss> PollLost() override { return std::exchange(script_->losses, {}); }

 private:
  bool Take(const std::string& parcel) {
    if (script_->room == 0) return false;
    --script_->room;
    script_->taken.push_back(parcel);
    return true;
  }
  Script* script_;
};

class MirroredTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(Mirrored::Open({.arena_bytes = kArenaBytes, .put_bytes = 128},
                               std::make_unique<ScriptedLink>(&script_), &transport_)
                    .ok());
    script_.taken.clear();  // the greeting
    script_.messages.clear();
  }
  std::byte* At(uint64_t offset) { return transport_->Base(Rank{0}) + offset; }
  void Pump() {
    Rank from = kNoRank;
    Bytes message;
    transport_->TryReceive(&from, &message);
  }

  const Rank peer_[1] = {Rank{1}};
  Script script_;
  std::unique_ptr<Transport> transport_;
};

TEST_F(MirroredTest, ALongPushIsAPutFromWhereItLies) {
  transport_->Push(peer_, At(4096), 127);
  EXPECT_TRUE(script_.taken.empty());  // it goes with the words, in one message
  transport_->Push(peer_, At(8192), 128);
  transport_->StoreRelease(reinterpret_cast<uint64_t*>(At(64)), 1);
  transport_->Wake(peer_);
  EXPECT_EQ(script_.taken, (std::vector<std::string>{"message", "put 8192 128", "message"}));
  EXPECT_EQ(script_.put.data(), At(8192));
}

// Pushes that are too short for a put, of a link that sends messages up to a length at once.
TEST_F(MirroredTest, PushesGoInMessagesThatLeaveAtOnce) {
  script_.eager_bytes = 200;
  constexpr size_t kLengths[] = {1, 150, 184, 185, 399};
  uint64_t offset = 4096;
  for (const size_t length : kLengths) {
    for (size_t i = 0; i < length; ++i) *At(offset + i) = static_cast<std::byte>(offset + 7 * i);
    transport_->Push(peer_, At(offset), length);
    offset += 1024;
  }
  transport_->StoreRelease(reinterpret_cast<uint64_t*>(At(64)), 1);
  transport_->Wake(peer_);
  transport_->Push(peer_, At(offset), 400);
  EXPECT_EQ(script_.taken.back(), "put " + std::to_string(offset) + " 400");
  for (const Bytes& message : script_.messages) EXPECT_LE(message.size(), 200u);
  EXPECT_LE(script_.messages.size(), 6u);
  script_.is_read = true;
  Pump();
  offset = 4096;
  for (const size_t length : kLengths) {
    EXPECT_EQ(std::memcmp(At(offset), transport_->Base(Rank{1}) + offset, length), 0) << length;
    offset += 1024;
  }
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(transport_->Base(Rank{1}) + 64), 1u);
}

TEST_F(MirroredTest, PutsLandInTheMirror) {
  EXPECT_EQ(script_.landing.data(), transport_->Base(Rank{1}));
  EXPECT_GE(script_.landing.size(), kArenaBytes);
}

TEST_F(MirroredTest, WithoutRoomTheOrderStays) {
  script_.room = 0;
  transport_->Push(peer_, At(4096), 200);
  transport_->Wake(peer_);
  transport_->Push(peer_, At(8192), 300);
  transport_->StoreRelease(reinterpret_cast<uint64_t*>(At(64)), 1);
  transport_->Wake(peer_);
  EXPECT_TRUE(transport_->HasUnsent());
  script_.room = 2;
  Pump();
  EXPECT_EQ(script_.taken, (std::vector<std::string>{"put 4096 200", "put 8192 300"}));
  EXPECT_TRUE(transport_->HasUnsent());
  script_.room = 2;
  Pump();
  EXPECT_EQ(script_.taken.back(), "message");
  EXPECT_FALSE(transport_->HasUnsent());
}

// Long ones are sent from where they lie, short ones are copied.
TEST_F(MirroredTest, WhatLiesElsewhereIsSeenInThePlaceOfTheRegion) {
  const Bytes elsewhere(200, std::byte{7});
  transport_->PushAs(peer_, At(4096), elsewhere.data(), 200);
  transport_->PushAs(peer_, At(8192), elsewhere.data(), 100);
  transport_->Wake(peer_);
  EXPECT_EQ(script_.taken, (std::vector<std::string>{"put 4096 200", "message"}));
  EXPECT_EQ(script_.put.data(), elsewhere.data());
  EXPECT_EQ(*At(4096), std::byte{0});
  EXPECT_EQ(*At(8192), std::byte{0});
  script_.flushed = false;
  EXPECT_FALSE(transport_->HasSentAll());
  script_.flushed = true;
  EXPECT_TRUE(transport_->HasSentAll());
}

TEST_F(MirroredTest, ALostPeerIsDropped) {
  script_.room = 0;
  transport_->Push(peer_, At(4096), 200);
  script_.losses = {{Rank{1}, "was killed"}};
  Pump();
  EXPECT_EQ(script_.dropped, std::vector<Rank>{Rank{1}});
  EXPECT_FALSE(transport_->HasUnsent());
  script_.room = 10;
  transport_->Push(peer_, At(4096), 200);
  transport_->Push(peer_, At(4096), 8);
  transport_->Wake(peer_);
  EXPECT_TRUE(script_.taken.empty());
  const std::vector<PeerLoss> losses = transport_->PollPeers();
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].how, "was killed");
}

// Where the link has a descriptor nothing has to look at the network.
TEST_F(MirroredTest, TheLinkWakesASleeper) {
  using Sleeper = Transport::Sleeper;
  EXPECT_TRUE(transport_->PollsNetwork());
  script_.descriptor = eventfd(0, EFD_CLOEXEC);
  SetUp();
  EXPECT_FALSE(transport_->PollsNetwork());
  const auto park = [this](Sleeper sleeper, Time until) {
    transport_->Park(sleeper, transport_->Ticket(sleeper), until);
  };
  eventfd_write(script_.descriptor, 1);
  transport_->SetParked(Sleeper::kEngine);
  park(Sleeper::kEngine, kNever);
  // A waiter drives now: what it has not yet received wakes it, and not the engine thread again.
  park(Sleeper::kWaiter, kNever);
  const Time until = MonotonicNow() + 10 * kMillisecond;
  park(Sleeper::kEngine, until);
  EXPECT_GE(MonotonicNow(), until);
  // It is the engine thread's again.
  transport_->SetParked(Sleeper::kMailOnly);
  park(Sleeper::kEngine, kNever);
  transport_.reset();
  close(script_.descriptor);
}

// A network that has not sent everything goes on reading it when the transport is gone. The test
// runs in a process of its own, since that memory stays until its process ends.
TEST_F(MirroredTest, WhatIsStillReadStays) {
  std::memset(At(4096), 7, 200);
  transport_->Push(peer_, At(4096), 200);
  script_.flushed = false;
  const auto end = [this] {
    transport_.reset();
    _exit(script_.put[199] == std::byte{7} ? 0 : 1);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "");
  script_.flushed = true;
}

}  // namespace
}  // namespace covey
