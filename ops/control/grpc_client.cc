#include "ops/control/grpc_client.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <thread>

#include "core/base/clock.h"
#include "core/base/thread_name.h"
#include "ops/control/grpc_address.h"
#include "ops/control/grpc_session.h"
#include "ops/control/rendezvous.h"

namespace covey {
namespace {

using Kind = ControlEvent::Kind;

class GrpcClient final : public Control {
 public:
  GrpcClient(const ControlOptions& options, int event_fd)
      : address_(options.address), event_fd_(event_fd), session_(options) {
    reader_ = std::thread([this] { Run(); });
  }
  ~GrpcClient() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    session_.Cancel();
    reader_.join();
    if (beat_.joinable()) beat_.join();
    close(event_fd_);
  }

  std::string address() const override { return address_; }
  int event_fd() const override { return event_fd_; }

  bool Next(ControlEvent* event) override {
    const std::lock_guard lock(mutex_);
    eventfd_t count = 0;
    if (events_.size() <= 1) eventfd_read(event_fd_, &count);
    if (events_.empty()) return false;
    *event = std::move(events_.front());
    events_.pop_front();
    return true;
  }

  Status Report(const ControlReport& report) override {
    Status status = session_.Report(report);
    if (status.code() != StatusCode::kTimeout) return status;
    return Status::Aborted("the rendezvous is gone: " + status.message());
  }

 private:
  void Run() {
    NameThread("covey-join");
    Time lease = 0;
    const Status in = EnterAndJoin(&lease);
    if (!in.ok()) {
      Put({.kind = Kind::kRefused, .text = in.message()});
      return;
    }
    beat_ = std::thread([this, lease] { Beat(lease); });
    const Status ended = session_.Watch([this](ControlEvent event) { Put(std::move(event)); });
    Put(ServerLost(ended.message()));
  }

  // Tries until a server answers, or this closes.
  Status EnterAndJoin(Time* lease) {
    constexpr Time kLook = 100 * kMillisecond, kPause = 20 * kMillisecond;
    bool told = false;
    for (;;) {
      Status status = session_.Enter();
      if (status.ok()) status = session_.Join(lease);
      if (status.code() != StatusCode::kTimeout) return status;
      if (!told) Put({.kind = Kind::kWaiting, .text = status.message()});
      told = true;
      session_.AwaitConnection(kLook);
      if (Sleep(kPause)) return status;
    }
  }

  void Beat(Time lease) {
    NameThread("covey-beat");
    Time heard = MonotonicNow();
    while (!Sleep(std::max(lease / 4, kMillisecond))) {
      const Status status = session_.Report({}, std::min(lease, GrpcSession::kCallTimeout));
      if (status.ok()) {
        heard = MonotonicNow();
      } else if (status.code() != StatusCode::kTimeout) {
        Put({.kind = Kind::kLost, .text = status.message()});
        return;
      } else if (MonotonicNow() - heard > lease) {
        Put(ServerLost(status.message()));
        return;
      }
    }
  }

  // Waits; true: closing.
  bool Sleep(Time time) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::chrono::nanoseconds(time), [this] { return closing_; });
    return closing_;
  }

  ControlEvent ServerLost(const std::string& how) {
    const std::lock_guard lock(mutex_);
    ControlEvent lost{.kind = Kind::kLost, .node = server_.node};
    lost.text = server_.node < 0 ? "the rendezvous at " + address_ + " is gone"
                                 : NodeText(server_) + ", which served the rendezvous, has died";
    lost.text += " (" + how + ")";
    if (server_.node >= 0) lost.nodes.push_back(server_);
    return lost;
  }

  void Put(ControlEvent event) {
    const std::lock_guard lock(mutex_);
    if (closing_ || over_) return;
    for (const Node& node : event.nodes)
      if (event.kind == Kind::kView && node.serves) server_ = node;
    over_ = event.kind == Kind::kRefused || event.kind == Kind::kEnded;
    events_.push_back(std::move(event));
    eventfd_write(event_fd_, 1);
  }

  const std::string address_;
  const int event_fd_;
  GrpcSession session_;
  std::mutex mutex_;  // guards all below but the threads
  std::condition_variable wake_;
  bool closing_ = false;
  bool over_ = false;  // nothing comes any more
  Node server_;        // of the view
  std::deque<ControlEvent> events_;
  std::thread reader_;
  std::thread beat_;  // made by the reader
};

}  // namespace

Status OpenGrpcClient(const ControlOptions& options, std::unique_ptr<Control>* control) {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return Status::Exhausted("cannot make an eventfd: " + ErrnoText(errno));
  *control = std::make_unique<GrpcClient>(options, fd);
  return Status::Ok();
}

}  // namespace covey
