// The trace of one rank: events and their times, for chrome://tracing and ui.perfetto.dev.
//
// Emitting copies an event into a ring of fixed size and returns: it never allocates, locks, waits
// or makes a system call (but one wake-up when the ring is half full). A thread of its own, every
// 100 ms or when half full, formats the events and hands them to the file
// (core/engine/trace_file.h). When events come faster than that, the excess is dropped and the
// trace says how many. A rank that traces nothing has no Timeline: callers hold a null pointer.
//
// Threads: Span and Instant from any thread, at the same time. Open, OnFailure, Flush, Close and
// the destructor from one at a time; REQUIRES: no thread emits any more when Close is called.
#ifndef COVEY_CORE_ENGINE_TIMELINE_H_
#define COVEY_CORE_ENGINE_TIMELINE_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/status.h"
#include "core/base/types.h"
#include "core/engine/trace_file.h"

namespace covey {

class Timeline {
 public:
  // One number to show with an event. `key` is a literal.
  struct Arg {
    const char* key;
    int64_t value;
  };

  // Starts a trace in the file `path`, which is made or emptied; its folder must exist. Errors:
  // kInvalidArgument when the file cannot be written, kExhausted when there is no thread or memory.
  static Status Open(const std::string& path, Rank rank, size_t max_bytes,
                     std::unique_ptr<Timeline>* timeline);
  ~Timeline();  // Close
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // `track` is a literal: "python", "submit", "negotiate", "wait for peers", "exchange"; any other
  // is drawn as "other". `name` is copied, its first TraceEvent::kMaxNameBytes. Times from
  // core/base/clock.h. Of `args` the first TraceEvent::kMaxArgs are kept.
  void Span(const char* track, std::string_view name, Time begin, Time end,
            std::initializer_list<Arg> args = {});
  void Instant(const char* track, std::string_view name, Time at,
               std::initializer_list<Arg> args = {});

  // `callback` runs once, when writing fails for the first time, on the thread of the timeline (or
  // in this call, when it failed before). From then on nothing is recorded.
  void OnFailure(std::function<void(const Status&)> callback);

  // Writes what was emitted before this call. Blocks for the file: for tests and Close.
  void Flush();

  // Writes what is left and ends the thread and the file. Nothing the second time.
  void Close();

 private:
  // A cell is free for position p when sequence == p, holds the event of p when sequence == p + 1.
  // (A bounded queue after Dmitry Vyukov: producers never wait for each other or the consumer.)
  struct Cell {
    std::atomic<uint64_t> sequence;
    TraceEvent event;
  };
  static constexpr size_t kCells = 8192;

  struct Moment {
    Time begin;
    Time end;
    bool instant;
  };

  explicit Timeline(std::unique_ptr<TraceFile> file);
  Status StartThread();
  void Emit(const char* track, std::string_view name, Moment moment,
            std::initializer_list<Arg> args);
  Cell* Claim(uint64_t* position);
  void WriteLoop();
  bool WriteBatch(uint64_t end_position);
  void AddDropped();

  std::unique_ptr<Cell[]> cells_;
  alignas(64) std::atomic<uint64_t> head_{0};  // next position to fill
  alignas(64) std::atomic<uint64_t> tail_{
      0};  // next position to write; moved with flush_mutex_ held
  std::atomic<uint64_t> dropped_{0};
  std::atomic<bool> off_{false};  // full, failed or closed: events are not taken any more

  std::mutex flush_mutex_;
  std::unique_ptr<TraceFile> file_;  // protected by flush_mutex_, like the members below
  std::vector<TraceEvent> batch_;
  uint64_t dropped_told_ = 0;  // the part of dropped_ that the trace says
  Status failure_;
  std::function<void(const Status&)> on_failure_;

  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool closing_ = false;  // protected by wake_mutex_
  std::thread thread_;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TIMELINE_H_
