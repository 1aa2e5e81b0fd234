#include "ops/control/secret.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>

namespace covey {
namespace {

bool IsHex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

bool IsBase64(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '/' || c == '-' ||
         c == '_';
}

// One shorter text, several times.
bool Repeats(std::string_view text) {
  const std::string twice = std::string(text) + std::string(text);
  return twice.find(text, 1) < text.size();
}

}  // namespace

Status CheckSecret(std::string_view secret) {
  constexpr size_t kHexDigits = 64, kBase64Characters = 43;
  std::string_view body = secret;
  for (int i = 0; i < 2 && body.ends_with('='); ++i) body.remove_suffix(1);
  const bool is_hex = std::all_of(secret.begin(), secret.end(), IsHex);
  const bool is_long = is_hex ? secret.size() >= kHexDigits : body.size() >= kBase64Characters;
  const bool has_form =
      secret.size() <= kMostSecretBytes && std::all_of(body.begin(), body.end(), IsBase64);
  const std::set<char> different(secret.begin(), secret.end());
  if (is_long && has_form && different.size() >= kLeastDifferent && !Repeats(secret))
    return Status::Ok();
  return Status::InvalidArgument(
      "the job's secret is not 32 drawn bytes as 64 hexadecimal digits or as base64: whoever "
      "connects could guess it; `openssl rand -hex 32` makes one");
}

}  // namespace covey
