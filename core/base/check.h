// Programmer errors: a condition that is false means that Covey itself is wrong; the process ends.
//
// Not for errors that a user, a peer or the operating system can cause: these are a Status
// (status.h).
// Any thread; async-signal-safe (formats on the stack, one write(2), abort()).
#ifndef COVEY_CORE_BASE_CHECK_H_
#define COVEY_CORE_BASE_CHECK_H_

namespace covey {

// Prints "FILE:LINE: CHECK failed: CONDITION: TEXT" to stderr and aborts. For the macros only.
[[noreturn, gnu::cold]] void CheckFailed(const char* file, int line, const char* condition,
                                         const char* text = "");

}  // namespace covey

// CHECK(cond) or CHECK(cond, "what must hold and why"): always on; for slow paths and borders.
// DCHECK: the same in builds without NDEBUG; otherwise the condition is compiled, never evaluated.
// NOLINTBEGIN(cppcoreguidelines-macro-usage): they need the text of the condition and the line.
#define CHECK(cond, ...)         \
  (__builtin_expect(!!(cond), 1) \
       ? static_cast<void>(0)    \
       : ::covey::CheckFailed(__FILE__, __LINE__, #cond __VA_OPT__(, ) __VA_ARGS__))
#ifdef NDEBUG
#define DCHECK(cond, ...) static_cast<void>(sizeof(!!(cond)))
#else
#define DCHECK(cond, ...) CHECK(cond __VA_OPT__(, ) __VA_ARGS__)
#endif
// NOLINTEND(cppcoreguidelines-macro-usage)

#endif  // COVEY_CORE_BASE_CHECK_H_
