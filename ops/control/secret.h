// The form of a job's secret. A client that connects is shown a public key made of it and can try
// secrets against it as fast as a machine counts, so it has to be drawn: 256 bits are too many to
// try.
//
// No function that takes long (a KDF) stands in for that: it would make guesses ten thousand times
// dearer, and a password of people is weaker by more than that.
#ifndef COVEY_OPS_CONTROL_SECRET_H_
#define COVEY_OPS_CONTROL_SECRET_H_

#include <string_view>

#include "core/base/status.h"

namespace covey {

// Whether it has the form of 32 drawn bytes or more: hexadecimal digits (64 at least) or base64
// (RFC 4648, either alphabet; 43 characters at least, without the padding), at most
// kMostSecretBytes, not one text again and again, at least kLeastDifferent different characters. A
// program sees no more of how it was made. frameworks/covey/launch/secret.py does the same.
inline constexpr size_t kMostSecretBytes = 4096;
inline constexpr size_t kLeastDifferent = 8;
Status CheckSecret(std::string_view secret);

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_SECRET_H_
