#include "ops/transports/tcp/worker.h"
#include "core/base/thread_name.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

namespace covey::tcp {

Bell::Bell() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Bell::~Bell() {
  if (fd_ >= 0) close(fd_);
}

void Bell::Ring() {
  if (!rung_.exchange(true)) eventfd_write(fd_, 1);
}

// Words that were stored before a Ring without effect are seen after this.
void Bell::Hear() {
  eventfd_t count = 0;
  eventfd_read(fd_, &count);
  rung_.exchange(false);
}

Worker::Worker(Bell* news) : news_(news) {
  if (!is_sound()) return;
  poller_.Add(gifts_.fd(), kGift);
  thread_ = std::thread([this] { Run(); });
}

Worker::~Worker() {
  stops_ = true;
  gifts_.Ring();
  if (thread_.joinable()) thread_.join();
}

void Worker::Add(Lane* lane) {
  const std::lock_guard lock(busy_);
  lanes_[next_key_] = lane;
  poller_.Add(lane->fd(), next_key_++);
}

void Worker::Remove(Lane* lane) {
  const std::lock_guard lock(busy_);
  poller_.Remove(lane->fd());
  std::erase_if(lanes_, [lane](const auto& of) { return of.second == lane; });
}

void Worker::Run() {
  NameThread("covey-tcp");
  while (!stops_)
    for (uint64_t key : poller_.Ready(true)) {
      if (key == kGift)
        ServeGifts();
      else
        Serve(key);
    }
}

void Worker::ServeGifts() {
  gifts_.Hear();
  const std::lock_guard lock(busy_);
  for (const auto& [key, lane] : lanes_)
    if (!lane->watches_room()) Send(key, lane);
}

void Worker::Serve(uint64_t key) {
  const std::lock_guard lock(busy_);
  const auto found = lanes_.find(key);
  if (found == lanes_.end()) return;  // removed since
  Lane* lane = found->second;
  if (lane->watches_room()) Send(key, lane);
  if (!lane->Receive()) return;
  if (lane->end() != Lane::End::kNone) poller_.Remove(lane->fd());
  news_->Ring();
}

void Worker::Send(uint64_t key, Lane* lane) {
  if (lane->Send()) news_->Ring();
  if (lane->HasUnsent() == lane->watches_room()) return;
  lane->watches_room() = lane->HasUnsent();
  poller_.Watch(lane->fd(), key, lane->watches_room());
}

Worker* Crew::Of(size_t place) {
  while (workers_.size() <= place) workers_.push_back(std::make_unique<Worker>(&bell_));
  return workers_[place]->is_sound() ? workers_[place].get() : nullptr;
}

}  // namespace covey::tcp
