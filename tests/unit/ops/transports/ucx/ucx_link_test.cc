// A Link over UCX behind the door of tcp keeps the contract of links (link_cases.h) and lets in
// nothing without its token.
// Method: UCX's TCP on the loopback interface.
#include "core/transport/guarded_link.h"
#include "ops/transports/ucx/fabric.h"
#include "tests/unit/ops/transports/link_cases.h"

extern "C" covey_open_link_function covey_open_ucx_link;

namespace covey {
namespace {

std::unique_ptr<Link> Guarded(std::unique_ptr<Link> tcp, const covey_link_options& options) {
  std::unique_ptr<PluginLink> fast;
  EXPECT_EQ(PluginLink::Open("ucx", covey_open_ucx_link, options, &fast), Status::Ok());
  std::unique_ptr<GuardedLink> link;
  EXPECT_EQ(GuardedLink::Open(std::move(tcp), std::move(fast), &link), Status::Ok());
  return link;
}

INSTANTIATE_TEST_SUITE_P(Ucx, LinkTest, ::testing::Values(Engine{"auth", Guarded}),
                         [](const auto&) { return "ucx"; });

class UcxTest : public ::testing::Test {
 protected:
  // A link without a door.
  static Status Open(int rank, bool is_trusted, std::unique_ptr<PluginLink>* link,
                     const char* address = "127.0.0.1") {
    return PluginLink::Open("ucx", covey_open_ucx_link,
                            {.rank = rank,
                             .size = 3,
                             .listener = -1,
                             .lease_ns = 10 * kSecond,
                             .address = address,
                             .is_trusted = is_trusted ? 1 : 0},
                            link);
  }
};

// Rank 2 claims to be rank 0 of the job of ranks 0 and 1, without the token that rank 0 was given.
TEST_F(UcxTest, NothingComesInWithoutItsToken) {
  std::unique_ptr<PluginLink> links[3];
  for (int r = 0; r < 3; ++r) ASSERT_EQ(Open(r == 2 ? 0 : r, true, &links[r]), Status::Ok());
  constexpr uint64_t kToken = 0x123456789abcdef0;
  Bytes memory(1 << 20);
  links[1]->Expect(Rank{0}, kToken);
  links[1]->Land(Rank{0}, memory);
  links[0]->Connect(Rank{1}, links[1]->Address(), kToken);
  links[2]->Connect(Rank{1}, links[1]->Address(), kToken + 1);
  const Bytes data = Pattern(memory.size(), 1);
  const size_t lengths[] = {1, 10000, memory.size()};
  for (size_t length : lengths) {
    ASSERT_TRUE(links[2]->Send(Rank{1}, Bytes(length)));
    ASSERT_TRUE(links[2]->Put(Rank{1}, 0, std::span(data).first(length)));
  }
  std::vector<size_t> came;
  const auto look = [&] {
    for (auto& link : links) {
      Rank from = kNoRank;
      std::span<const std::byte> message;
      while (link->Receive(&from, &message)) came.push_back(message.size());
    }
  };
  const Time limit = MonotonicNow() + kHardLimit;
  for (int i = 0; i < 2000; ++i) look();
  ASSERT_TRUE(links[0]->Send(Rank{1}, Bytes(77)));
  while (came.empty() && MonotonicNow() < limit) look();
  EXPECT_EQ(came, std::vector<size_t>{77});
  EXPECT_EQ(memory, Bytes(memory.size()));
  EXPECT_TRUE(links[1]->PollLost().empty()) << "a stranger ends nothing";
}

// The receive that UCX has begun ends with the peer, and its memory is then the receiver's.
TEST_F(UcxTest, APeerThatIsKilledAmidAReceiveIsLost) {
  Job job(2, "auth", 3600 * kSecond, AF_INET, Guarded);  // for so long UCX might hold on to it
  constexpr size_t kLength = size_t{256} << 20;
  const pid_t child = fork();
  if (child == 0) {
    job.Open(1);
    const Bytes data(kLength, std::byte{1});
    job.Put(1, 0, 0, data);
    job.Until([] { return false; });
    _exit(1);
  }
  job.Open(0);
  auto memory = std::make_unique<Bytes>(kLength);
  job.link(0).Land(Rank{1}, *memory);
  job.Until([&] {
    if (!job.mail(0).empty() || !job.losses(0).empty()) return true;
    job.link(0).Send(Rank{1}, Pattern(1, 1));  // they meet
    return (*memory)[0] == std::byte{1};
  });
  kill(child, SIGKILL);
  job.Until([&] { return !job.losses(0).empty(); });
  EXPECT_EQ(job.losses(0)[0].rank, Rank{1});
  EXPECT_EQ(job.losses(0)[0].how.find("has died, or its host has ("), 0u);
  EXPECT_EQ(memory->back(), std::byte{0}) << "the put was over before the kill";
  job.link(0).Drop(Rank{1});
  memory.reset();
  for (int i = 0; i < 100; ++i) job.Pump(0);
  waitpid(child, nullptr, 0);
}

TEST_F(UcxTest, WithoutRdmaAndTrustItSaysWhy) {
  if (ucx::HasRdma()) GTEST_SKIP() << "this machine has RDMA";
  std::unique_ptr<PluginLink> link;
  const std::string said = Open(0, false, &link).message();
  EXPECT_EQ(said.find("transport ucx: this host has no InfiniBand or RoCE device that is up, and "
                      "the network of its address 127.0.0.1 is not declared trusted"),
            0u);
  EXPECT_NE(said.find("COVEY_TRUST_NETWORK=CIDR"), std::string::npos);
  EXPECT_NE(Open(0, true, &link, "192.0.2.7").message().find("has its address 192.0.2.7"),
            std::string::npos);
  EXPECT_NE(Open(0, true, &link, nullptr).message().find("use mpi"), std::string::npos);
}

}  // namespace
}  // namespace covey
