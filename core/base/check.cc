#include "core/base/check.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace covey {

void CheckFailed(const char* file, int line, const char* condition, const char* text) {
  char message[1024];
  const int wanted = std::snprintf(message, sizeof(message), "%s:%d: CHECK failed: %s%s%s\n", file,
                                   line, condition, text[0] == '\0' ? "" : ": ", text);
  const int length = std::clamp(wanted, 0, static_cast<int>(sizeof(message)) - 1);
  // Nothing can be done about a stderr that is closed: the abort below says it all the same.
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, message, static_cast<size_t>(length));
  std::abort();
}

}  // namespace covey
