#include "core/transport/host_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/wire.h"

namespace covey {
namespace {

constexpr int kLookMs = 1;  // between two looks at the network

// A descriptor that is closed with it.
class Descriptor {
 public:
  Descriptor() = default;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int fd = -1;
};

// The mail of the ranks of a host while they find each other.
class Meeting {
 public:
  Meeting(FarPeers* far, Time deadline) : far_(far), deadline_(deadline) {}

  Status Tell(Rank to, const Bytes& message) {
    const std::span<const std::byte> all = message;
    while (!far_->TrySend(to, Parts(&all, 1))) RETURN_IF_ERROR(Look("does not take mail", to));
    return Status::Ok();
  }
  Status Flush(Rank to) {
    while (far_->HasUnsent()) RETURN_IF_ERROR(Look("does not take mail", to));
    return Status::Ok();
  }
  Status Hear(Rank from, Bytes* message) {
    for (;;) {
      const auto kept = std::find_if(kept_.begin(), kept_.end(),
                                     [from](const auto& mail) { return mail.first == from; });
      if (kept != kept_.end()) {
        *message = std::move(kept->second);
        kept_.erase(kept);
        return Status::Ok();
      }
      Rank sender = kNoRank;
      if (far_->TryReceive(&sender, message)) {
        kept_.emplace_back(sender, std::move(*message));
        continue;
      }
      RETURN_IF_ERROR(Look("has not called init()", from));
    }
  }

 private:
  Status Look(const char* what, Rank whom) {
    far_->Pump();
    if (const std::vector<PeerLoss> lost = far_->PollLost(); !lost.empty())
      return Status::Aborted("rank " + std::to_string(ToInt(lost[0].rank)) + " " + lost[0].how,
                             lost[0].rank);
    if (MonotonicNow() > deadline_)
      return Status::Timeout("rank " + std::to_string(ToInt(whom)) + " " + what, whom);
    pollfd network{far_->link().Descriptor(), POLLIN, 0};
    poll(&network, 1, kLookMs);
    return Status::Ok();
  }

  FarPeers* far_;
  const Time deadline_;
  std::vector<std::pair<Rank, Bytes>> kept_;
};

// A memory of this user, opened in another process; -1: it cannot be.
int OpenOf(int64_t pid, int64_t fd) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat found;
  if (opened >= 0 && (fstat(opened, &found) != 0 || found.st_uid != geteuid())) {
    close(opened);
    return -1;
  }
  return opened;
}

Bytes Packed(int64_t first, int64_t second) {
  Writer writer;
  writer.Put(first);
  writer.Put(second);
  return writer.Take();
}

}  // namespace

Status JoinHostMemory(const TransportOptions& options, std::span<const Rank> hosted, FarPeers* far,
                      std::unique_ptr<Transport>* near) {
  const TransportKind* shm = options.shares_host ? FindTransport("shm") : nullptr;
  const Rank own = far->link().rank();
  const Rank maker = hosted.front();
  const auto size = static_cast<int32_t>(hosted.size());
  const int inherited = options.shm_fd;
  Meeting meeting(far, MonotonicNow() + options.start_timeout);
  Descriptor memory;
  Bytes message;
  bool all = true;
  if (own == maker) {
    if (shm != nullptr && inherited < 0)
      all = shm->create_job(size, options.arena_bytes, &memory.fd).ok();
    all &= shm != nullptr;
    for (Rank peer : hosted.subspan(1))
      RETURN_IF_ERROR(meeting.Tell(peer, Packed(all ? getpid() : 0, memory.fd)));
    for (Rank peer : hosted.subspan(1)) {
      RETURN_IF_ERROR(meeting.Hear(peer, &message));
      all &= Reader(message).Get<int64_t>() != 0;
    }
    for (Rank peer : hosted.subspan(1)) RETURN_IF_ERROR(meeting.Tell(peer, Packed(all, 0)));
    RETURN_IF_ERROR(meeting.Flush(hosted.back()));
  } else {
    RETURN_IF_ERROR(meeting.Hear(maker, &message));
    Reader place(message);
    const auto pid = place.Get<int64_t>();
    const auto fd = place.Get<int64_t>();
    if (shm != nullptr && pid > 0 && inherited < 0) memory.fd = OpenOf(pid, fd);
    const bool has = shm != nullptr && (inherited >= 0 || memory.fd >= 0);
    RETURN_IF_ERROR(meeting.Tell(maker, Packed(has, 0)));
    RETURN_IF_ERROR(meeting.Hear(maker, &message));
    all = Reader(message).Get<int64_t>() != 0;
  }
  if (!all) return Status::Ok();
  TransportOptions of_host = options;
  const auto found = std::find(hosted.begin(), hosted.end(), own);
  of_host.rank = Rank{static_cast<int32_t>(found - hosted.begin())};
  of_host.size = size;
  of_host.shm_fd = inherited >= 0 ? inherited : memory.fd;
  return shm->open(of_host, near);
}

}  // namespace covey
