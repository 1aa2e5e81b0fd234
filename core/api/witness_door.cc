#include "core/api/witness_door.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace covey {
namespace {

constexpr size_t kLongestPacket = 512;

}  // namespace

Status WitnessDoor::Open(int descriptor, std::function<void()> stir,
                         std::unique_ptr<WitnessDoor>* door) {
  int type = 0;
  socklen_t length = sizeof(type);
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET)
    return Status::InvalidArgument("COVEY_WITNESS_FD=" + std::to_string(descriptor) +
                                   " is no socket of packets: the launcher sets it");
  std::unique_ptr<WitnessDoor> opened(new WitnessDoor(descriptor));
  RETURN_IF_ERROR(DescriptorBell::Open(descriptor, std::move(stir), &opened->bell_));
  *door = std::move(opened);
  return Status::Ok();
}

void WitnessDoor::Serve(ChannelDriver* driver) {
  driver->ask_witness = [this](uint64_t channel, const WitnessRequest& request) {
    Ask(channel, request);
  };
  driver->hear_witness = [this](uint64_t channel, WitnessAnswer* answer) {
    return Hear(channel, answer);
  };
}

void WitnessDoor::Ask(uint64_t channel, const WitnessRequest& request) {
  Writer writer;
  writer.Put(channel);
  writer.Put(request.number);
  writer.Put(request.state);
  Bytes packet = writer.Take();
  packet.insert(packet.end(), request.record.begin(), request.record.end());
  while (send(descriptor_, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
         errno == EINTR) {
  }
  bell_->Arm();
}

void WitnessDoor::Receive() {
  std::byte packet[kLongestPacket];
  for (;;) {
    const ssize_t got = recv(descriptor_, packet, sizeof(packet), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    Reader reader(std::span<const std::byte>(packet, static_cast<size_t>(got)));
    const auto channel = reader.Get<uint64_t>();
    WitnessAnswer answer;
    answer.number = reader.Get<uint64_t>();
    answer.state = reader.Get<uint64_t>();
    answer.is_taken = reader.Get<uint8_t>() != 0;
    if (!reader.ok()) continue;
    constexpr size_t kHead = 3 * sizeof(uint64_t) + 1;
    answer.record.assign(packet + kHead, packet + got);
    answers_[channel].push_back(std::move(answer));
  }
}

bool WitnessDoor::Hear(uint64_t channel, WitnessAnswer* answer) {
  Receive();
  const auto found = answers_.find(channel);
  if (found == answers_.end()) return false;
  *answer = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) answers_.erase(found);
  return true;
}

}  // namespace covey
