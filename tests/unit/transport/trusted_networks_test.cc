// COVEY_TRUST_NETWORK: which addresses lie in the networks of a text, and which texts are none.
#include "core/transport/trusted_networks.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

bool Trusts(std::string_view text, const std::string& address) {
  TrustedNetworks networks;
  EXPECT_EQ(TrustedNetworks::Parse(text, &networks), Status::Ok()) << text;
  return networks.Contain(address);
}

TEST(TrustedNetworksTest, AnAddressLiesInItsNetwork) {
  EXPECT_TRUE(Trusts("10.77.0.0/16", "10.77.255.1"));
  EXPECT_FALSE(Trusts("10.77.0.0/16", "10.78.0.1"));
  EXPECT_TRUE(Trusts("10.0.0.0/9", "10.127.0.1"));
  EXPECT_FALSE(Trusts("10.0.0.0/9", "10.128.0.1"));
  EXPECT_TRUE(Trusts("192.168.1.7/32", "192.168.1.7"));
  EXPECT_FALSE(Trusts("192.168.1.7/32", "192.168.1.6"));
  EXPECT_TRUE(Trusts("0.0.0.0/0", "8.8.8.8"));
  EXPECT_FALSE(Trusts("0.0.0.0/0", "::1"));
  EXPECT_TRUE(Trusts("10.0.0.0/8,fd00:1::/63", "fd00:1:0:1::2"));
  EXPECT_FALSE(Trusts("10.0.0.0/8,fd00:1::/63", "fd00:1:0:2::2"));
}

TEST(TrustedNetworksTest, NoneAndAll) {
  EXPECT_FALSE(Trusts("", "10.77.0.1"));
  EXPECT_TRUE(Trusts("yes", "10.77.0.1"));
  EXPECT_TRUE(Trusts("yes", "fd00::1"));
  EXPECT_FALSE(Trusts("yes", "host"));
}

TEST(TrustedNetworksTest, OtherTextsAreRefused) {
  for (const char* text : {"no", "10.77.0.0", "10.77.0.0/", "10.77.0.0/33", "10.77.0.0/-1",
                           "10.77.0/16", "fd00::/129", "10.0.0.0/8,,10.1.0.0/16", "10.0.0.0/8 "}) {
    TrustedNetworks networks;
    const Status status = TrustedNetworks::Parse(text, &networks);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(status.message().find("COVEY_TRUST_NETWORK: \""), 0u) << text;
    EXPECT_FALSE(networks.Contain("192.0.2.1")) << text;
  }
}

}  // namespace
}  // namespace covey
