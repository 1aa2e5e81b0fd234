// Requests of channels go out as packets, answers come back to the channel that has asked, and the
// runtime is stirred when one is there; what is no socket of packets is refused.
//
// Method: the other end of the socket is this test's.
#include "core/api/witness_door.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

namespace covey {
namespace {

class WitnessDoorTest : public testing::Test {
 protected:
  WitnessDoorTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends_), 0);
    EXPECT_TRUE(WitnessDoor::Open(
                    ends_[0], [this] { Stir(); }, &door_)
                    .ok());
    door_->Serve(&driver_);
  }
  ~WitnessDoorTest() override {
    door_.reset();
    for (const int end : ends_) close(end);
  }

  void Stir() {
    const std::lock_guard lock(mutex_);
    ++stirred_;
    news_.notify_all();
  }
  void AwaitStir() {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [this] { return stirred_ > 0; });
  }
  void Answer(uint64_t channel, uint64_t number, uint64_t state, bool is_taken,
              const Bytes& record) {
    Writer writer;
    writer.Put(channel);
    writer.Put(number);
    writer.Put(state);
    writer.Put(static_cast<uint8_t>(is_taken ? 1 : 0));
    Bytes packet = writer.Take();
    packet.insert(packet.end(), record.begin(), record.end());
    ASSERT_EQ(send(ends_[1], packet.data(), packet.size(), 0), static_cast<ssize_t>(packet.size()));
  }

  int ends_[2] = {-1, -1};
  std::unique_ptr<WitnessDoor> door_;
  ChannelDriver driver_;
  std::mutex mutex_;
  std::condition_variable news_;
  int stirred_ = 0;
};

TEST_F(WitnessDoorTest, ARequestIsAPacket) {
  const Bytes record(40, std::byte{7});
  driver_.ask_witness(5, {.number = 2, .state = 3, .record = record});
  std::byte packet[512];
  const ssize_t got = recv(ends_[1], packet, sizeof(packet), 0);
  ASSERT_EQ(got, 24 + 40);
  Reader reader(std::span<const std::byte>(packet, static_cast<size_t>(got)));
  EXPECT_EQ(reader.Get<uint64_t>(), 5u);
  EXPECT_EQ(reader.Get<uint64_t>(), 2u);
  EXPECT_EQ(reader.Get<uint64_t>(), 3u);
  EXPECT_EQ(Bytes(packet + 24, packet + got), record);
}

TEST_F(WitnessDoorTest, AnswersComeToTheirChannelsAndStir) {
  driver_.ask_witness(5, {.number = 1, .state = 0, .record = {}});
  driver_.ask_witness(6, {.number = 4, .state = 0, .record = {}});
  WitnessAnswer answer;
  EXPECT_FALSE(driver_.hear_witness(5, &answer));
  const Bytes record(8, std::byte{9});
  Answer(6, 4, 1, true, record);
  Answer(5, 1, 0, false, {});
  AwaitStir();
  ASSERT_TRUE(driver_.hear_witness(5, &answer));
  EXPECT_EQ(answer.number, 1u);
  EXPECT_FALSE(answer.is_taken);
  EXPECT_TRUE(answer.record.empty());
  EXPECT_FALSE(driver_.hear_witness(5, &answer));
  ASSERT_TRUE(driver_.hear_witness(6, &answer));
  EXPECT_EQ(answer.number, 4u);
  EXPECT_EQ(answer.state, 1u);
  EXPECT_TRUE(answer.is_taken);
  EXPECT_EQ(answer.record, record);
}

TEST_F(WitnessDoorTest, APacketThatIsTooShortIsDropped) {
  ASSERT_EQ(send(ends_[1], "short", 5, 0), 5);
  Answer(5, 1, 2, false, {});
  WitnessAnswer answer;
  ASSERT_TRUE(driver_.hear_witness(5, &answer));
  EXPECT_EQ(answer.state, 2u);
}

TEST_F(WitnessDoorTest, AnotherDescriptorIsRefused) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  std::unique_ptr<WitnessDoor> door;
  const Status status = WitnessDoor::Open(
      pipes[0], [] {}, &door);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "COVEY_WITNESS_FD=" + std::to_string(pipes[0]) +
                                  " is no socket of packets: the launcher sets it");
  for (const int end : pipes) close(end);
}

}  // namespace
}  // namespace covey
