// The one thing about writing JSON that is easy to get wrong: strings. Any thread.
#ifndef COVEY_CORE_BASE_JSON_H_
#define COVEY_CORE_BASE_JSON_H_

#include <string>
#include <string_view>

namespace covey {

// Appends `text` as a JSON string, quotes included. Control characters are escaped; bytes that are
// not UTF-8 become U+FFFD, so that the result is valid JSON whatever a user calls a tensor.
void AppendJsonString(std::string_view text, std::string* json);

}  // namespace covey
#endif  // COVEY_CORE_BASE_JSON_H_
