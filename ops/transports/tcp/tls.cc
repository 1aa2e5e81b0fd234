#include "ops/transports/tcp/tls.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <cstring>

namespace covey::tcp {
namespace {

constexpr unsigned char kSuite[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256, by its number
constexpr size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH;

// HKDF (H. Krawczyk, P. Eronen, RFC 5869, 2010).
bool Derive(std::span<const uint8_t> key, const std::string& label, std::span<uint8_t> out) {
  EVP_KDF* kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* context = EVP_KDF_CTX_new(kdf);
  EVP_KDF_free(kdf);
  char digest[] = "SHA256";
  char salt[] = "covey tcp 1";
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<uint8_t*>(key.data()),
                                        key.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof(salt) - 1),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<char*>(label.data()),
                                        label.size()),
      OSSL_PARAM_construct_end()};
  const bool derived =
      context != nullptr && EVP_KDF_derive(context, out.data(), out.size(), params) == 1;
  EVP_KDF_CTX_free(context);
  return derived;
}

}  // namespace

Status TlsKey::Make(std::span<const uint8_t> key, std::string_view purpose,
                    std::unique_ptr<TlsKey>* made) {
  // The user's openssl.cnf is not ours; and threads of ours may encrypt until the process ends.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr);
  std::unique_ptr<TlsKey> it(new TlsKey);
  const std::string of(purpose);
  it->context_ = SSL_CTX_new(TLS_method());
  it->method_ = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "covey socket");
  SSL_CTX* context = it->context_;
  const bool sound =
      context != nullptr && it->method_ != nullptr && Derive(key, of + ": key", it->secret_) &&
      Derive(key, of + ": name", it->name_) &&
      SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
      SSL_CTX_set1_groups_list(context, "X25519") == 1 &&
      SSL_CTX_set_num_tickets(context, 0) == 1;  // what follows the handshake is the link's
  if (!sound) {
    ERR_clear_error();
    return Status::Unsupported("OpenSSL offers no TLS 1.3 with AES-128-GCM and X25519");
  }
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_psk_use_session_callback(context, Use);
  SSL_CTX_set_psk_find_session_callback(context, Find);
  SSL_CTX_set_app_data(context, it.get());
  BIO_meth_set_write(it->method_, Tls::BioWrite);
  BIO_meth_set_read(it->method_, Tls::BioRead);
  BIO_meth_set_ctrl(it->method_, Tls::BioControl);
  *made = std::move(it);
  return Status::Ok();
}

TlsKey::~TlsKey() {
  SSL_CTX_free(context_);
  BIO_meth_free(method_);
  OPENSSL_cleanse(secret_.data(), secret_.size());
}

SSL_SESSION* TlsKey::Session(SSL* ssl) const {
  SSL_SESSION* session = SSL_SESSION_new();
  const bool sound = session != nullptr &&
                     SSL_SESSION_set1_master_key(session, secret_.data(), secret_.size()) == 1 &&
                     SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kSuite)) == 1 &&
                     SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (sound) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

// The key that the dialing side offers.
int TlsKey::Use(SSL* ssl, const EVP_MD* digest, const unsigned char** name, size_t* length,
                SSL_SESSION** session) {
  const auto* self = static_cast<const TlsKey*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  *session = self->Session(ssl);
  if (*session == nullptr) return 0;
  const SSL_CIPHER* cipher = SSL_SESSION_get0_cipher(*session);
  if (digest != nullptr && digest != SSL_CIPHER_get_handshake_digest(cipher)) {
    SSL_SESSION_free(*session);
    *session = nullptr;
    return 0;
  }
  *name = self->name_.data();
  *length = self->name_.size();
  return 1;
}

// The key that the accepting side takes; *session stays null for another name.
int TlsKey::Find(SSL* ssl, const unsigned char* name, size_t length, SSL_SESSION** session) {
  const auto* self = static_cast<const TlsKey*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  const bool known = length == kName && std::memcmp(name, self->name_.data(), kName) == 0;
  *session = known ? self->Session(ssl) : nullptr;
  return *session != nullptr ? 1 : 0;
}

Tls::Tls(const TlsKey& key, Socket* socket, bool dials, uint64_t records_per_key)
    : socket_(socket), ssl_(SSL_new(key.context_)), records_per_key_(records_per_key) {
  BIO* bio = BIO_new(key.method_);
  if (ssl_ == nullptr || bio == nullptr) {
    SSL_free(std::exchange(ssl_, nullptr));
    BIO_free(bio);
    return;
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  if (dials)
    SSL_set_connect_state(ssl_);
  else
    SSL_set_accept_state(ssl_);
  // A peer that shows a certificate instead is refused. The accepting side asks for none: there,
  // this would demand a context of session ids.
  if (dials) SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
}

Tls::~Tls() { SSL_free(ssl_); }

int Tls::BioWrite(BIO* bio, const char* data, int length) {
  auto* self = static_cast<Tls*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  self->cipher_.insert(self->cipher_.end(), data, data + length);
  return length;
}

int Tls::BioRead(BIO* bio, char* data, int length) {
  auto* self = static_cast<Tls*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const bool direct = !self->reads_ahead_;
  size_t got = 0;
  if (self->ahead_begin_ == self->ahead_end_) {
    iovec part{direct ? data : self->ahead_.data(),
               direct ? static_cast<size_t>(length) : self->ahead_.size()};
    self->last_ = self->socket_->Receive(&part, 1, &got);
    if (self->last_ == Outcome::kWait) BIO_set_retry_read(bio);
    if (self->last_ != Outcome::kDone) return self->last_ == Outcome::kWait ? -1 : 0;
    if (direct) return static_cast<int>(got);
    self->ahead_begin_ = 0;
    self->ahead_end_ = got;
  }
  got = std::min(static_cast<size_t>(length), self->ahead_end_ - self->ahead_begin_);
  std::memcpy(data, self->ahead_.data() + self->ahead_begin_, got);
  self->ahead_begin_ += got;
  // One that the socket fills at once is too small.
  const bool all = self->ahead_begin_ == self->ahead_.size();
  if (!direct && all && self->ahead_.size() < kMost) self->ahead_.resize(2 * self->ahead_.size());
  return static_cast<int>(got);
}

long Tls::BioControl(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

// What OpenSSL's answer means. Its queue of errors belongs to the thread: what stays there would
// spoil the next answer.
Outcome Tls::Verdict(int result) {
  if (result == 1) return Outcome::kDone;
  const bool waits = SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ;
  ERR_clear_error();
  return waits ? Outcome::kWait : Outcome::kEnded;
}

void Tls::Heard(std::span<const std::byte> greeting) {
  const auto* bytes = reinterpret_cast<const char*>(greeting.data());
  ahead_.assign(bytes, bytes + greeting.size());
  ahead_end_ = ahead_.size();
}

void Tls::ReadAhead() {
  reads_ahead_ = true;
  ahead_.resize(kLeast);
  ahead_begin_ = ahead_end_ = 0;
}

Outcome Tls::Shake() {
  if (ssl_ == nullptr) return Outcome::kEnded;
  const Outcome shaken = Verdict(SSL_do_handshake(ssl_));
  // The alert that says why is not sent: strangers hear nothing.
  if (shaken == Outcome::kEnded) return shaken;
  if (shaken == Outcome::kDone && SSL_session_reused(ssl_) != 1) return Outcome::kEnded;
  return Flush() == Outcome::kEnded ? Outcome::kEnded : shaken;
}

bool Tls::Export(std::span<unsigned char> value) {
  constexpr std::string_view kLabel = "EXPORTER-covey-tcp-streams";
  return SSL_export_keying_material(ssl_, value.data(), value.size(), kLabel.data(), kLabel.size(),
                                    nullptr, 0, 0) == 1;
}

bool Tls::Write(const void* data, size_t length) {
  records_ += (length + kRecord - 1) / kRecord;
  if (records_ > records_per_key_) {
    records_ = 0;
    if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return false;
  }
  size_t written = 0;
  return Verdict(SSL_write_ex(ssl_, data, length, &written)) == Outcome::kDone && written == length;
}

Outcome Tls::Flush() {
  while (HasUnsent()) {
    const iovec part{cipher_.data() + sent_, cipher_.size() - sent_};
    size_t sent = 0;
    const Outcome outcome = socket_->Send(&part, 1, &sent);
    if (outcome != Outcome::kDone) return outcome;
    sent_ += sent;
  }
  cipher_.clear();
  sent_ = 0;
  return Outcome::kDone;
}

Outcome Tls::Read(void* to, size_t length, size_t* read) {
  *read = 0;
  return Verdict(SSL_read_ex(ssl_, to, length, read));
}

}  // namespace covey::tcp
