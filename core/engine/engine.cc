#include "core/engine/engine.h"

#include <algorithm>
#include <chrono>

#include "core/base/processor.h"
#include "core/base/thread_name.h"
#include "core/base/waiter.h"

namespace covey {
namespace {

using Sleeper = Transport::Sleeper;

// How long the engine thread looks on before it parks, in passes. It shares its core with the
// framework's own threads, so hardly at all.
constexpr int kEngineLooks = 8;
// How often a waiter looks at the word of a peer that it waits for, between two passes.
constexpr int kWordLooks = 16;
// After so many wake-ups in a row that found a waiter driving, submitters stop ringing the engine
// thread and it looks by itself every kLazyLook, until it finds work or nothing happens for
// kLazyLooks looks.
constexpr int kUselessWakes = 8;
constexpr Time kLazyLook = kMillisecond;
constexpr int kLazyLooks = 50;
// After a submission the engine thread looks for more by itself this much later: those that follow
// one another closely are taken together, and wake it once instead of once each.
constexpr Time kGather = 100 * kMicrosecond;
// While more keep coming, and nothing else is to be done, it leaves them so many times: each that
// it takes costs the submitter's core the memory it lies in.
constexpr int kMostGathers = 8;
// A part of Options::recheck: how often a thread that waits for the progress lock looks by itself.
constexpr Time kLockLooks = 20;

}  // namespace

Engine::Engine(Options options, Runtime* runtime, Transport* transport, TensorQueue* queue)
    : options_(options), runtime_(runtime), transport_(transport), queue_(queue) {}

Engine::~Engine() { Stop(); }

void Engine::Start() {
  if (options_.threaded) thread_ = std::thread([this] { ThreadMain(); });
}

void Engine::Stop() {
  if (stop_.exchange(true)) return;
  transport_->Ring(Sleeper::kEngine);
  transport_->Ring(Sleeper::kWaiter);
  NotifySleepers();
  if (thread_.joinable()) thread_.join();
}

bool Engine::TryAcquire() {
  // The exchange alone would take the cache line from the thread that drives.
  // engine-E1: one exchange decides: at most one thread is inside RunOnce.
  return !progress_lock_.load() && !progress_lock_.exchange(true);
}

void Engine::Release() { Release(runtime_->Idle()); }

void Engine::Release(bool idle) {
  transport_->SetParked(idle ? Sleeper::kMailOnly : Sleeper::kEngine);
  // shm-O4: Dekker with AwaitProgressLock, which counts itself and then looks at the lock.
  progress_lock_.store(false);
  // engine-E2: waiters of this rank sleep on the condition variable, not on the transport.
  if (sleepers_.load() > 0) return NotifySleepers();
  // engine-E2: a thread that rang just now found the engine thread without the progress lock: this
  // thread looks for left work, and rings.
  if (IsWorkLeft(idle)) transport_->Ring(Sleeper::kEngine);
}

void Engine::NotifySleepers() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

// One pass, by the thread that drives; it wakes the waiters whose operations have ended.
Time Engine::Look(bool* moved) {
  const Time until = runtime_->RunOnce(moved);
  due_.store(until, std::memory_order_relaxed);
  // engine-E2b: sleeping waiters learn only from here that their operation has ended.
  if (*moved && sleepers_.load() > 0) NotifySleepers();
  return until;
}

void Engine::Kick() {
  // shm-O4: Dekker with SetParked: what was submitted is seen, or the sleeper.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const Sleeper parked = transport_->Parked();
  if (parked == Sleeper::kNobody) return;
  // engine-E2a: the waiter that drives is parked, and only it would see the submission.
  if (parked == Sleeper::kWaiter) return transport_->Ring(Sleeper::kWaiter);
  // engine-E2a: the engine thread is parked: it takes the submission, unless a waiter is to.
  if (!lazy_.load(std::memory_order_relaxed) && !gathers_.load(std::memory_order_relaxed))
    transport_->Ring(Sleeper::kEngine);
}

Status Engine::SubmitRepeat(Operation* operation, uint64_t* handle) {
  if (queue_->in_flight() > 0 || wanted_.load() > 0 || !TryAcquire())
    return queue_->Submit(operation, handle);
  if (!runtime_->MayRepeat()) {
    Release();
    return queue_->Submit(operation, handle);
  }
  bool is_taken = false;
  const Status submitted = queue_->SubmitTaken(operation, handle, &is_taken);
  const int yields = options_.oversubscribed ? options_.yields : 0;
  if (is_taken)
    waited_ns_.fetch_add(runtime_->Repeat(operation, yields), std::memory_order_relaxed);
  // engine-E6: this thread drives next, so what has begun is not left work.
  Release(true);
  return submitted;
}

void Engine::ThreadMain() {
  NameThread("covey-engine");
  int useless = 0;
  int lazy_looks = 0;
  Burst burst;
  for (;;) {
    // engine-E2c: the ticket first: a ring that comes after it ends the sleep.
    const uint32_t ticket = transport_->Ticket(Sleeper::kEngine);
    if (stop_.load()) return;  // after the ticket, or its ring is lost
    looks_at_.store(kNever);
    if (GoesOn(&burst)) {
      ParkThread(ticket, MonotonicNow() + kGather);
      continue;
    }
    Turn turn{.until = kNever, .worked = false, .took = false, .idle = false, .again = false};
    if (claims_.load() == 0 && TryAcquire()) turn = DriveUntilIdle();
    if (queue_->HasCallbacks()) queue_->RunCallbacks();
    useless = turn.worked ? 0 : useless + 1;
    if (turn.worked) lazy_.store(false);
    if (turn.again) continue;
    if (useless == kUselessWakes) {
      lazy_.store(true);
      lazy_looks = 0;
    }
    Time longest = options_.recheck;
    if (turn.took != gathers_.load(std::memory_order_relaxed)) {
      gathers_.store(turn.took);
      if (queue_->HasQueued()) continue;  // by a thread that saw no need to ring
    }
    if (turn.took) longest = kGather;
    burst = {.looks = turn.took && turn.idle ? kMostGathers : 0, .queued = 0};
    if (lazy_.load(std::memory_order_relaxed)) {
      longest = kLazyLook;
      if (++lazy_looks > kLazyLooks) {
        lazy_.store(false);
        useless = 0;
      }
      if (queue_->HasQueued()) continue;
    }
    ParkThread(ticket, std::min({turn.until, MonotonicNow() + longest, NetworkLook(useless)}));
  }
}

// When a sleeper looks at the network, after so many looks in vain; kNever: the network wakes it.
Time Engine::NetworkLook(int useless) const {
  if (!transport_->PollsNetwork()) return kNever;
  return MonotonicNow() + (options_.network_look << std::min(useless, 4));
}

// Dekker with IsWorkLeft: either the waiter that released the progress lock sees how long the
// engine thread sleeps, or the engine thread, awake by looks_at_, found the progress lock free.
void Engine::ParkThread(uint32_t ticket, Time until) {
  looks_at_.store(until);
  transport_->Park(Sleeper::kEngine, ticket, until);
}

// Whether what was submitted since the last look is better left alone for now.
bool Engine::GoesOn(Burst* burst) {
  if (burst->looks == 0 || transport_->HasMail() || queue_->HasCallbacks()) return false;
  const size_t queued = queue_->queued();
  const bool more = queued > burst->queued;
  *burst = {.looks = burst->looks - 1, .queued = queued};
  return more;
}

// With the progress lock; gives it back.
Engine::Turn Engine::DriveUntilIdle() {
  transport_->SetParked(Sleeper::kNobody);
  Turn turn{.until = kNever, .worked = false, .took = false, .idle = false, .again = false};
  for (int looks = 0; looks < kEngineLooks && !stop_.load(std::memory_order_relaxed); ++looks) {
    if (wanted_.load(std::memory_order_relaxed) > 0 || queue_->HasCallbacks()) break;
    if (claims_.load(std::memory_order_relaxed) > 0) break;
    bool moved = false;
    turn.took |= queue_->HasQueued();
    Look(&moved);
    if (!moved) continue;
    looks = 0;
    turn.worked = true;
  }
  transport_->SetParked(runtime_->Idle() ? Sleeper::kMailOnly : Sleeper::kEngine);
  turn.until = Look(&turn.again);
  turn.worked |= turn.again;
  turn.idle = runtime_->Idle();
  transport_->SetParked(turn.idle ? Sleeper::kMailOnly : Sleeper::kEngine);
  progress_lock_.store(false);
  if (sleepers_.load() > 0) NotifySleepers();
  // engine-E2: a waiter that takes over sees to what is left.
  if (claims_.load() > 0) {
    turn.again = false;
    return turn;
  }
  turn.again |= queue_->HasQueued() || transport_->HasMail() || queue_->HasCallbacks();
  return turn;
}

bool Engine::Wait(const Operation& operation, Time deadline) {
  if (operation.ended.load(std::memory_order_acquire)) return true;
  Time began = kNever;
  const bool has_ended = DriveUntil(operation.ended, deadline, &began);
  if (began != kNever) waited_ns_.fetch_add(MonotonicNow() - began, std::memory_order_relaxed);
  return has_ended;
}

bool Engine::DriveUntil(const std::atomic<bool>& ended, Time deadline) {
  Time began = kNever;
  return DriveUntil(ended, deadline, &began);
}

bool Engine::DriveUntil(const std::atomic<bool>& ended, Time deadline, Time* began) {
  bool has_claimed = false;
  while (!ended.load(std::memory_order_acquire) && !stop_.load(std::memory_order_relaxed)) {
    has_claimed = !TryAcquire();
    if (has_claimed) {
      *began = std::min(*began, MonotonicNow());
      AwaitProgressLock(ended, deadline);
    } else {
      *began = std::min(*began, DriveFor(ended, deadline));
      Release();
      // engine-E3: after the lock is released: a callback may take the interpreter's lock.
      if (queue_->HasCallbacks()) queue_->RunCallbacks();
    }
    if (ended.load(std::memory_order_acquire)) break;
    if (deadline != kNever && MonotonicNow() >= deadline) break;
  }
  // engine-E2: others have left the rest to this waiter, which did not drive: it hands the rest on.
  if (has_claimed) HandOn();
  return ended.load(std::memory_order_acquire);
}

// After AwaitProgressLock, by a waiter that leaves without having driven. The engine thread and
// those that released the progress lock may have given way to it. If the progress lock is held, its
// holder finds no claim when it releases it; if it is free, this is the last thread that can ring.
void Engine::HandOn() {
  if (!progress_lock_.load() && IsWorkLeft(transport_->Parked() == Sleeper::kMailOnly))
    transport_->Ring(Sleeper::kEngine);
}

bool Engine::IsWorkLeft(bool idle) const {
  // engine-E2: work due before the engine thread looks by itself is left work, too.
  return !idle || queue_->HasQueued() || transport_->HasMail() || due_.load() < looks_at_.load();
}

// With the progress lock: until it has ended, the deadline, or another thread needs the progress
// lock. Returns when its first pass began: reading the clock takes a thirtieth of a small sum.
Time Engine::DriveFor(const std::atomic<bool>& ended, Time deadline) {
  transport_->SetParked(Sleeper::kNobody);
  Waiter waiter({.spin = options_.oversubscribed ? 0 : options_.spin,
                 .yields = options_.yields,
                 .yield = transport_->SharesWithAll() ? 0 : options_.network_yield});
  Time began = kNever;
  while (!stop_.load(std::memory_order_relaxed)) {
    bool moved = false;
    Look(&moved);
    const Time now = runtime_->pass_began();
    began = std::min(began, now);
    if (ended.load(std::memory_order_relaxed) || queue_->HasCallbacks() || wanted_.load() > 0)
      break;
    if (now >= deadline) break;
    if (waiter.LooksAgain(moved, now)) {
      if (!options_.oversubscribed) LookForWord();
      continue;
    }
    const uint32_t ticket = transport_->Ticket(Sleeper::kWaiter);
    transport_->SetParked(Sleeper::kWaiter);
    // engine-E2b: the last pass before parking tells other waiters what it has ended.
    const Time until = Look(&moved);
    // engine-E2c: Stop may have come after the check above; its ring may precede the ticket.
    if (!moved && wanted_.load() == 0 && !stop_.load())
      transport_->Park(Sleeper::kWaiter, ticket, std::min({until, deadline, NetworkLook(0)}));
    transport_->SetParked(Sleeper::kNobody);
  }
  return began;
}

// Looking at a word costs a tenth of another pass.
void Engine::LookForWord() const {
  for (int looks = 0; looks < kWordLooks && runtime_->AwaitsWord(); ++looks) {
    if (queue_->HasQueued() || transport_->HasMail() || wanted_.load() > 0) return;
    Pause();
  }
}

// Another thread drives: until it has ended or the progress lock is free.
void Engine::AwaitProgressLock(const std::atomic<bool>& ended, Time deadline) {
  claims_.fetch_add(1);
  Kick();  // operations of this thread may be unannounced: see covey_request.waits
  Waiter waiter({.yields = options_.yields});
  while (!ended.load(std::memory_order_acquire) && progress_lock_.load(std::memory_order_relaxed))
    if (!waiter.LooksAgain(false, 0)) break;
  std::unique_lock lock(mutex_);
  // shm-O4: Dekker with Release.
  sleepers_.fetch_add(1);
  const Time longest = std::min(deadline - MonotonicNow(), options_.recheck / kLockLooks);
  changed_.wait_for(lock, std::chrono::nanoseconds(std::max<Time>(longest, 0)),
                    [&] { return ended.load() || !progress_lock_.load() || stop_.load(); });
  sleepers_.fetch_sub(1);
  claims_.fetch_sub(1);
}

void Engine::WithProgressLock(const std::function<void()>& fn) {
  wanted_.fetch_add(1);
  while (!TryAcquire()) {
    // engine-E2a: the thread that sleeps with the progress lock is woken to give it up.
    transport_->Ring(Sleeper::kWaiter);
    transport_->Ring(Sleeper::kEngine);
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    changed_.wait_for(lock, std::chrono::nanoseconds(options_.recheck / kLockLooks),
                      [&] { return !progress_lock_.load(); });
    sleepers_.fetch_sub(1);
  }
  wanted_.fetch_sub(1);
  fn();
  Release();
}

}  // namespace covey
