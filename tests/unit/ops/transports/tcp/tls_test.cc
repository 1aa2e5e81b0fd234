// TLS by the job's key over a pair of sockets: keys are changed while it runs, the clear follows
// the handshake at once, and what is changed on the way is found.
#include "ops/transports/tcp/tls.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace covey::tcp {
namespace {

constexpr uint8_t kKey[32] = {1, 2, 3};

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    EXPECT_TRUE(TlsKey::Make(kKey, "test", &key_).ok());
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    a_ = Socket(fds[0], kSecond);
    b_ = Socket(fds[1], kSecond);
  }
  // Both take steps in turn until neither waits.
  static std::pair<Outcome, Outcome> Shake(Tls* a, Tls* b) {
    Outcome of_a = Outcome::kWait, of_b = Outcome::kWait;
    for (int i = 0; i < 10; ++i) {
      if (of_a == Outcome::kWait) of_a = a->Shake();
      if (of_b == Outcome::kWait) of_b = b->Shake();
    }
    return {of_a, of_b};
  }

  std::unique_ptr<TlsKey> key_;
  Socket a_, b_;
};

TEST_F(TlsTest, KeysChangeAndNothingIsLost) {
  Tls a(*key_, &a_, true, 3), b(*key_, &b_, false, 5);
  ASSERT_EQ(Shake(&a, &b), std::pair(Outcome::kDone, Outcome::kDone));
  b.ReadAhead();
  a.ReadAhead();
  std::minstd_rand random(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<char> data(random() % 50000 + 1), got(data.size());
    for (char& byte : data) byte = static_cast<char>(random());
    Tls& from = i % 3 == 0 ? b : a;
    Tls& to = i % 3 == 0 ? a : b;
    ASSERT_TRUE(from.Write(data.data(), data.size()));
    for (size_t have = 0; have < got.size();) {
      ASSERT_NE(from.Flush(), Outcome::kEnded);
      size_t read = 0;
      ASSERT_NE(to.Read(got.data() + have, got.size() - have, &read), Outcome::kEnded);
      have += read;
    }
    ASSERT_EQ(data, got) << i;
  }
}

TEST_F(TlsTest, OtherKeysAndOtherPurposesAreRefusedWithoutAWord) {
  uint8_t other[32] = {1, 2, 4};
  std::unique_ptr<TlsKey> by_key, by_purpose;
  ASSERT_TRUE(TlsKey::Make(other, "test", &by_key).ok());
  ASSERT_TRUE(TlsKey::Make(kKey, "another", &by_purpose).ok());
  for (const TlsKey* refused : {by_key.get(), by_purpose.get()}) {
    EXPECT_NE(refused->name(), key_->name());
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    Socket c(fds[0], kSecond), d(fds[1], kSecond);
    Tls a(*refused, &c, true), b(*key_, &d, false);
    EXPECT_EQ(Shake(&a, &b), std::pair(Outcome::kWait, Outcome::kEnded));
    char byte;
    EXPECT_EQ(recv(c.fd(), &byte, 1, 0), -1);
  }
}

TEST_F(TlsTest, TheClearFollowsTheHandshake) {
  Tls a(*key_, &a_, true), b(*key_, &b_, false);
  ASSERT_EQ(Shake(&a, &b), std::pair(Outcome::kDone, Outcome::kDone));
  ASSERT_TRUE(b.Write("hello", 5));
  ASSERT_EQ(b.Flush(), Outcome::kDone);
  ASSERT_EQ(send(b_.fd(), "clear", 5, 0), 5);
  char text[6] = "";
  size_t read = 0;
  ASSERT_EQ(a.Read(text, 5, &read), Outcome::kDone);
  EXPECT_STREQ(text, "hello");
  ASSERT_EQ(recv(a_.fd(), text, 5, 0), 5);
  EXPECT_STREQ(text, "clear");
}

TEST_F(TlsTest, AChangedRecordEndsIt) {
  Tls a(*key_, &a_, true), b(*key_, &b_, false);
  ASSERT_EQ(Shake(&a, &b), std::pair(Outcome::kDone, Outcome::kDone));
  ASSERT_TRUE(a.Write("hello", 5));
  ASSERT_EQ(a.Flush(), Outcome::kDone);
  char record[100];
  const ssize_t length = recv(b_.fd(), record, sizeof(record), 0);
  ASSERT_GT(length, 10);
  EXPECT_EQ(memmem(record, length, "hello", 5), nullptr);
  record[length - 1] ^= 1;
  ASSERT_EQ(send(a_.fd(), record, length, 0), length);
  char text[6] = "";
  size_t read = 0;
  EXPECT_EQ(b.Read(text, 5, &read), Outcome::kEnded);
  EXPECT_FALSE(b.is_cut());
}

}  // namespace
}  // namespace covey::tcp
