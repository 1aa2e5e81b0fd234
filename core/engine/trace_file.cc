#include "core/engine/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/json.h"

namespace covey {
namespace {

constexpr std::string_view kClosing = "\n]\n";
constexpr std::string_view kFullName = "timeline full";
constexpr size_t kFullBytes = 512;  // more than the lines of the event that says so

// Wall-clock time minus monotonic time: lets files of hosts with different clocks be merged.
Time WallClockOffset() { return WallClockNow() - MonotonicNow(); }

// Microseconds with three decimals, the unit of the format.
void AppendMicroseconds(Time time, std::string* text) {
  char digits[32];
  const Time shown = std::max<Time>(time, 0);
  std::snprintf(digits, sizeof(digits), "%lld.%03d", static_cast<long long>(shown / kMicrosecond),
                static_cast<int>(shown % kMicrosecond));
  *text += digits;
}

// All of `text` at `offset`. Returns 0 or an errno.
int WriteAt(int fd, std::string_view text, size_t offset_bytes) {
  while (!text.empty()) {
    const ssize_t written = pwrite(fd, text.data(), text.size(), static_cast<off_t>(offset_bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return EIO;
    text.remove_prefix(static_cast<size_t>(written));
    offset_bytes += static_cast<size_t>(written);
  }
  return 0;
}

}  // namespace

const std::array<const char*, TraceFile::kNumTracks> TraceFile::kTrackNames = {
    "python", "submit", "negotiate", "wait for peers", "exchange", "other"};

TraceFile::TraceFile(std::string path, int fd, Rank rank, size_t max_bytes)
    : path_(std::move(path)), fd_(fd), rank_(rank), max_bytes_(max_bytes) {}

TraceFile::~TraceFile() { close(fd_); }

Status TraceFile::Open(const std::string& path, Rank rank, size_t max_bytes,
                       std::unique_ptr<TraceFile>* file) {
  CHECK(max_bytes >= kLeastMaxBytes);
  // O_NONBLOCK: a pipe without a reader must not stop the job.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) {
    return Status::InvalidArgument("the timeline " + path +
                                   " cannot be opened: " + ErrnoText(errno));
  }
  std::unique_ptr<TraceFile> opened(new TraceFile(path, fd, rank, max_bytes));
  opened->AddHeader();
  const Status written = opened->Write();
  if (!written.ok()) return Status::InvalidArgument(written.message());
  *file = std::move(opened);
  return Status::Ok();
}

void TraceFile::AddHeader() {
  const std::string rank = std::to_string(ToInt(rank_));
  const std::string zero = std::to_string(WallClockOffset() / kMicrosecond);
  text_ = "[\n";
  AddMetadata("process_name", 0, "\"name\":\"rank " + rank + "\"");
  text_ += ",\n";
  AddMetadata("process_sort_index", 0, "\"sort_index\":" + rank);
  text_ += ",\n";
  AddMetadata("clock", 0, "\"unix_us_of_zero\":" + zero);
}

void TraceFile::AddMetadata(std::string_view kind, int lane_id, std::string_view args) {
  text_ += "{\"name\":\"" + std::string(kind) +
           "\",\"ph\":\"M\",\"pid\":" + std::to_string(ToInt(rank_)) +
           ",\"tid\":" + std::to_string(lane_id) + ",\"args\":{" + std::string(args) + "}}";
}

// The id of the first lane that is free when the event begins; a new one is announced in text_.
// When all lanes are busy the last one takes it: badly drawn, still there.
int TraceFile::LaneOf(const TraceEvent& event) {
  size_t index = 0;
  while (index + 1 < kNumTracks && std::strcmp(kTrackNames[index], event.track) != 0) ++index;
  Track& track = tracks_[index];
  // Spans of Python nest: a lane may hold one inside the other.
  const bool nests = index == 0;
  size_t lane = 0;
  while (!nests && lane + 1 < Track::kMaxLanes && lane < track.num_lanes &&
         track.busy_until[lane] > event.begin) {
    ++lane;
  }
  const int id = static_cast<int>(index * Track::kMaxLanes + lane) + 1;
  if (lane == track.num_lanes) {
    ++track.num_lanes;
    const std::string suffix = lane == 0 ? "" : " " + std::to_string(lane + 1);
    AddMetadata("thread_name", id, "\"name\":\"" + std::string(kTrackNames[index]) + suffix + "\"");
    text_ += ",\n";
    AddMetadata("thread_sort_index", id, "\"sort_index\":" + std::to_string(id));
    text_ += ",\n";
  }
  track.busy_until[lane] = std::max(track.busy_until[lane], event.end);
  return id;
}

void TraceFile::AddArgs(const TraceEvent& event) {
  if (event.num_args == 0) return;
  text_ += ",\"args\":{";
  for (size_t i = 0; i < event.num_args; ++i) {
    if (i > 0) text_ += ',';
    AppendJsonString(event.arg_keys[i], &text_);
    text_ += ':' + std::to_string(event.arg_values[i]);
  }
  text_ += '}';
}

void TraceFile::AddEvent(const TraceEvent& event) {
  text_ += ",\n";
  const int lane_id = LaneOf(event);
  text_ += "{\"name\":";
  AppendJsonString({event.name, event.name_length_bytes}, &text_);
  text_ += event.instant ? ",\"ph\":\"i\",\"s\":\"p\"" : ",\"ph\":\"X\"";
  text_ += ",\"pid\":" + std::to_string(ToInt(rank_)) + ",\"tid\":" + std::to_string(lane_id);
  text_ += ",\"ts\":";
  AppendMicroseconds(event.begin, &text_);
  if (!event.instant) {
    text_ += ",\"dur\":";
    AppendMicroseconds(event.end - event.begin, &text_);
  }
  AddArgs(event);
  text_ += '}';
}

Status TraceFile::Append(std::span<const TraceEvent> events) {
  if (full_ || events.empty()) return Status::Ok();
  text_.clear();
  for (const TraceEvent& event : events) {
    const size_t before = text_.size();
    AddEvent(event);
    if (end_bytes_ + text_.size() + kFullBytes + kClosing.size() <= max_bytes_) continue;
    text_.resize(before);
    full_ = true;
    TraceEvent last = event;
    last.track = kTrackNames.back();
    last.instant = true;
    last.num_args = 0;
    last.name_length_bytes = kFullName.copy(last.name, kFullName.size());
    AddEvent(last);
    break;
  }
  return Write();
}

// Puts text_ in the place of the closing bracket and a new one behind it.
Status TraceFile::Write() {
  text_ += kClosing;
  const int error = WriteAt(fd_, text_, end_bytes_);
  if (error == 0) {
    end_bytes_ += text_.size() - kClosing.size();
    return Status::Ok();
  }
  // Part of it may be there. The earlier content needs no new space.
  if (end_bytes_ > 0 && WriteAt(fd_, kClosing, end_bytes_) == 0) {
    [[maybe_unused]] const int truncated =
        ftruncate(fd_, static_cast<off_t>(end_bytes_ + kClosing.size()));
  }
  return Status::Exhausted("the timeline " + path_ + " cannot be written: " + ErrnoText(error));
}

}  // namespace covey
