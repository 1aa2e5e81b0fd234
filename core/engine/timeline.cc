#include "core/engine/timeline.h"
#include "core/base/thread_name.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

namespace covey {
namespace {

constexpr std::chrono::milliseconds kFlushInterval{100};
constexpr size_t kBatchEvents = 512;  // written at once: about 64 KiB

}  // namespace

Timeline::Timeline(std::unique_ptr<TraceFile> file)
    : cells_(new Cell[kCells]), file_(std::move(file)) {
  for (size_t i = 0; i < kCells; ++i) cells_[i].sequence.store(i, std::memory_order_relaxed);
  batch_.reserve(kBatchEvents + 1);
}

Status Timeline::Open(const std::string& path, Rank rank, size_t max_bytes,
                      std::unique_ptr<Timeline>* timeline) {
  if (max_bytes < TraceFile::kLeastMaxBytes) {
    return Status::InvalidArgument("a timeline of " + std::to_string(max_bytes) +
                                   " bytes has no room for any event");
  }
  std::unique_ptr<TraceFile> file;
  RETURN_IF_ERROR(TraceFile::Open(path, rank, max_bytes, &file));
  std::unique_ptr<Timeline> opened(new Timeline(std::move(file)));
  RETURN_IF_ERROR(opened->StartThread());
  *timeline = std::move(opened);
  return Status::Ok();
}

// With all signals blocked: the handlers of the training program are not for this thread.
Status Timeline::StartThread() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    thread_ = std::thread([this] { WriteLoop(); });
    pthread_setname_np(thread_.native_handle(), "covey-timeline");
  } catch (const std::system_error& error) {
    status = Status::Exhausted(std::string("the thread of the timeline cannot be started: ") +
                               error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

Timeline::~Timeline() { Close(); }

void Timeline::Span(const char* track, std::string_view name, Time begin, Time end,
                    std::initializer_list<Arg> args) {
  Emit(track, name, {.begin = begin, .end = end, .instant = false}, args);
}

void Timeline::Instant(const char* track, std::string_view name, Time at,
                       std::initializer_list<Arg> args) {
  Emit(track, name, {.begin = at, .end = at, .instant = true}, args);
}

// A cell of this thread alone, to be published by setting its sequence to *position + 1. Null: none
// is free.
Timeline::Cell* Timeline::Claim(uint64_t* position) {
  *position = head_.load(std::memory_order_relaxed);
  while (true) {
    Cell* cell = &cells_[*position % kCells];
    const uint64_t sequence = cell->sequence.load(std::memory_order_acquire);
    if (sequence < *position) return nullptr;  // still holds the event of one round before
    if (sequence > *position) {
      *position = head_.load(std::memory_order_relaxed);
    } else if (head_.compare_exchange_weak(*position, *position + 1, std::memory_order_relaxed)) {
      return cell;
    }
  }
}

void Timeline::Emit(const char* track, std::string_view name, Moment moment,
                    std::initializer_list<Arg> args) {
  if (off_.load(std::memory_order_relaxed)) return;
  uint64_t position = 0;
  Cell* cell = Claim(&position);
  if (cell == nullptr) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  TraceEvent& event = cell->event;
  event.track = track;
  event.begin = moment.begin;
  event.end = moment.end;
  event.instant = moment.instant;
  event.num_args = 0;
  for (const Arg& arg : args) {
    if (event.num_args == TraceEvent::kMaxArgs) break;
    event.arg_keys[event.num_args] = arg.key;
    event.arg_values[event.num_args++] = arg.value;
  }
  event.name_length_bytes = static_cast<uint8_t>(name.copy(event.name, TraceEvent::kMaxNameBytes));
  cell->sequence.store(position + 1, std::memory_order_release);
  // A wake-up that gets lost costs nothing: the thread looks every 100 ms anyway.
  if (position - tail_.load(std::memory_order_relaxed) == kCells / 2) wake_.notify_one();
}

void Timeline::OnFailure(std::function<void(const Status&)> callback) {
  Status failure;
  {
    const std::lock_guard lock(flush_mutex_);
    if (failure_.ok()) {
      on_failure_ = std::move(callback);
      return;
    }
    failure = failure_;
  }
  callback(failure);
}

void Timeline::WriteLoop() {
  NameThread("covey-trace");
  std::unique_lock lock(wake_mutex_);
  while (!closing_) {
    wake_.wait_for(lock, kFlushInterval);
    lock.unlock();
    Flush();
    lock.lock();
  }
}

void Timeline::Flush() {
  std::function<void(const Status&)> callback;
  Status failure;
  {
    const std::lock_guard lock(flush_mutex_);
    const uint64_t end = head_.load(std::memory_order_relaxed);
    while (file_ != nullptr && WriteBatch(end)) {
    }
    if (!failure_.ok()) {
      failure = failure_;
      callback = std::exchange(on_failure_, nullptr);
    }
  }
  if (callback) callback(failure);
}

// Takes events before `end_position` out of the ring and writes them. True when there may be more.
bool Timeline::WriteBatch(uint64_t end_position) {
  batch_.clear();
  uint64_t position = tail_.load(std::memory_order_relaxed);
  for (; position < end_position && batch_.size() < kBatchEvents; ++position) {
    Cell& cell = cells_[position % kCells];
    if (cell.sequence.load(std::memory_order_acquire) != position + 1) break;  // being filled
    batch_.push_back(cell.event);
    cell.sequence.store(position + kCells, std::memory_order_release);
  }
  tail_.store(position, std::memory_order_relaxed);
  if (batch_.empty()) return false;
  AddDropped();
  if (failure_.ok()) failure_ = file_->Append(batch_);
  if (!failure_.ok() || file_->full()) off_.store(true, std::memory_order_relaxed);
  return batch_.size() >= kBatchEvents;
}

void Timeline::AddDropped() {
  const uint64_t dropped = dropped_.load(std::memory_order_relaxed);
  if (dropped == dropped_told_) return;
  constexpr std::string_view kName = "events dropped";
  TraceEvent event{};
  event.track = "other";
  event.begin = event.end = batch_.back().end;
  event.instant = true;
  event.arg_keys[0] = "count";
  event.arg_values[0] = static_cast<int64_t>(dropped - dropped_told_);
  event.num_args = 1;
  event.name_length_bytes = static_cast<uint8_t>(kName.copy(event.name, sizeof(event.name)));
  batch_.push_back(event);
  dropped_told_ = dropped;
}

void Timeline::Close() {
  off_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(wake_mutex_);
      closing_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Flush();
  const std::lock_guard lock(flush_mutex_);
  file_.reset();
}

}  // namespace covey
