#include "ops/control/identity.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

#include "ops/control/challenge.h"

namespace covey {
namespace {

template <auto kFree>
struct Freer {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
template <class T, auto kFree>
using Owned = std::unique_ptr<T, Freer<kFree>>;
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using Certificate = Owned<X509, X509_free>;
using Memory = Owned<BIO, BIO_free_all>;
using Extension = Owned<X509_EXTENSION, X509_EXTENSION_free>;
using Number = Owned<BIGNUM, BN_free>;

const unsigned char* BytesOf(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Key KeyOf(std::string_view secret) {
  const std::string seed = Hmac(secret, "covey control: seed of the Ed25519 key");
  return Key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, BytesOf(seed), seed.size()));
}

bool SetSerial(X509* certificate, std::string_view secret) {
  constexpr int kSerialBytes = 16;
  std::string serial = Hmac(secret, "covey control: serial").substr(0, kSerialBytes);
  if (serial.size() != kSerialBytes) return false;
  serial[0] = static_cast<char>((serial[0] & 0x7f) | 0x40);  // positive, of full length
  const Number number(BN_bin2bn(BytesOf(serial), kSerialBytes, nullptr));
  return number != nullptr &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

std::string NameOf(std::string_view secret) {
  constexpr size_t kBytes = 16;
  constexpr const char* kDigits = "0123456789abcdef";
  std::string name = "covey-";
  for (const char byte : Hmac(secret, "covey control: name").substr(0, kBytes)) {
    const auto bits = static_cast<uint8_t>(byte);
    name += {kDigits[bits >> 4], kDigits[bits & 15]};
  }
  return name;
}

bool SetNames(X509* certificate, const std::string& own) {
  X509_NAME* name = X509_get_subject_name(certificate);
  if (X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, BytesOf(own), -1, -1, 0) != 1)
    return false;
  const std::string dns = "DNS:" + own;
  const Extension alternative(
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, dns.c_str()));
  return X509_set_issuer_name(certificate, name) == 1 && alternative != nullptr &&
         X509_add_ext(certificate, alternative.get(), -1) == 1;
}

// RFC 5280, section 4.1.2.5: no end that is known.
bool SetTimes(X509* certificate) {
  return ASN1_TIME_set_string_X509(X509_getm_notBefore(certificate), "19700101000000Z") == 1 &&
         ASN1_TIME_set_string_X509(X509_getm_notAfter(certificate), "99991231235959Z") == 1;
}

template <class Write>
std::string Pem(const Write& write) {
  const Memory memory(BIO_new(BIO_s_mem()));
  if (memory == nullptr || write(memory.get()) != 1) return {};
  char* text = nullptr;
  const long length = BIO_get_mem_data(memory.get(), &text);
  return {text, static_cast<size_t>(length)};
}

}  // namespace

Status MakeIdentity(std::string_view secret, Identity* identity) {
  constexpr long kVersion3 = 2;
  const Key key = KeyOf(secret);
  const Certificate certificate(X509_new());
  identity->name = NameOf(secret);
  const bool made = key != nullptr && certificate != nullptr &&
                    X509_set_version(certificate.get(), kVersion3) == 1 &&
                    SetSerial(certificate.get(), secret) && SetTimes(certificate.get()) &&
                    SetNames(certificate.get(), identity->name) &&
                    X509_set_pubkey(certificate.get(), key.get()) == 1 &&
                    X509_sign(certificate.get(), key.get(), nullptr) > 0;
  if (!made) return Status::Internal("libcrypto makes no Ed25519 certificate");
  identity->key_pem = Pem([&](BIO* to) {
    return PEM_write_bio_PrivateKey(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  identity->certificate_pem =
      Pem([&](BIO* to) { return PEM_write_bio_X509(to, certificate.get()); });
  if (identity->key_pem.empty() || identity->certificate_pem.empty())
    return Status::Internal("libcrypto does not write its own key");
  return Status::Ok();
}

}  // namespace covey
