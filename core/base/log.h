// Covey's messages to the user, on stderr, one line each: "covey rank 3 warning: ...". One per
// runtime.
//
// error and warn once, at the place where the cause is found; info per object; debug per operation.
// Any thread.
#ifndef COVEY_CORE_BASE_LOG_H_
#define COVEY_CORE_BASE_LOG_H_

#include <memory>
#include <string_view>

#include "core/base/types.h"

namespace covey {

enum class LogLevel : uint8_t { kOff, kError, kWarn, kInfo, kDebug };

class Log {
 public:
  Log(LogLevel level, Rank rank);
  ~Log();

  bool Enabled(LogLevel level) const { return level != LogLevel::kOff && level <= level_; }
  void Write(LogLevel level, std::string_view text);

 private:
  struct Sink;
  LogLevel level_;
  std::unique_ptr<Sink> sink_;
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_LOG_H_
