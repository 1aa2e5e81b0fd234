// The identity of a job on the network: one Ed25519 key and its certificate, made of the job's
// secret alone, so that all holders of the secret have the same, byte for byte, and no other.
// Both sides of a connection show it in TLS's handshake and take no other (RFC 8446, S. Josefsson,
// I. Liusvaara: "Edwards-Curve Digital Signature Algorithm (EdDSA)", RFC 8032, 2017, whose
// signatures are the same each time). By libcrypto.
//
// An eavesdropper learns nothing of it but the name, as TLS 1.3 encrypts certificates. A client
// that connects is shown the public key and can try secrets against it offline: a secret has to be
// drawn, not thought of.
//
// Pure; any thread.
#ifndef COVEY_OPS_CONTROL_IDENTITY_H_
#define COVEY_OPS_CONTROL_IDENTITY_H_

#include <string>
#include <string_view>

#include "core/base/status.h"

namespace covey {

struct Identity {
  // In the certificate, and in the clear in what a client says first: that of no machine, another
  // for each secret. A peer without it does not have the secret.
  std::string name;
  std::string key_pem;
  std::string certificate_pem;  // signed by the key itself; valid at any time
};

// Error: kInternal when libcrypto refuses.
Status MakeIdentity(std::string_view secret, Identity* identity);

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_IDENTITY_H_
