#include "core/base/log.h"

#include <string>

#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace covey {
namespace {

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kOff:
      return spdlog::level::off;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kDebug:
      return spdlog::level::debug;
  }
  return spdlog::level::off;
}

}  // namespace

struct Log::Sink {
  explicit Sink(const std::string& name)
      : logger(name, std::make_shared<spdlog::sinks::stderr_sink_mt>()) {}
  spdlog::logger logger;
};

Log::Log(LogLevel level, Rank rank)
    : level_(level), sink_(std::make_unique<Sink>("covey rank " + std::to_string(ToInt(rank)))) {
  sink_->logger.set_level(SpdlogLevel(level));
  sink_->logger.set_pattern("%n %l: %v");
}

Log::~Log() = default;

void Log::Write(LogLevel level, std::string_view text) {
  if (Enabled(level))
    sink_->logger.log(SpdlogLevel(level), spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace covey
