// A second stack for one rank, so that it can be left in the middle of a pass and resumed later.
//
// Everything stays on one thread; a fiber runs only inside Resume. AddressSanitizer and
// ThreadSanitizer are told of every change of stacks.
#ifndef COVEY_TESTS_SIM_SIMULATOR_FIBER_H_
#define COVEY_TESTS_SIM_SIMULATOR_FIBER_H_

#include <ucontext.h>

#include <csetjmp>
#include <cstddef>
#include <functional>
#include <memory>

namespace covey {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  // REQUIRES: done() or never resumed; what lies on a stack that is dropped would be leaked.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it yields or ends. REQUIRES: not done, called outside of this fiber.
  void Resume();
  // Back to the resumer. REQUIRES: called by the body.
  void Yield();
  bool done() const { return done_; }

 private:
  static void Enter(unsigned high, unsigned low);
  void Main();
  void SwitchIn();
  void SwitchOut();
  void EnterStack(void* fake_stack);
  // Inlined: ThreadSanitizer takes the calls of a fiber to return on that fiber.
  [[gnu::always_inline]] inline void LeaveStack(bool for_ever, void** fake_stack);

  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  ucontext_t inside_;  // where the first change to this stack leads
  ucontext_t outside_;
  jmp_buf inside_at_, outside_at_;  // the others
  bool has_begun_ = false, done_ = false;
  // The facts that sanitizers need of either stack.
  const void* outside_bottom_ = nullptr;
  size_t outside_bytes_ = 0;
  void* inside_fake_ = nullptr;
  void* inside_thread_ = nullptr;
  void* outside_thread_ = nullptr;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_FIBER_H_
