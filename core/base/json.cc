#include "core/base/json.h"

#include <cstddef>
#include <cstdint>

namespace covey {
namespace {

// Bytes of the UTF-8 character at the front of `text`; 0 when there is none. REQUIRES: not empty.
// Refuses what RFC 3629 forbids: longer forms than needed, surrogates, values above U+10FFFF.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool too_long = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xed && byte(1) >= 0xa0;
  const bool too_large = lead == 0xf4 && byte(1) >= 0x90;
  return too_long || surrogate || too_large ? 0 : length;
}

void AppendControl(char c, std::string* json) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '\n':
      *json += "\\n";
      return;
    case '\t':
      *json += "\\t";
      return;
    case '\r':
      *json += "\\r";
      return;
    default:
      *json += "\\u00";
      *json += kHex[(c >> 4) & 15];
      *json += kHex[c & 15];
  }
}

}  // namespace

void AppendJsonString(std::string_view text, std::string* json) {
  *json += '"';
  while (!text.empty()) {
    const size_t length = CharacterBytes(text);
    const char c = text.front();
    if (length == 0) {
      *json += "\xef\xbf\xbd";
    } else if (c == '"' || c == '\\') {
      *json += '\\';
      *json += c;
    } else if (length == 1 && (c < 0x20 || c == 0x7f)) {
      AppendControl(c, json);
    } else {
      json->append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  *json += '"';
}

}  // namespace covey
