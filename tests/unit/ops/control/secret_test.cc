// Goal: what was drawn is taken for a secret; what people think of, or a shell repeats, is not.
// Method: texts of both kinds. Python's rule is compared with these in decoders_test.py.
#include "ops/control/secret.h"

#include <gtest/gtest.h>

#include <string>

namespace covey {
namespace {

const std::string kHex = "9e7d24f0c1b85a3362d4f1a07bc8e9554f0d3a1c67b29e8840f5d6c7ab1392e4";
const std::string kBase64 = "nn0k8MG4WjNi1PGge8jpVU8NOhxnsp6IQPXWx6sTkuQ";

TEST(SecretTest, DrawnOnesAreTaken) {
  for (const std::string& secret :
       {kHex, kHex + "ab", kBase64, kBase64 + "=", std::string("-_/+") + kBase64})
    EXPECT_TRUE(CheckSecret(secret).ok()) << secret;
}

TEST(SecretTest, OthersAreRefused) {
  std::string twice, letters;
  for (int i = 0; i < 4; ++i) twice += "0123456789abcdef";
  for (int i = 0; i < 6; ++i) letters += "abcdefgh";
  for (const std::string& secret :
       {std::string(), kHex.substr(1), kBase64.substr(1), kHex.substr(0, 32) + "=", twice, letters,
        std::string(64, 'a'), std::string(32, '1') + std::string(32, '2'), kBase64 + "===",
        kBase64 + " x", kBase64 + std::string(1, '\0'), kHex + std::string(kMostSecretBytes, 'a'),
        std::string("a secret that somebody thought of, and long"),
        kBase64.substr(0, 20) + "=" + kBase64.substr(20)}) {
    const Status status = CheckSecret(secret);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << secret;
    EXPECT_NE(status.message().find("openssl rand -hex 32"), std::string::npos);
    if (!secret.empty()) {
      EXPECT_EQ(status.message().find(secret), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace covey
