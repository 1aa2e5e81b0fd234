#include "tests/sim/simulator/fiber.h"

#include <cstdint>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace covey {
namespace {

constexpr size_t kStackBytes = 256 * 1024;

// longjmp() as it is without _FORTIFY_SOURCE, which allows no jump to another stack.
extern "C" [[noreturn]] void JumpTo(jmp_buf, int) __asm__("_longjmp");

}  // namespace

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(std::make_unique_for_overwrite<std::byte[]>(kStackBytes)) {
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);  // makecontext passes ints only
  makecontext(&inside_, reinterpret_cast<void (*)()>(Enter), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
#ifdef __SANITIZE_THREAD__
  inside_thread_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef __SANITIZE_THREAD__
  __tsan_destroy_fiber(inside_thread_);
#endif
}

void Fiber::Enter(unsigned high, unsigned low) {
  reinterpret_cast<Fiber*>(uintptr_t{high} << 32 | low)->Main();
}

// Inside, right before the change to the outer stack.
void Fiber::LeaveStack([[maybe_unused]] bool for_ever, [[maybe_unused]] void** fake_stack) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(for_ever ? nullptr : fake_stack, outside_bottom_, outside_bytes_);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(outside_thread_, 0);
#endif
}

void Fiber::Main() {
  EnterStack(nullptr);
  body_();
  done_ = true;
  LeaveStack(true, nullptr);
  SwitchOut();
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

void Fiber::SwitchIn() { swapcontext(&outside_, &inside_); }
void Fiber::SwitchOut() { swapcontext(&inside_, &outside_); }

#else

// swapcontext keeps the signal mask by two system calls: half of the time of a short simulation.
// Sanitizers know that one alone.
void Fiber::SwitchIn() {
  if (setjmp(outside_at_) != 0) return;
  if (!std::exchange(has_begun_, true)) setcontext(&inside_);
  JumpTo(inside_at_, 1);
}

void Fiber::SwitchOut() {
  if (setjmp(inside_at_) == 0) JumpTo(outside_at_, 1);
}

#endif

void Fiber::Resume() {
#ifdef __SANITIZE_ADDRESS__
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack_.get(), kStackBytes);
#endif
#ifdef __SANITIZE_THREAD__
  outside_thread_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(inside_thread_, 0);
#endif
  SwitchIn();
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Fiber::Yield() {
  LeaveStack(false, &inside_fake_);
  SwitchOut();
  EnterStack(inside_fake_);
}

// Inside, right after the change to this stack.
void Fiber::EnterStack([[maybe_unused]] void* fake_stack) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack, &outside_bottom_, &outside_bytes_);
#endif
}

}  // namespace covey
