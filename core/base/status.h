// The outcome of whatever can fail for a reason outside Covey's own code.
//
// A value, not an exception: a code, one sentence for a human, and the rank that caused it. The
// sentence names the operation, the ranks and the values concerned, and the cause that was seen
// (with the text of errno), not a guessed one. A wrong program is a CHECK (check.h), not a Status.
// Immutable once made; copies are independent. Any thread, under the rules of a plain value.
//
// Invariants:
//  1. OK is a null pointer: making, copying and testing it costs nothing.
//  2. A Status that is not OK has a message that is not empty.
#ifndef COVEY_CORE_BASE_STATUS_H_
#define COVEY_CORE_BASE_STATUS_H_

#include <memory>
#include <string>
#include <utility>

#include "core/base/types.h"

namespace covey {

// The values of covey_code in covey.h (c_api.cc asserts that they agree): append, never renumber.
enum class StatusCode : int32_t {
  kOk = 0,
  kInvalidArgument = 1,
  kNotInitialized = 2,
  kMismatch = 3,
  kAborted = 4,
  kTimeout = 5,
  kUnsupported = 6,
  kExhausted = 7,
  kForked = 8,
  kInternal = 9,
  kNotFinite = 10,
};
inline constexpr int kNumStatusCodes = 11;

const char* NameOf(StatusCode code);  // "invalid argument"

// The operating system's text for an errno value: "No space left on device".
std::string ErrnoText(int error);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  // REQUIRES: code is not kOk, message is not empty. `peer` is the rank that caused it, if one did.
  Status(StatusCode code, std::string message, Rank peer = kNoRank);

  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  Status(const Status& other);
  Status& operator=(const Status& other);
  ~Status() = default;

  static Status Ok() { return {}; }
  static Status InvalidArgument(std::string message, Rank peer = kNoRank);
  static Status NotInitialized(std::string message, Rank peer = kNoRank);
  static Status Mismatch(std::string message, Rank peer = kNoRank);
  static Status Aborted(std::string message, Rank peer = kNoRank);
  static Status Timeout(std::string message, Rank peer = kNoRank);
  static Status Unsupported(std::string message, Rank peer = kNoRank);
  static Status Exhausted(std::string message, Rank peer = kNoRank);
  static Status Forked(std::string message, Rank peer = kNoRank);
  static Status Internal(std::string message, Rank peer = kNoRank);

  bool ok() const { return failure_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : failure_->code; }
  // Empty when OK. Valid until this Status is assigned to or ends.
  const std::string& message() const;
  // The rank that caused it; kNoRank when none did.
  Rank peer() const { return ok() ? kNoRank : failure_->peer; }
  // For logs: "ok", or "aborted: rank 3 died (peer 3)".
  std::string ToString() const;

  // Equal code, message and peer.
  friend bool operator==(const Status& a, const Status& b);

 private:
  struct Failure {
    StatusCode code;
    Rank peer;
    std::string message;
  };
  std::unique_ptr<Failure> failure_;  // null = OK
};

}  // namespace covey

// Leaves the enclosing function with the Status of `expr` unless it is OK.
// NOLINTBEGIN(cppcoreguidelines-macro-usage): it returns from its caller.
#define RETURN_IF_ERROR(expr)                                          \
  do {                                                                 \
    if (::covey::Status covey_status_ = (expr); !covey_status_.ok()) { \
      return covey_status_;                                            \
    }                                                                  \
  } while (false)
// NOLINTEND(cppcoreguidelines-macro-usage)

#endif  // COVEY_CORE_BASE_STATUS_H_
