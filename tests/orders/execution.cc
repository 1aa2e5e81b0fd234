#include "tests/orders/execution.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "tests/orders/std_atomics.h"

namespace covey {
namespace {

Execution* under_way = nullptr;
constexpr uintptr_t kShared = uintptr_t{1} << 63;  // in keys: an offset

}  // namespace

// ---- Fibers -------------------------------------------------------------------------------------

OrdersFibers::OrdersFibers(int threads) {
  for (int t = 0; t < threads; ++t) {
    workers_.push_back(std::make_unique<Worker>());
    Worker* worker = workers_.back().get();
    worker->fiber = std::make_unique<Fiber>([this, worker] {
      while (!ends_) {
        if (worker->body) worker->body();
        worker->body = nullptr;
        worker->fiber->Yield();
      }
    });
  }
}

OrdersFibers::~OrdersFibers() {
  ends_ = true;
  for (const auto& worker : workers_) worker->fiber->Resume();
}

void OrdersFibers::Start(int thread, std::function<void()> body) {
  workers_[static_cast<size_t>(thread)]->body = std::move(body);
}

void OrdersFibers::Resume(int thread) { workers_[static_cast<size_t>(thread)]->fiber->Resume(); }

void OrdersFibers::Leave(int thread) { workers_[static_cast<size_t>(thread)]->fiber->Yield(); }

bool OrdersFibers::IsBusy(int thread) const {
  return workers_[static_cast<size_t>(thread)]->body != nullptr;
}

// ---- An execution -------------------------------------------------------------------------------

Execution::Execution(OrdersCase* orders_case, Choices* choices, OrdersFibers* fibers)
    : case_(orders_case),
      choices_(choices),
      fibers_(fibers),
      threads_(orders_case->threads()),
      memory_(threads_ + 1,
              [this](size_t count) { return choices_->Choose(Question::kMessage, count); }),
      states_(static_cast<size_t>(threads_)),
      current_(threads_),
      kernel_(memory_.Add(0)) {
  under_way = this;
}

Execution::~Execution() { under_way = nullptr; }

Execution* Execution::Current() { return under_way; }

void Execution::Share(std::vector<std::byte*> mappings, size_t length_bytes) {
  bytes_ = std::make_unique<SharedBytes>(&memory_, std::move(mappings), length_bytes);
}

std::string Execution::Run() {
  case_->Begin(this);
  if (bytes_) bytes_->Publish(threads_);
  for (int t = 0; t < threads_; ++t) {
    memory_.Join(t, threads_);
    fibers_->Start(t, [this, t] { Main(t); });
  }
  RunThreads();
  current_ = threads_;
  for (int t = 0; t < threads_; ++t) memory_.Join(threads_, t);
  if (bytes_ && failure_.empty()) bytes_->Arrive(threads_, choices_);
  if (failure_.empty()) case_->End();
  return failure_;
}

void Execution::Main(int thread) {
  try {
    if (is_over_) throw Ended();
    if (bytes_) bytes_->Arrive(thread, choices_);
    case_->Run(thread);
    if (bytes_ && !bytes_->Publish(thread)) Fail("two threads write other bytes to one place");
  } catch (const Ended&) {
  }
  states_[static_cast<size_t>(thread)].state = State::kDone;
}

void Execution::RunThreads() {
  current_ = -1;
  while (!is_over_) {
    if (current_ < 0 || states_[static_cast<size_t>(current_)].state == State::kDone) {
      const std::vector<int> others = Runnable(false);
      if (others.empty()) break;
      current_ =
          others[others.size() == 1 ? 0 : choices_->Choose(Question::kThread, others.size())];
    }
    fibers_->Resume(current_);
  }
  for (int t = 0; t < threads_ && !is_over_; ++t)
    if (fibers_->IsBusy(t)) Fail("thread " + std::to_string(t) + " sleeps for ever");
  is_over_ = true;
  for (int t = 0; t < threads_; ++t)
    for (current_ = t; fibers_->IsBusy(t);) fibers_->Resume(t);
}

void Execution::Fail(const std::string& failure) {
  if (failure_.empty()) failure_ = failure;
  is_over_ = true;
  if (current_ >= 0 && !IsMain() && fibers_->IsBusy(current_) && std::uncaught_exceptions() == 0)
    throw Ended();
}

// The threads that can go on, the current one first if it may stay.
std::vector<int> Execution::Runnable(bool may_stay) {
  std::vector<int> threads;
  if (may_stay) threads.push_back(current_);
  for (const State wanted : {State::kRuns, State::kYielded}) {
    for (int t = 0; t < threads_; ++t)
      if (t != current_ && states_[static_cast<size_t>(t)].state == wanted) threads.push_back(t);
    if (!threads.empty()) return threads;
  }
  return threads;
}

void Execution::Switch(bool may_stay) {
  const std::vector<int> threads = Runnable(may_stay);
  const int self = current_;
  if (threads.empty() && states_[static_cast<size_t>(self)].state != State::kAsleep) return;
  const int next =
      threads.empty()
          ? -1
          : threads[threads.size() == 1 ? 0 : choices_->Choose(Question::kThread, threads.size())];
  if (next == self) return;
  current_ = next;
  if (next < 0) {  // all that are left sleep
    for (int t = 0; t < threads_; ++t)
      if (states_[static_cast<size_t>(t)].state == State::kAsleep)
        failure_ = "thread " + std::to_string(t) + " sleeps for ever";
    is_over_ = true;
  }
  fibers_->Leave(self);
  if (is_over_) throw Ended();
  states_[static_cast<size_t>(self)].state = State::kRuns;
}

void Execution::Before() {
  if (IsMain() || std::uncaught_exceptions() > 0) return;
  if (++operations_ > kMostOperations) Fail("the threads do not end");
  for (Thread& thread : states_)
    if (thread.state == State::kYielded) thread.state = State::kRuns;
  if (bytes_ && !bytes_->Publish(current_)) Fail("two threads write other bytes to one place");
  Switch(true);
}

void Execution::After() {
  if (!bytes_) return;
  if (IsMain()) return bytes_->Arrive(current_, choices_);
  if (std::uncaught_exceptions() > 0) return;
  Switch(true);
  bytes_->Arrive(current_, choices_);
}

uint32_t Execution::LocationOf(const void* word, size_t size) {
  size_t offset = 0;
  const bool is_shared = bytes_ && bytes_->Find(word, &offset);
  const uintptr_t key = is_shared ? kShared | offset : reinterpret_cast<uintptr_t>(word);
  const auto found = locations_.find(key);
  if (found != locations_.end()) return found->second;
  uint64_t value = 0;
  std::memcpy(&value, word, size);
  return locations_.emplace(key, memory_.Add(value)).first->second;
}

void Execution::Note(const char* what, uint32_t location, uint64_t value, Order order) {
  constexpr const char* kOrders[] = {"relaxed", "consume", "acquire",
                                     "release", "acq_rel", "seq_cst"};
  char line[96];
  std::snprintf(line, sizeof(line), "%d %s word %d %#llx %s\n", current_, what,
                static_cast<int>(location), static_cast<unsigned long long>(value),
                kOrders[static_cast<int>(order)]);
  trace_ += line;
}

uint64_t Execution::Load(const void* word, size_t size, Order order) {
  Before();
  const uint32_t location = LocationOf(word, size);
  const uint64_t value = memory_.Load(current_, location, order);
  Note("load", location, value, order);
  After();
  return value;
}

void Execution::Store(void* word, size_t size, uint64_t value, Order order) {
  Before();
  const uint32_t location = LocationOf(word, size);
  memory_.Store(current_, location, value, order);
  Note("store", location, value, order);
  After();
}

uint64_t Execution::Exchange(void* word, size_t size, Order order,
                             const std::function<uint64_t(uint64_t)>& change) {
  Before();
  const uint32_t location = LocationOf(word, size);
  const uint64_t value = memory_.Exchange(current_, location, order, change);
  Note("exchange", location, change(value), order);
  After();
  return value;
}

bool Execution::CompareExchange(void* word, size_t size, uint64_t* expected, uint64_t desired,
                                Order success, Order failure) {
  Before();
  const uint32_t location = LocationOf(word, size);
  const bool done =
      memory_.CompareExchange(current_, location, expected, desired, success, failure);
  Note(done ? "exchange" : "load", location, done ? desired : *expected, done ? success : failure);
  After();
  return done;
}

void Execution::Fence(Order order) {
  Before();
  memory_.Fence(current_, order);
  Note("fence", 0, 0, order);
  After();
}

// The kernel's call looks for the other side after a fence, and if there is one takes a lock.
void Execution::EnterKernel() {
  memory_.Fence(current_, std::memory_order_seq_cst);
  memory_.Exchange(current_, kernel_, std::memory_order_acq_rel, [](uint64_t now) { return now; });
}

void Execution::FutexWait(const void* word, uint32_t expected, bool for_ever) {
  Before();
  const uint32_t location = LocationOf(word, sizeof(expected));
  EnterKernel();
  const bool is_rung = memory_.Load(current_, location, std::memory_order_relaxed) != expected;
  Note(is_rung ? "wait in vain" : "wait", location, expected, std::memory_order_seq_cst);
  if (!is_rung && !IsMain() && std::uncaught_exceptions() == 0) {
    Thread& self = states_[static_cast<size_t>(current_)];
    self = {.state = for_ever ? State::kAsleep : State::kYielded, .asleep_at = location};
    Switch(false);
    self.state = State::kRuns;
  }
  After();
}

void Execution::FutexWake(const void* word) {
  Before();
  const uint32_t location = LocationOf(word, sizeof(uint32_t));
  EnterKernel();
  Note("wake", location, 0, std::memory_order_seq_cst);
  for (Thread& thread : states_)
    if (thread.state == State::kAsleep && thread.asleep_at == location) thread.state = State::kRuns;
  After();
}

void Execution::Yield() {
  if (IsMain() || std::uncaught_exceptions() > 0) return;
  if (bytes_ && !bytes_->Publish(current_)) Fail("two threads write other bytes to one place");
  if (++operations_ > kMostOperations) Fail("the threads do not end");
  states_[static_cast<size_t>(current_)].state = State::kYielded;
  Switch(false);
  states_[static_cast<size_t>(current_)].state = State::kRuns;
  if (bytes_) bytes_->Arrive(current_, choices_);
}

// ---- The names of std_atomics.h -----------------------------------------------------------------

namespace checked {

uint64_t Load(const void* word, size_t size, std::memory_order order) {
  if (under_way != nullptr) return under_way->Load(word, size, order);
  uint64_t value = 0;
  std::memcpy(&value, word, size);
  return value;
}

void Store(void* word, size_t size, uint64_t value, std::memory_order order) {
  if (under_way != nullptr) return under_way->Store(word, size, value, order);
  std::memcpy(word, &value, size);
}

uint64_t Exchange(void* word, size_t size, std::memory_order order,
                  const std::function<uint64_t(uint64_t)>& change) {
  if (under_way != nullptr) return under_way->Exchange(word, size, order, change);
  const uint64_t value = Load(word, size, order);
  Store(word, size, change(value), order);
  return value;
}

bool CompareExchange(void* word, size_t size, uint64_t* expected, uint64_t desired,
                     std::memory_order success, std::memory_order failure) {
  if (under_way != nullptr)
    return under_way->CompareExchange(word, size, expected, desired, success, failure);
  const uint64_t value = Load(word, size, success);
  const bool is_same = value == *expected;
  *expected = value;
  if (is_same) Store(word, size, desired, success);
  return is_same;
}

void Fence(std::memory_order order) {
  if (under_way != nullptr) under_way->Fence(order);
}

void FutexWait(const void* word, uint32_t expected, bool for_ever) {
  if (under_way != nullptr) under_way->FutexWait(word, expected, for_ever);
}

void FutexWake(const void* word) {
  if (under_way != nullptr) under_way->FutexWake(word);
}

void Yield() {
  if (under_way != nullptr) under_way->Yield();
}

}  // namespace checked

// ---- Many ---------------------------------------------------------------------------------------

Explored Explore(const std::function<std::unique_ptr<OrdersCase>()>& make,
                 const OrdersBounds& bounds) {
  Explored explored;
  OrdersFibers fibers(make()->threads());
  const auto run = [&](Choices* choices) {
    const std::unique_ptr<OrdersCase> one = make();
    ++explored.executions;
    Execution execution(one.get(), choices, &fibers);
    const std::string failure = execution.Run();
    if (!failure.empty()) explored.failure = failure + " (" + choices->ToString() + ")";
    if (!failure.empty()) explored.trace = execution.trace();
    return failure.empty();
  };
  Search search(bounds.deviations);
  for (bool more = bounds.most_searched > 0; more; more = search.Next()) {
    explored.is_complete = explored.executions < bounds.most_searched;
    if (!explored.is_complete) break;
    if (!run(&search)) return explored;
  }
  for (uint64_t seed = 1; seed <= bounds.drawn; ++seed) {
    Draw draw(seed);
    if (!run(&draw)) return explored;
  }
  return explored;
}

}  // namespace covey
