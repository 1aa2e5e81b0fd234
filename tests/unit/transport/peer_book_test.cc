// The book of ranks: what is read from a sound one, and that every other one is refused with the
// line and the cause. Method: one sound text, and one change of it per case.
#include "core/transport/peer_book.h"

#include <gtest/gtest.h>

#include <string>

namespace covey {
namespace {

const std::string kDigits = "00ff1020" + std::string(54, 'a') + "Bc";
const std::string kHead = "covey book 1\nkey " + kDigits + "\nsecurity tls\n";
const std::string kSound = kHead + "0 0 10.0.0.1 4000\n1 0 10.0.0.1 4001\n2 2 fe80::2 65535\n";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  EXPECT_NE(text.find(from), std::string::npos) << from;
  return text.replace(text.find(from), from.size(), to);
}

TEST(PeerBookTest, ASoundOneIsRead) {
  PeerBook book;
  ASSERT_EQ(PeerBook::Parse(kSound, &book), Status::Ok());
  EXPECT_EQ(book.security, PeerBook::Security::kTls);
  EXPECT_EQ(book.key[0], 0);
  EXPECT_EQ(book.key[1], 0xff);
  EXPECT_EQ(book.key[31], 0xbc);
  ASSERT_EQ(book.peers.size(), 3u);
  EXPECT_EQ(book.peers[1].host, Rank{0});
  EXPECT_EQ(book.peers[2].host, Rank{2});
  EXPECT_EQ(book.peers[2].address, "fe80::2");
  EXPECT_EQ(book.peers[2].port, 65535);
  ASSERT_TRUE(PeerBook::Parse(Replaced(kSound, "security tls", "security auth"), &book).ok());
  EXPECT_EQ(book.security, PeerBook::Security::kAuth);
}

TEST(PeerBookTest, RanksOfAHostNeedNotBeNeighbors) {
  PeerBook book;
  ASSERT_TRUE(PeerBook::Parse(kHead + "0 0 ::1 1\n1 1 ::1 2\n2 0 ::1 3\n3 1 ::1 4\n", &book).ok());
  EXPECT_EQ(book.peers[3].host, Rank{1});
}

struct Fault {
  std::string from, to;
  int line;
  std::string cause;
};

TEST(PeerBookTest, EveryFaultIsNamedWithItsLine) {
  const Fault faults[] = {
      {"book 1", "book 2", 1, "not \"covey book 1\""},
      {"key 00", "key 0", 2, "64 hexadecimal digits"},
      {"key 00", "key 000", 2, "64 hexadecimal digits"},
      {"key 00", "key 0g", 2, "64 hexadecimal digits"},
      {"key 00", "key +0", 2, "64 hexadecimal digits"},
      {"security tls", "security none", 3, "neither"},
      {"0 0 10.0.0.1 4000\n", "", 4, "rank 0 is due"},
      {"\n1 0", "\n0 0", 5, "rank 1 is due"},
      {"\n1 0", "\n01 0", 5, "rank 1 is due"},
      {"\n1 0", "\n1  0", 5, "not a rank"},
      {"\n1 0", "\n\n1 0", 5, "not a rank"},
      {"2 2 fe80", "2 1 fe80", 6, "no lowest rank of a host: 1"},
      {"2 2 fe80", "2 3 fe80", 6, "no lowest rank of a host: 3"},
      {"2 2 fe80", "2 -1 fe80", 6, "no lowest rank of a host: -1"},
      {"10.0.0.1 4000", "host.a 4000", 4, "no IP address: host.a"},
      {"10.0.0.1 4000", "10.0.0.1 0", 4, "no port: 0"},
      {"65535\n", "65536\n", 6, "no port: 65536"},
      {"65535\n", "65535 \n", 6, "not a rank"},
      {"65535\n", "65535", 6, "no newline"},
      {"65535\n", "65535\n\n", 7, "not a rank"},
  };
  for (const Fault& fault : faults) {
    PeerBook book;
    const Status status = PeerBook::Parse(Replaced(kSound, fault.from, fault.to), &book);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << fault.from << " " << fault.to;
    EXPECT_EQ(status.message().find("line " + std::to_string(fault.line) + " of the book"), 0u)
        << status.message();
    EXPECT_NE(status.message().find(fault.cause), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("ff1020"), std::string::npos) << "it shows the key";
  }
}

TEST(PeerBookTest, NothingIsNoBook) {
  PeerBook book;
  EXPECT_FALSE(PeerBook::Parse("", &book).ok());
  EXPECT_FALSE(PeerBook::Parse(kHead, &book).ok());
  EXPECT_FALSE(PeerBook::Parse(std::string_view("\0", 1), &book).ok());
}

}  // namespace
}  // namespace covey
