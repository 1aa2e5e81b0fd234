// Goal: who holds one secret has one identity, and nobody with another secret has it.
// Method: what is made of some secrets is compared and read back by libcrypto.
#include "ops/control/identity.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

namespace covey {
namespace {

Identity Of(const std::string& secret) {
  Identity identity;
  const Status status = MakeIdentity(secret, &identity);
  EXPECT_TRUE(status.ok()) << status.message();
  return identity;
}

X509* Read(const std::string& pem) {
  BIO* memory = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* certificate = PEM_read_bio_X509(memory, nullptr, nullptr, nullptr);
  BIO_free(memory);
  return certificate;
}

TEST(IdentityTest, OneSecretOneIdentity) {
  const Identity one = Of("a secret of some length"), again = Of("a secret of some length");
  EXPECT_EQ(one.key_pem, again.key_pem);
  EXPECT_EQ(one.certificate_pem, again.certificate_pem);
  const Identity other = Of("a secret of some lengtI");
  EXPECT_NE(one.key_pem, other.key_pem);
  EXPECT_EQ(one.name, again.name);
  EXPECT_NE(one.name, other.name);
  EXPECT_NE(one.certificate_pem, other.certificate_pem);
}

TEST(IdentityTest, ItIsSignedByItselfAndByNoOther) {
  const Identity identity = Of("a secret of some length");
  X509* one = Read(identity.certificate_pem);
  X509* other = Read(Of("another").certificate_pem);
  ASSERT_NE(one, nullptr);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(X509_verify(one, X509_get0_pubkey(one)), 1);
  EXPECT_NE(X509_verify(one, X509_get0_pubkey(other)), 1);
  EXPECT_EQ(X509_check_host(one, identity.name.c_str(), 0, 0, nullptr), 1);
  EXPECT_EQ(X509_cmp_current_time(X509_get0_notBefore(one)), -1);
  EXPECT_EQ(X509_cmp_current_time(X509_get0_notAfter(one)), 1);
  X509_free(one);
  X509_free(other);
}

TEST(IdentityTest, TheSecretIsNotInIt) {
  const std::string secret = "a secret of some length";
  const Identity identity = Of(secret);
  EXPECT_EQ(identity.certificate_pem.find("PRIVATE"), std::string::npos);
  EXPECT_EQ(identity.key_pem.find(secret), std::string::npos);
}

}  // namespace
}  // namespace covey
