#include "core/transport/link_agreement.h"

#include <poll.h>

#include "core/base/clock.h"

namespace covey {
namespace {

constexpr uint64_t kTitle = 0x314b4e494c564f43;  // no first word of another message
constexpr int kLookMs = 20;                      // between two looks at what has no descriptor

// A rank's obstacle on its way to rank 0, and the verdict on its way back.
Bytes Packed(Rank hindered, std::string_view obstacle) {
  Writer writer;
  writer.Put(kTitle);
  writer.Put(ToInt(hindered));
  writer.PutString(obstacle);
  return writer.Take();
}

bool Unpack(std::span<const std::byte> message, int32_t size, LinkVerdict* word) {
  Reader reader(message);
  const bool titled = reader.Get<uint64_t>() == kTitle;
  const auto hindered = reader.Get<int32_t>();
  word->obstacle = reader.GetString();
  word->hindered = Rank{hindered};
  return titled && reader.AtEnd() && hindered >= ToInt(kNoRank) && hindered < size;
}

class Agreement {
 public:
  Agreement(Link* link, Time deadline, LinkVerdict* verdict)
      : link_(link),
        deadline_(deadline),
        verdict_(verdict),
        heard_(static_cast<size_t>(link->size())) {}

  Status Lead() {
    // transport-A1: the verdict is over the words of all.
    for (int32_t r = 1; r < link_->size(); ++r) RETURN_IF_ERROR(HearOf(Rank{r}));
    for (int32_t r = 1; r < link_->size(); ++r) RETURN_IF_ERROR(Tell(Rank{r}));
    return Flush();
  }
  Status Follow() {
    RETURN_IF_ERROR(Tell(Rank{0}));
    return HearOf(Rank{0});
  }

 private:
  Status Tell(Rank to) {
    const Bytes word = Packed(verdict_->hindered, verdict_->obstacle);
    while (!link_->Send(to, word)) RETURN_IF_ERROR(Look("does not take messages", to));
    return Status::Ok();
  }
  Status HearOf(Rank peer) {
    while (!heard_[static_cast<size_t>(ToInt(peer))])
      RETURN_IF_ERROR(Look("has not called init()", peer));
    return Status::Ok();
  }
  // transport-A3: others begin with what rank 0 has told them. A rank that has left since is
  // noticed later.
  Status Flush() {
    while (!link_->Flushed()) {
      bool any = false;
      RETURN_IF_ERROR(Listen(&any));
      if (MonotonicNow() > deadline_)
        return Status::Timeout("a rank does not take messages", Rank{0});
      Sleep();
    }
    return Status::Ok();
  }

  Status Look(const char* awaited, Rank whom) {
    bool any = false;
    RETURN_IF_ERROR(Listen(&any));
    // transport-A3: it may be what was awaited, of one that has left since.
    if (any) return Status::Ok();
    if (const std::vector<PeerLoss> lost = link_->PollLost(); !lost.empty())
      return Status::Aborted("rank " + std::to_string(ToInt(lost[0].rank)) + " " + lost[0].how,
                             lost[0].rank);
    // transport-A4: a rank that never comes is named.
    if (MonotonicNow() > deadline_)
      return Status::Timeout("rank " + std::to_string(ToInt(whom)) + " " + awaited, whom);
    Sleep();
    return Status::Ok();
  }

  Status Listen(bool* any) {
    Rank from = kNoRank;
    std::span<const std::byte> message;
    while (link_->Receive(&from, &message)) {
      RETURN_IF_ERROR(Hear(from, message));
      *any = true;
    }
    return Status::Ok();
  }
  void Sleep() {
    pollfd network{link_->Descriptor(), POLLIN, 0};
    poll(&network, 1, kLookMs);
  }

  // Rank 0 hears one word of each rank, each rank one of rank 0.
  Status Hear(Rank from, std::span<const std::byte> message) {
    const bool leads = link_->rank() == Rank{0};
    const auto sender = static_cast<size_t>(ToInt(from));
    // transport-A2: other messages are of ranks that go on already.
    if (heard_[sender] || (!leads && from != Rank{0})) {
      verdict_->early.emplace_back(from, Bytes(message.begin(), message.end()));
      return Status::Ok();
    }
    heard_[sender] = true;
    LinkVerdict word;
    // transport-A4: no choice is made with a rank of another version.
    if (!Unpack(message, link_->size(), &word))
      return Status::Aborted("rank " + std::to_string(ToInt(from)) +
                                 " does not choose a network as the others do: COVEY_TRANSPORT "
                                 "and Covey's version have to be the same on all ranks",
                             from);
    // transport-A1: of several obstacles that of the lowest rank.
    const bool is_lower =
        word.hindered != kNoRank &&
        (verdict_->hindered == kNoRank || ToInt(word.hindered) < ToInt(verdict_->hindered));
    if (leads && !is_lower) return Status::Ok();
    verdict_->hindered = word.hindered;
    verdict_->obstacle = std::move(word.obstacle);
    return Status::Ok();
  }

  Link* link_;
  const Time deadline_;
  LinkVerdict* verdict_;
  std::vector<bool> heard_;  // by rank
};

}  // namespace

Status AgreeOnLink(Link* link, std::string obstacle, Time deadline, LinkVerdict* verdict) {
  *verdict = {.hindered = obstacle.empty() ? kNoRank : link->rank(),
              .obstacle = std::move(obstacle),
              .early = {}};
  Agreement agreement(link, deadline, verdict);
  return link->rank() == Rank{0} ? agreement.Lead() : agreement.Follow();
}

}  // namespace covey
