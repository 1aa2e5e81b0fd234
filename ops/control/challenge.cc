#include "ops/control/challenge.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>

#include "core/base/wire.h"

namespace covey {
namespace {

constexpr std::string_view kClientProof = "client proof";
constexpr std::string_view kServerProof = "server proof";

// Lengths stand before the pieces: no two lists of pieces make the same text.
std::string Joined(std::initializer_list<std::string_view> pieces) {
  Writer writer;
  for (std::string_view piece : pieces) writer.PutString(piece);
  const Bytes bytes = writer.Take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string NewNonce() {
  std::string nonce(kNonceBytes, '\0');
  auto* bytes = reinterpret_cast<unsigned char*>(nonce.data());
  return RAND_bytes(bytes, static_cast<int>(nonce.size())) == 1 ? nonce : std::string();
}

std::string Hmac(std::string_view key, std::string_view text) {
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes,
                                   text.size(), mac, &length);
  if (made == nullptr) return {};
  return {reinterpret_cast<const char*>(mac), length};
}

bool SameBytes(std::string_view a, std::string_view b) {
  return !a.empty() && a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

SessionKeys MakeKeys(std::string_view secret, std::string_view client_nonce,
                     std::string_view server_nonce) {
  const std::string version = std::to_string(kControlProtocol);
  const std::string key =
      Hmac(secret, Joined({"covey control", version, client_nonce, server_nonce}));
  return {.client_proof = Hmac(key, kClientProof),
          .server_proof = Hmac(key, kServerProof),
          .client_seal = Hmac(key, "client seal"),
          .server_seal = Hmac(key, "server seal")};
}

std::string Seal(std::string_view key, std::string_view call, uint64_t sequence,
                 std::string_view body) {
  return Hmac(key, Joined({call, std::to_string(sequence), body}));
}

void Door::DropOld(Time now) {
  std::erase_if(at_door_, [now](const auto& item) { return now - item.second.since > kPatience; });
}

void Door::MakeRoom() {
  if (at_door_.size() < kMaxAtDoor) return;
  at_door_.erase(std::min_element(at_door_.begin(), at_door_.end(), [](auto& a, auto& b) {
    return a.second.since < b.second.since;
  }));
}

Status Door::Hello(Time now, uint32_t protocol, std::string_view client_nonce,
                   const std::string& server_nonce) {
  if (protocol != kControlProtocol)
    return Status::Unsupported("the rendezvous speaks protocol " +
                               std::to_string(kControlProtocol) +
                               " of Covey's control plane, not " + std::to_string(protocol) +
                               ": install the same version of Covey on every node");
  if (client_nonce.size() != kNonceBytes)
    return Status::InvalidArgument("a nonce has " + std::to_string(kNonceBytes) + " bytes, not " +
                                   std::to_string(client_nonce.size()));
  if (server_nonce.size() != kNonceBytes)
    return Status::Internal("the system gave no random bytes");
  DropOld(now);
  MakeRoom();
  at_door_[server_nonce] = {.since = now, .keys = MakeKeys(secret_, client_nonce, server_nonce)};
  return Status::Ok();
}

Status Door::Prove(Time now, const std::string& session, std::string_view proof,
                   std::string* server_proof) {
  DropOld(now);
  const auto found = at_door_.find(session);
  if (found == at_door_.end())
    return Status::Aborted("no such session: it was too slow, crowded out, or proved before");
  const SessionKeys keys = std::move(found->second.keys);
  at_door_.erase(found);
  if (!SameBytes(proof, keys.client_proof)) {
    ++refused_;
    return Status::InvalidArgument("the secrets differ");
  }
  if (inside_.size() >= kMaxInside) return Status::Exhausted("too many sessions");
  *server_proof = keys.server_proof;
  inside_[session] = {.keys = keys};
  return Status::Ok();
}

Status Door::Open(const std::string& session, std::string_view call, uint64_t sequence,
                  std::string_view body, std::string_view mac) {
  const auto found = inside_.find(session);
  if (found == inside_.end()) return Status::InvalidArgument("no such session");
  Inside& inside = found->second;
  if (!SameBytes(mac, Seal(inside.keys.client_seal, call, sequence, body))) {
    ++refused_;
    return Status::InvalidArgument("the seal of a message is wrong");
  }
  uint64_t& last_sequence = inside.last_sequence[std::string(call)];
  if (sequence <= last_sequence) {
    ++refused_;
    return Status::InvalidArgument("a message was repeated");
  }
  last_sequence = sequence;
  return Status::Ok();
}

std::string Door::SealOf(const std::string& session, std::string_view call, uint64_t sequence,
                         std::string_view body) const {
  return Seal(inside_.at(session).keys.server_seal, call, sequence, body);
}

}  // namespace covey
