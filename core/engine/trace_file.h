// The file of a trace: the Chrome/Perfetto JSON array format, one file per rank.
//
// Not thread-safe and not quick: core/engine/timeline.h keeps it away from the threads that make
// events.
//
// Invariants:
//  1. Between two calls the file is valid JSON. Every Append is one pwrite that begins on the
//     closing bracket of the file and ends with a new one, so this holds too when the process is
//     killed.
//     (The kernel may cut a pwrite of a process being killed at the border of a page: a kill inside
//     those microseconds can cost the bracket, which viewers do not need.)
//  2. The file never grows beyond max_bytes. When the next event does not fit, an instant "timeline
//     full" ends the trace.
//  3. An Append that fails leaves the file as it was before, as far as the system lets it.
#ifndef COVEY_CORE_ENGINE_TRACE_FILE_H_
#define COVEY_CORE_ENGINE_TRACE_FILE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/base/types.h"

namespace covey {

// Fixed in size: made where time is short, written where it is not. Longer names lose their end.
struct TraceEvent {
  static constexpr size_t kMaxNameBytes = 176;
  static constexpr size_t kMaxArgs = 2;

  const char* track;  // a literal
  Time begin;
  Time end;                        // as begin for an instant
  const char* arg_keys[kMaxArgs];  // literals
  int64_t arg_values[kMaxArgs];
  uint8_t num_args;
  bool instant;
  uint8_t name_length_bytes;
  char name[kMaxNameBytes];
};

class TraceFile {
 public:
  static constexpr size_t kLeastMaxBytes = 4096;  // room for the parts of every file

  // Makes or empties `path`. Errors: kInvalidArgument when it cannot be opened or written, with the
  // system's reason. REQUIRES: max_bytes >= kLeastMaxBytes.
  static Status Open(const std::string& path, Rank rank, size_t max_bytes,
                     std::unique_ptr<TraceFile>* file);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Writes `events`; times are those of core/base/clock.h. Does nothing once full. Error:
  // kExhausted, with the system's reason.
  Status Append(std::span<const TraceEvent> events);

  bool full() const { return full_; }

 private:
  // Spans of one track that overlap are drawn on lanes of their own.
  struct Track {
    static constexpr size_t kMaxLanes = 16;
    std::array<Time, kMaxLanes> busy_until{};
    size_t num_lanes = 0;
  };
  static constexpr size_t kNumTracks = 6;
  static const std::array<const char*, kNumTracks> kTrackNames;

  TraceFile(std::string path, int fd, Rank rank, size_t max_bytes);
  void AddHeader();
  void AddEvent(const TraceEvent& event);
  void AddArgs(const TraceEvent& event);
  void AddMetadata(std::string_view kind, int lane_id, std::string_view args);
  int LaneOf(const TraceEvent& event);
  Status Write();

  const std::string path_;
  const int fd_;
  const Rank rank_;
  const size_t max_bytes_;
  size_t end_bytes_ = 0;  // where the closing bracket (with its line break) stands in the file
  std::string text_;      // of the Append under way
  std::array<Track, kNumTracks> tracks_;
  bool full_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRACE_FILE_H_
