#include "core/replicated/channel_mux.h"

#include <algorithm>
#include <iterator>

namespace covey {
namespace {

// How long a frame waits that found no room: an emptied mailbox rings no rank.
constexpr Time kUnsentRetry = kMillisecond;
// Frames from one peer before a channel is open: its window of parts, a leave and its closing.
constexpr uint64_t kMostEarly = Fragmenter::kWindow + 2;
// Channels that one peer has opened and this rank has not yet: bundles planned at about one time.
constexpr ptrdiff_t kMostEarlyChannels = 256;

}  // namespace

// -1: not a member.
int32_t ChannelMux::IndexOf(const Group& group, Rank rank) {
  const auto found = std::lower_bound(group.members.begin(), group.members.end(), rank);
  if (found == group.members.end() || *found != rank) return -1;
  return static_cast<int32_t>(found - group.members.begin());
}

void ChannelMux::Open(uint64_t channel, const Group* group, ChannelPort* port) {
  Channel& opened =
      channels_
          .try_emplace(channel, Channel{.group = group,
                                        .port = port,
                                        .fragmenter = Fragmenter(channel, group->size(),
                                                                 mailbox_->MaxMessageBytes())})
          .first->second;
  idle_ = false;
  if (const auto early = early_.find(channel); early != early_.end()) {
    for (auto& [from, frame] : early->second)
      if (const int32_t index = IndexOf(*group, from); index >= 0)
        Take(&opened, index, std::move(frame), 0);
    early_.erase(early);
  }
  for (Rank rank : lost_) Lose(&opened, rank);
}

void ChannelMux::Close(uint64_t channel) {
  const auto found = channels_.find(channel);
  if (found == channels_.end()) return;
  found->second.port = nullptr;
  found->second.fragmenter.EnqueueClosing();
  found->second.fragmenter.OnLoss(ToInt(found->second.group->my_index));
  closed_.insert(channel);
}

bool ChannelMux::HasClosing() const {
  return std::any_of(channels_.begin(), channels_.end(),
                     [](const auto& channel) { return channel.second.port == nullptr; });
}

bool ChannelMux::OnFrame(Rank from, Bytes frame, Time now) {
  const uint64_t number = Fragmenter::ChannelOf(frame);
  const auto found = channels_.find(number);
  if (found == channels_.end())
    return closed_.contains(number) || Keep(number, from, std::move(frame));
  const int32_t index = IndexOf(*found->second.group, from);
  return index >= 0 && Take(&found->second, index, std::move(frame), now);
}

bool ChannelMux::Keep(uint64_t number, Rank from, Bytes frame) {
  const auto is_from = [from](const auto& one) { return one.first == from; };
  const auto has_some = [&](const auto& channel) {
    return std::any_of(channel.second.begin(), channel.second.end(), is_from);
  };
  auto waiting = early_.find(number);
  if (waiting == early_.end() || !has_some(*waiting)) {
    if (std::count_if(early_.begin(), early_.end(), has_some) >= kMostEarlyChannels) return false;
    waiting = early_.try_emplace(number).first;
  }
  const auto of_it = std::count_if(waiting->second.begin(), waiting->second.end(), is_from);
  if (static_cast<uint64_t>(of_it) >= kMostEarly) return false;
  waiting->second.emplace_back(from, std::move(frame));
  return true;
}

bool ChannelMux::Take(Channel* channel, int32_t from, Bytes frame, Time now) {
  Slice message;
  const bool is_open = channel->port != nullptr;  // else messages are dropped
  const size_t longest_bytes = is_open ? channel->port->LongestMessageBytes() : 0;
  const Fragmenter::Received came =
      channel->fragmenter.OnFrame(from, std::move(frame), longest_bytes, &message);
  if (came == Fragmenter::Received::kClosing)
    Lose(channel, channel->group->members[static_cast<size_t>(from)]);
  if (came == Fragmenter::Received::kMessage && is_open)
    channel->port->OnMessage(from, std::move(message), now);
  return came != Fragmenter::Received::kMalformed || !is_open;
}

void ChannelMux::Lose(Channel* channel, Rank rank) {
  const int32_t index = IndexOf(*channel->group, rank);
  if (index < 0) return;
  channel->fragmenter.OnLoss(index);
  if (channel->port != nullptr) channel->port->OnLoss(index);
}

// All messages of a dead rank lie in the mailbox when its death is told.
void ChannelMux::TellLosses() {
  if (untold_.empty() || mailbox_->HasMail()) return;
  for (Rank rank : untold_) {
    lost_.push_back(rank);
    for (auto& [number, channel] : channels_) Lose(&channel, rank);
  }
  untold_.clear();
}

Time ChannelMux::Advance(Time now, bool* moved) {
  if (channels_.empty() && untold_.empty()) return kNever;
  TellLosses();
  Time until = kNever;
  idle_ = true;
  for (auto at = channels_.begin(); at != channels_.end();) {
    Channel& channel = at->second;
    const bool is_open = channel.port != nullptr;
    if (is_open) {
      ChannelPort::Pass pass = channel.port->Advance(now, channel.fragmenter.IsEmpty());
      until = std::min(until, pass.until);
      *moved |= pass.moved || !pass.messages.empty();
      idle_ &= !pass.is_busy;
      for (EncodedMessage& message : pass.messages) {
        if (message.is_leave)
          channel.fragmenter.EnqueueLeave(message.to, std::move(message.bytes));
        else
          channel.fragmenter.Enqueue(message.to, std::move(message.bytes), std::move(message.body));
      }
    }
    if (!Send(&channel, moved)) until = std::min(until, now + kUnsentRetry);
    const bool is_empty = channel.fragmenter.IsEmpty();
    idle_ &= is_empty && !channel.fragmenter.IsInMessage();
    at = is_open || !is_empty ? std::next(at) : channels_.erase(at);
  }
  return until;
}

// False: something found no room.
bool ChannelMux::Send(Channel* channel, bool* moved) {
  bool all = true;
  for (int32_t to = 0; to < channel->group->size(); ++to) {
    for (;;) {
      const Parts frame = channel->fragmenter.Next(to);
      if (frame.empty()) break;
      if (!mailbox_->TrySendParts(channel->group->members[static_cast<size_t>(to)], frame)) {
        all = false;
        break;
      }
      channel->fragmenter.OnSent(to);
      *moved = true;
    }
  }
  return all;
}

}  // namespace covey
