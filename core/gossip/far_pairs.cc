#include "core/gossip/far_pairs.h"

#include <utility>

#include "core/base/group_barrier.h"

namespace covey {

FarPairs::FarPairs(int32_t self, int32_t size, Gossip* gossip, const RoundLayout* layout,
                   const Kernels* kernels, const PairCodec& codec)
    : self_(self),
      model_(gossip),
      codec_(codec, layout, kernels, size),
      looks_(size, layout->length_bytes()),
      members_(static_cast<size_t>(size)),
      difference_(layout->length_bytes()) {}

// ---- The trainer --------------------------------------------------------------------------------

void FarPairs::Enter(uint64_t epoch, FarState state) {
  epoch_ = epoch;
  state_ = state;
  for (int32_t i = 0; i < static_cast<int32_t>(members_.size()); ++i) {
    Member& member = At(i);
    // gossip-P13: an offer that is not written yet would outlast the finish of its rank.
    if (member.turn == Turn::kDue) member.turn = Turn::kNone;
    if (i != self_ && !member.is_lost)
      Send(i, {.kind = Kind::kState, .state = state, .epoch = epoch, .body = {}});
  }
}

void FarPairs::Finish() {
  model_.HandIn();
  Enter(epoch_, FarState::kFinished);
}

void FarPairs::TakeBack() {
  model_.TakeBack();
  Enter(epoch_, FarState::kTrains);
}

Gossip::Outcome FarPairs::Offer(int32_t partner) {
  Member& member = At(partner);
  if (member.IsGone() || member.state != FarState::kTrains || member.epoch != epoch_)
    return Gossip::Outcome::kAbsent;
  // gossip-P11: one offer to a partner: one that is stopped costs this rank one message.
  if (member.turn != Turn::kNone) return Gossip::Outcome::kBusy;
  // gossip-P17: a model of the partner is on its way.
  if (member.accepted != 0) return Gossip::Outcome::kBusy;
  member.turn = Turn::kDue;
  return Gossip::Outcome::kDone;
}

bool FarPairs::Look(int32_t member, Time now, FarLooks::Model* model) {
  bool asks = false;
  const bool has_come = looks_.Look(member, now, model, &asks);
  if (asks) Send(member, {.kind = Kind::kAsk, .body = {}});
  return has_come;
}

std::vector<int32_t> FarPairs::Unsettled() const {
  return MissingMembers(static_cast<int32_t>(members_.size()), [this](int32_t i) {
    const Member& member = members_[static_cast<size_t>(i)];
    const bool has_finished = member.state == FarState::kFinished && member.epoch == epoch_;
    const bool is_through = i == self_ || member.IsGone() || has_finished || member.epoch > epoch_;
    // gossip-P13: what is on its way would move a model that has been handed in.
    return is_through && !member.IsOpen();
  });
}

bool FarPairs::HaveAllLeft() const {
  return MissingMembers(
             static_cast<int32_t>(members_.size()),
             [this](int32_t i) { return i == self_ || members_[static_cast<size_t>(i)].IsGone(); })
      .empty();
}

// ---- The network --------------------------------------------------------------------------------

bool FarPairs::IsSound(int32_t from, const FarMessage& message) const {
  const Member& member = members_[static_cast<size_t>(from)];
  const bool is_head = message.body.empty();
  if (message.kind == Kind::kState || message.kind == Kind::kAsk) return is_head;
  if (message.kind == Kind::kModel) return true;
  if (message.kind == Kind::kOffer) return is_head && message.number > 0;
  // gossip-P17: a model comes once, for an offer that was accepted.
  if (message.kind == Kind::kInput)
    return member.accepted != 0 && message.number == member.accepted;
  // gossip-P11: each answer is that of the open offer, and counts once.
  if (!member.IsOpen() || message.number != member.offers) return false;
  if (message.kind == Kind::kAccepted) return is_head && member.turn == Turn::kOffered;
  return message.kind == Kind::kDeclined || member.turn == Turn::kSent;
}

void FarPairs::OnMessage(int32_t from, std::span<const std::byte> bytes) {
  // gossip-P11: nothing that is open with a lost rank counts any more.
  if (At(from).is_lost) return;
  FarMessage message;
  if (!FarMessage::Decode(bytes, &message) || !IsSound(from, message)) {
    ++counters_.malformed;
    return;
  }
  Member& member = At(from);
  switch (message.kind) {
    case Kind::kState:
      member.state = message.state;
      member.epoch = message.epoch;
      return;
    case Kind::kOffer:
      return OnOffer(from, message);
    case Kind::kAccepted:
      return OnAccepted(from);
    case Kind::kInput:
      return OnInput(from, message);
    case Kind::kTaken:
      return OnTaken(from, message);
    case Kind::kDeclined:
      ++counters_.declined;
      member.turn = Turn::kNone;
      return;
    case Kind::kAsk:
      return OnAsk(from);
    case Kind::kModel:
      if (!looks_.OnModel(from, message)) ++counters_.malformed;
  }
}

void FarPairs::OnOffer(int32_t from, const FarMessage& offer) {
  Member& member = At(from);
  // gossip-P12: of two offers that cross, that of the lower member counts: both would leave each
  // with the other's model.
  const bool crosses = member.IsOpen() && self_ < from;
  // gossip-P13: the model of a rank that has finished is in the mean as it is.
  const bool takes = state_ == FarState::kTrains && offer.epoch == epoch_ && !crosses;
  if (!takes) return Send(from, {.kind = Kind::kDeclined, .number = offer.number, .body = {}});
  member.accepted = offer.number;
  // gossip-P17: an offer that is not written yet would cross that one.
  if (member.turn == Turn::kDue) member.turn = Turn::kNone;
  Send(from, {.kind = Kind::kAccepted, .number = offer.number, .body = {}});
}

// The model of a rank that has finished goes too: its offer is awaited (gossip-P13).
void FarPairs::OnAccepted(int32_t from) {
  if (state_ == FarState::kLeft) return;
  Member& member = At(from);
  member.turn = Turn::kSent;
  const FarMessage head{.kind = Kind::kInput, .epoch = epoch_, .number = member.offers, .body = {}};
  Bytes input;
  model_.Read([&](const std::byte* own) {
    input = head.Head();
    codec_.PutModel(own, from, DrawOf(self_, from, member.offers), &input);
  });
  messages_.push_back({from, std::move(input)});
}

void FarPairs::OnInput(int32_t from, const FarMessage& offer) {
  At(from).accepted = 0;
  // gossip-P13: this rank may have finished since it accepted the offer.
  if (state_ != FarState::kTrains || offer.epoch != epoch_)
    return Send(from, {.kind = Kind::kDeclined, .number = offer.number, .body = {}});
  const FarMessage head{.kind = Kind::kTaken, .number = offer.number, .body = {}};
  Bytes answer;
  bool is_model = false;
  model_.Read([&](const std::byte* own) {
    answer = head.Head();
    is_model = codec_.PutDifference(offer.body, own, DrawOf(from, self_, offer.number),
                                    difference_.data(), &answer);
  });
  if (!is_model) {
    ++counters_.malformed;
    return;
  }
  // gossip-P11: what this rank adds is what the other subtracts, bit for bit.
  model_.Add(difference_.data(), 1);
  ++counters_.answered;
  messages_.push_back({from, std::move(answer)});
}

void FarPairs::OnTaken(int32_t from, const FarMessage& answer) {
  Member& member = At(from);
  member.turn = Turn::kNone;
  if (state_ == FarState::kLeft) return;
  if (!codec_.ReadDifference(answer.body, from, difference_.data())) {
    ++counters_.malformed;
    return;
  }
  // gossip-P11: the same bits that the partner has added.
  model_.Add(difference_.data(), -1);
  ++counters_.taken;
}

void FarPairs::OnAsk(int32_t from) {
  Bytes bytes =
      FarMessage{.kind = Kind::kModel, .epoch = epoch_, .number = steps_, .body = {}}.Head();
  // gossip-P16: nothing of the model is touched before it begins, or once it has left.
  if (state_ == FarState::kTrains || state_ == FarState::kFinished)
    model_.Read([&](const std::byte* own) {
      bytes.resize(FarMessage::kHeadBytes);
      bytes.insert(bytes.end(), own, own + difference_.size());
    });
  messages_.push_back({from, std::move(bytes)});
}

void FarPairs::OnLoss(int32_t member) {
  looks_.OnLoss(member);
  Member& lost = At(member);
  // gossip-P11: the difference of an offer that is not answered is lost with the partner's model.
  counters_.lost += lost.IsOpen() ? 1 : 0;
  lost.turn = Turn::kNone;
  lost.is_lost = true;
}

uint64_t FarPairs::DrawOf(int32_t from, int32_t to, uint64_t number) const {
  const auto pair = static_cast<uint64_t>(from) * members_.size() + static_cast<uint64_t>(to);
  return (pair << 40 ^ number) * 0x9e3779b97f4a7c15u;
}

void FarPairs::SendOffer(int32_t partner) {
  Member& member = At(partner);
  member.turn = Turn::kOffered;
  ++counters_.offers;
  Send(partner, {.kind = Kind::kOffer, .epoch = epoch_, .number = ++member.offers, .body = {}});
}

void FarPairs::Send(int32_t to, const FarMessage& message) {
  messages_.push_back({to, message.Head()});
}

std::vector<EncodedMessage> FarPairs::TakeMessages() {
  for (int32_t i = 0; i < static_cast<int32_t>(members_.size()); ++i)
    if (At(i).turn == Turn::kDue) SendOffer(i);
  return std::exchange(messages_, {});
}

}  // namespace covey
