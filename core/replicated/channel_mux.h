// The messages that a runtime carries besides its own: those of the replicas of its process
// (core/replicated), each bundle's in a channel of its own, in frames that its mailbox takes.
//
// Frames stand in the same mailboxes as messages and pass none of them by; a peer that takes none
// holds up no other. The number of a channel is agreed when it is opened. Frames of one that is not
// open here yet are kept, at most as many as its window allows, of at most 256 channels of a peer.
// Holder of the progress lock.
#ifndef COVEY_CORE_REPLICATED_CHANNEL_MUX_H_
#define COVEY_CORE_REPLICATED_CHANNEL_MUX_H_

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/base/tensor.h"
#include "core/replicated/fragmenter.h"
#include "core/replicated/outbox.h"
#include "core/transport/mailbox.h"

namespace covey {

// The reader and writer of the messages of a channel; members by their index in its group.
class ChannelPort {
 public:
  virtual ~ChannelPort() = default;

  // Of a message that may begin now.
  virtual size_t LongestMessageBytes() = 0;
  virtual void OnMessage(int32_t from, Slice message, Time now) = 0;
  // After its last message.
  virtual void OnLoss(int32_t member) = 0;
  struct Pass {
    Time until = kNever;                        // when to come again at the latest
    bool moved = false;                         // an awaited result is there
    bool is_busy = false;                       // more messages are to come soon
    std::vector<EncodedMessage> messages = {};  // to be sent, in this order
  };
  // `is_sent`: everything it had queued before has gone.
  virtual Pass Advance(Time now, bool is_sent) = 0;
};

class ChannelMux {
 public:
  // The mailbox outlives this.
  explicit ChannelMux(Mailbox* mailbox) : mailbox_(mailbox) {}

  // `group` and `port` stay until Close.
  void Open(uint64_t channel, const Group* group, ChannelPort* port);
  // The others hear of it as of a loss, after the last message.
  void Close(uint64_t channel);

  // ---- Of the runtime.
  // False: it is malformed; it is dropped, with the message that it is of.
  bool OnFrame(Rank from, Bytes frame, Time now);
  // The transport has said so; messages of it may still lie in the mailbox.
  void OnLoss(Rank rank) { untold_.push_back(rank); }
  // One pass of all ports. Returns when to come again at the latest.
  Time Advance(Time now, bool* moved);
  bool Idle() const { return idle_; }
  // Peers are still to hear of a Close.
  bool HasClosing() const;

 private:
  struct Channel {
    const Group* group = nullptr;
    ChannelPort* port = nullptr;  // null: closed here
    Fragmenter fragmenter;
    Time until = 0;
  };

  static int32_t IndexOf(const Group& group, Rank rank);
  bool Keep(uint64_t number, Rank from, Bytes frame);
  bool Take(Channel* channel, int32_t from, Bytes frame, Time now);
  void Lose(Channel* channel, Rank rank);
  void TellLosses();
  bool Send(Channel* channel, bool* moved);

  Mailbox* mailbox_;
  std::map<uint64_t, Channel> channels_;
  std::map<uint64_t, std::vector<std::pair<Rank, Bytes>>> early_;  // by channel
  std::set<uint64_t> closed_;
  std::vector<Rank> untold_, lost_;
  bool idle_ = true;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_CHANNEL_MUX_H_
