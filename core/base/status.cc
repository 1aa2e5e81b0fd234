#include "core/base/status.h"

#include <system_error>

#include "core/base/check.h"

namespace covey {

const char* NameOf(StatusCode code) {
  constexpr const char* kNames[kNumStatusCodes] = {
      "ok",          "invalid argument", "not initialized", "mismatch", "aborted",   "timeout",
      "unsupported", "exhausted",        "forked",          "internal", "not finite"};
  const int index = static_cast<int>(code);
  CHECK(index >= 0 && index < kNumStatusCodes);
  return kNames[index];
}

std::string ErrnoText(int error) { return std::generic_category().message(error); }

Status::Status(StatusCode code, std::string message, Rank peer) {
  CHECK(code != StatusCode::kOk, "OK is made with Status::Ok()");
  CHECK(!message.empty(), "a failure explains itself");
  failure_ = std::make_unique<Failure>(Failure{code, peer, std::move(message)});
}

Status::Status(const Status& other)
    : failure_(other.ok() ? nullptr : std::make_unique<Failure>(*other.failure_)) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) {
    failure_ = other.ok() ? nullptr : std::make_unique<Failure>(*other.failure_);
  }
  return *this;
}

const std::string& Status::message() const {
  static const std::string kEmpty;
  return ok() ? kEmpty : failure_->message;
}

std::string Status::ToString() const {
  std::string text = NameOf(code());
  if (ok()) return text;
  text += ": " + failure_->message;
  if (failure_->peer != kNoRank) text += " (peer " + std::to_string(ToInt(failure_->peer)) + ")";
  return text;
}

bool operator==(const Status& a, const Status& b) {
  return a.code() == b.code() && a.peer() == b.peer() && a.message() == b.message();
}

Status Status::InvalidArgument(std::string message, Rank peer) {
  return {StatusCode::kInvalidArgument, std::move(message), peer};
}
Status Status::NotInitialized(std::string message, Rank peer) {
  return {StatusCode::kNotInitialized, std::move(message), peer};
}
Status Status::Mismatch(std::string message, Rank peer) {
  return {StatusCode::kMismatch, std::move(message), peer};
}
Status Status::Aborted(std::string message, Rank peer) {
  return {StatusCode::kAborted, std::move(message), peer};
}
Status Status::Timeout(std::string message, Rank peer) {
  return {StatusCode::kTimeout, std::move(message), peer};
}
Status Status::Unsupported(std::string message, Rank peer) {
  return {StatusCode::kUnsupported, std::move(message), peer};
}
Status Status::Exhausted(std::string message, Rank peer) {
  return {StatusCode::kExhausted, std::move(message), peer};
}
Status Status::Forked(std::string message, Rank peer) {
  return {StatusCode::kForked, std::move(message), peer};
}
Status Status::Internal(std::string message, Rank peer) {
  return {StatusCode::kInternal, std::move(message), peer};
}

}  // namespace covey
