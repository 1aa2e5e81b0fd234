// Mutual challenge: two sides show each other that they hold the same secret, without sending it,
// and from then on recognise each other's messages.
//
//   client                       server
//   Hello: client nonce   --->
//                         <---   server nonce
//   Prove: client proof   --->   (wrong: refused; the server has shown nothing)
//                         <---   server proof
//   sealed messages       <-->   sealed messages
//
// Both nonces (32 random bytes each) and the protocol's version enter the session's keys, so that a
// proof or a seal fits no other session. Keys and proofs are HMAC-SHA-256 (H. Krawczyk, M. Bellare,
// R. Canetti, "HMAC: Keyed-Hashing for Message Authentication", RFC 2104, 1997), by libcrypto. Each
// direction has its own key, and a proof its own label: nothing that one side says can be handed
// back to it. All this runs within TLS by the job's identity (identity.h), which no client without
// the secret gets into; a session ties messages to a node and to their order.
//
// Values and a table, no thread, no clock, no source of randomness of their own but NewNonce.
#ifndef COVEY_OPS_CONTROL_CHALLENGE_H_
#define COVEY_OPS_CONTROL_CHALLENGE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace covey {

inline constexpr uint32_t kControlProtocol = 3;
inline constexpr size_t kNonceBytes = 32;

// 32 bytes of the system's randomness; empty when it has none.
std::string NewNonce();

// HMAC-SHA-256, 32 bytes; empty when libcrypto refuses.
std::string Hmac(std::string_view key, std::string_view text);
// In a time that does not depend on where they differ.
bool SameBytes(std::string_view a, std::string_view b);

struct SessionKeys {
  std::string client_proof;
  std::string server_proof;
  std::string client_seal;
  std::string server_seal;
};
SessionKeys MakeKeys(std::string_view secret, std::string_view client_nonce,
                     std::string_view server_nonce);

// The seal of a message; `call` names what it is part of, such as "Join reply".
std::string Seal(std::string_view key, std::string_view call, uint64_t sequence,
                 std::string_view body);

// The server's side: the clients that are being checked, and those let in. A session is named by
// its server nonce.
//
// Invariants:
//  1. At most kMaxAtDoor sessions have not been proved; one more drops the oldest. Each is dropped
//     kPatience after its Hello. At most kMaxInside have been proved.
//  2. A session is proved at most once and by its own nonces; a failed proof ends it.
//  3. The sequences of a session's messages of one call only grow. (Of one call: what two calls
//     send at a time may arrive in any order.)
class Door {
 public:
  static constexpr size_t kMaxAtDoor = 1024;
  static constexpr size_t kMaxInside = 4096;
  static constexpr Time kPatience = 5 * kSecond;

  explicit Door(std::string secret) : secret_(std::move(secret)) {}

  // `server_nonce`: of NewNonce, never used before.
  Status Hello(Time now, uint32_t protocol, std::string_view client_nonce,
               const std::string& server_nonce);
  // Errors: kInvalidArgument: the secrets differ; kAborted: begin again with Hello.
  Status Prove(Time now, const std::string& session, std::string_view proof,
               std::string* server_proof);
  // Whether this sealed message is what it says. Its sequence is used up.
  Status Open(const std::string& session, std::string_view call, uint64_t sequence,
              std::string_view body, std::string_view mac);
  // The seal of an answer. REQUIRES: a session that Open has accepted.
  std::string SealOf(const std::string& session, std::string_view call, uint64_t sequence,
                     std::string_view body) const;
  void Leave(const std::string& session) { inside_.erase(session); }

  uint64_t refused() const { return refused_; }  // proofs and seals that were wrong

 private:
  struct AtDoor {
    Time since = 0;
    SessionKeys keys;
  };
  struct Inside {
    std::map<std::string, uint64_t, std::less<>> last_sequence;  // by call
    SessionKeys keys;
  };
  void DropOld(Time now);
  void MakeRoom();

  const std::string secret_;
  std::map<std::string, AtDoor> at_door_;
  std::map<std::string, Inside> inside_;
  uint64_t refused_ = 0;
};

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_CHALLENGE_H_
