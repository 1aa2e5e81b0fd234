// One rank's part in averaging models in pairs with ranks of other hosts, by messages.
//
// Two models become their mean by a difference, which one side adds and the other subtracts.
// Differences commute with all else that happens to the two, so no model is held, and no rank
// waits:
//
//   rank i, for partner j    event                         after
//   -                        Offer                         due
//   due                      TakeMessages: kOffer          offered
//   due                      accepts an offer of j         -
//   due                      Finish, Leave                 -
//   offered                  kAccepted: kInput with its    sent
//                            model as it is then
//   sent                     kTaken(d): i subtracts d      -
//   offered, sent            kDeclined                     -
//   due, offered, sent       j is lost                     -
//
//   rank j                   event                         answer
//   trains in that epoch     kOffer                        kAccepted: j offers i nothing meanwhile
//   but has offered to i     kOffer, j < i                 kDeclined: its own counts
//   trains in that epoch     kInput                        d = (X_i - X_j) / 2; j adds d; kTaken(d)
//   has finished, or is in   kOffer, kInput                kDeclined
//   another epoch
//
// An answer comes once: the link keeps the order and loses nothing, or all that is open with the
// lost rank is dropped, whose model is lost with it (core/PROTOCOL.md: gossip-P11 to gossip-P17).
//
// Each rank tells all others where it is: it trains, has finished its epoch, or has left. A rank
// that asks is sent its model (far_looks.h).
// Sans-IO; one thread at a time.
#ifndef COVEY_CORE_GOSSIP_FAR_PAIRS_H_
#define COVEY_CORE_GOSSIP_FAR_PAIRS_H_

#include <algorithm>
#include <vector>

#include "core/gossip/far_access.h"
#include "core/gossip/far_codec.h"
#include "core/gossip/far_looks.h"
#include "core/gossip/far_message.h"
#include "core/gossip/gossip.h"
#include "core/replicated/outbox.h"

namespace covey {

class FarPairs {
 public:
  struct Counters {
    uint64_t offers = 0;    // sent
    uint64_t taken = 0;     // of those: by the partner
    uint64_t declined = 0;  // likewise
    uint64_t lost = 0;      // likewise, with the partner
    uint64_t answered = 0;  // offers of others that this rank has taken
    uint64_t malformed = 0;
  };

  // `gossip` is that of this rank, and `layout` its own. Both outlive this. Members by their index
  // in the group, this one too.
  FarPairs(int32_t self, int32_t size, Gossip* gossip, const RoundLayout* layout,
           const Kernels* kernels, const PairCodec& codec = {});

  // ---- Of the trainer; the others hear of it.
  // It trains: after Gossip::Begin, and after Gossip::GoOn in the next epoch.
  void Begin() { Enter(0, FarState::kTrains); }
  void GoOn() { Enter(epoch_ + 1, FarState::kTrains); }
  // No rank averages with it from now on, of this host or another; and they may again, in the same
  // epoch.
  void Finish();
  void TakeBack();
  // Nothing of the model is touched any more.
  void Leave() { Enter(epoch_, FarState::kLeft); }
  // `partner`, on another host, is to average with this rank. kAbsent: it is gone, or not in this
  // epoch; kBusy: the last offer to it, or its own to this rank, is not answered.
  Gossip::Outcome Offer(int32_t partner);

  // This rank has done so many steps.
  void Tell(uint64_t steps) { steps_ = steps; }
  // The model of another member has come; else it is asked for it.
  bool Look(int32_t member, Time now, FarLooks::Model* model);
  // As it has told.
  FarState StateOf(int32_t member) const { return members_[static_cast<size_t>(member)].state; }
  bool IsLost(int32_t member) const { return members_[static_cast<size_t>(member)].is_lost; }

  uint64_t epoch() const { return epoch_; }
  uint64_t steps() const { return steps_; }
  // Members that live, have not left, and have not finished this epoch, or have an offer of this
  // rank.
  std::vector<int32_t> Unsettled() const;
  bool HaveAllLeft() const;

  // ---- Of the network: whole messages, in order for each pair.
  void OnMessage(int32_t from, std::span<const std::byte> bytes);
  // Later messages of the member are dropped.
  void OnLoss(int32_t member);
  size_t LongestMessageBytes() const {
    return FarMessage::kHeadBytes + std::max(codec_.LongestBytes(), difference_.size());
  }
  std::vector<EncodedMessage> TakeMessages();

  const Counters& counters() const { return counters_; }
  const QuantizedCounters& quantized() const { return codec_.counters(); }

 private:
  using Kind = FarMessage::Kind;
  enum class Turn : uint8_t { kNone, kDue, kOffered, kSent };
  struct Member {
    FarState state = FarState::kUnknown;
    uint64_t epoch = 0;
    uint64_t offers = 0;    // to it, from this rank
    uint64_t accepted = 0;  // the offer of it, whose model is to come; 0: none
    Turn turn = Turn::kNone;
    bool is_lost = false;

    bool IsOpen() const { return turn == Turn::kOffered || turn == Turn::kSent; }
    bool IsGone() const { return is_lost || state == FarState::kLeft; }
  };

  Member& At(int32_t member) { return members_[static_cast<size_t>(member)]; }
  uint64_t DrawOf(int32_t from, int32_t to, uint64_t number) const;
  void Enter(uint64_t epoch, FarState state);
  bool IsSound(int32_t from, const FarMessage& message) const;
  void OnOffer(int32_t from, const FarMessage& offer);
  void OnAccepted(int32_t from);
  void OnInput(int32_t from, const FarMessage& input);
  void OnTaken(int32_t from, const FarMessage& answer);
  void OnAsk(int32_t from);
  void SendOffer(int32_t partner);
  void Send(int32_t to, const FarMessage& message);

  const int32_t self_;
  FarAccess model_;
  FarCodec codec_;
  FarLooks looks_;
  std::vector<Member> members_;
  FarState state_ = FarState::kUnknown;
  uint64_t epoch_ = 0, steps_ = 0;
  std::vector<std::byte> difference_;
  std::vector<EncodedMessage> messages_;
  Counters counters_;
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_FAR_PAIRS_H_
