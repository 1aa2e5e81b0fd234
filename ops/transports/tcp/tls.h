// TLS 1.3 of OpenSSL over a Socket, by a key that both sides hold (RFC 8446, section 2.2: a
// pre-shared key with Diffie-Hellman, so that a key that leaks later opens no recorded job).
//
// Records are collected and taken by the socket in large pieces; reading asks for whole buffers,
// once ReadAhead has been called. OpenSSL's errors stay here; no state of the process's own OpenSSL
// is touched, as the plug-in has its own.
//
// One thread at a time.
#ifndef COVEY_OPS_TRANSPORTS_TCP_TLS_H_
#define COVEY_OPS_TRANSPORTS_TCP_TLS_H_

#include <openssl/ssl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "ops/transports/tcp/socket.h"

namespace covey::tcp {

// OpenSSL's context for a job's key. Outlives its Tls objects.
class TlsKey {
 public:
  // Other `purpose`, other key: sides of different purposes refuse each other.
  static Status Make(std::span<const uint8_t> key, std::string_view purpose,
                     std::unique_ptr<TlsKey>* made);
  ~TlsKey();
  TlsKey(const TlsKey&) = delete;
  TlsKey& operator=(const TlsKey&) = delete;

  // What a greeting (ClientHello) of a holder of the key names, in the clear; another for each key.
  std::string_view name() const { return {reinterpret_cast<const char*>(name_.data()), kName}; }

 private:
  friend class Tls;
  static constexpr size_t kName = 16, kSecret = 32;
  TlsKey() = default;
  SSL_SESSION* Session(SSL* ssl) const;
  static int Use(SSL* ssl, const EVP_MD* digest, const unsigned char** name, size_t* length,
                 SSL_SESSION** session);
  static int Find(SSL* ssl, const unsigned char* name, size_t length, SSL_SESSION** session);

  std::array<uint8_t, kSecret> secret_{};
  std::array<uint8_t, kName> name_{};
  SSL_CTX* context_ = nullptr;
  BIO_METHOD* method_ = nullptr;
};

class Tls {
 public:
  // `socket` outlives it. A key of the cipher encrypts `records_per_key` records at most, below the
  // 2^24.5 of RFC 8446, section 5.5.
  Tls(const TlsKey& key, Socket* socket, bool dials, uint64_t records_per_key = uint64_t{1} << 24);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // What has been read from the socket already: the greeting, to the last byte.
  void Heard(std::span<const std::byte> greeting);
  // kDone: both sides hold the key. kEnded: they do not; the other side is told nothing.
  Outcome Shake();
  // Encrypts all of it; Flush sends it.
  bool Write(const void* data, size_t length);
  Outcome Flush();
  bool HasUnsent() const { return sent_ < cipher_.size(); }
  // Without ReadAhead no byte behind the record that it reads is taken from the socket.
  Outcome Read(void* to, size_t length, size_t* read);
  void ReadAhead();
  // A value of this connection alone, equal on both sides. After Shake.
  bool Export(std::span<unsigned char> value);
  // Read has ended because the connection has, not because of what it brought.
  bool is_cut() const { return last_ == Outcome::kEnded; }
  // Nothing of the bytes read ahead is left: another Read asks the socket.
  bool IsDrained() const { return ahead_begin_ == ahead_end_ && SSL_pending(ssl_) == 0; }

 private:
  static constexpr size_t kLeast = size_t{32} << 10, kMost = size_t{512} << 10;
  static int BioWrite(BIO* bio, const char* data, int length);
  static int BioRead(BIO* bio, char* data, int length);
  static long BioControl(BIO* bio, int command, long number, void* pointer);
  friend class TlsKey;
  Outcome Verdict(int result);

  Socket* socket_;
  SSL* ssl_ = nullptr;
  const uint64_t records_per_key_;
  uint64_t records_ = 0;
  Outcome last_ = Outcome::kWait;  // of the socket, under OpenSSL
  std::vector<char> cipher_;       // records, the first sent_ bytes of which have left
  size_t sent_ = 0;
  std::vector<char> ahead_;  // before ReadAhead: what Heard was given
  size_t ahead_begin_ = 0, ahead_end_ = 0;
  bool reads_ahead_ = false;
};

}  // namespace covey::tcp
#endif  // COVEY_OPS_TRANSPORTS_TCP_TLS_H_
