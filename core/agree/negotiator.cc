#include "core/agree/negotiator.h"

#include <algorithm>
#include <iterator>

#include "core/base/check.h"

namespace covey {
namespace {

// Places of ended requests that a stream keeps at least: they go once they are half of all.
constexpr size_t kMostEnded = 64;

}  // namespace

struct Negotiator::Transition {
  StreamState from;
  Event event;
  StreamState to;
  Action action;
};

// Every pair not listed is a bug, except answers that arrive after their stream was broken.
constexpr Negotiator::Transition Negotiator::kTransitions[] = {
    {StreamState::kIdle, Event::kKnown, StreamState::kRunning, Action::kBegin},
    {StreamState::kIdle, Event::kNoChannel, StreamState::kAnnounced, Action::kAnnounce},
    {StreamState::kIdle, Event::kDeviates, StreamState::kRunning, Action::kBeginVoid},
    {StreamState::kIdle, Event::kLoss, StreamState::kBroken, Action::kFailAll},
    {StreamState::kAnnounced, Event::kAgreed, StreamState::kRunning, Action::kAdopt},
    {StreamState::kAnnounced, Event::kError, StreamState::kIdle, Action::kFinishFront},
    {StreamState::kAnnounced, Event::kLoss, StreamState::kBroken, Action::kFailAll},
    {StreamState::kRunning, Event::kDone, StreamState::kIdle, Action::kFinishFront},
    {StreamState::kRunning, Event::kVoid, StreamState::kAnnounced, Action::kAnnounce},
    {StreamState::kRunning, Event::kAborted, StreamState::kBroken, Action::kFailAll},
    {StreamState::kRunning, Event::kLoss, StreamState::kRunning,
     Action::kNothing},  // the executor decides
    {StreamState::kIdle, Event::kFrozen, StreamState::kHeld, Action::kNothing},
    {StreamState::kIdle, Event::kBundled, StreamState::kHeld, Action::kHold},
    {StreamState::kHeld, Event::kMove, StreamState::kMoving, Action::kNothing},
    {StreamState::kHeld, Event::kThaw, StreamState::kIdle, Action::kLookAgain},
    {StreamState::kHeld, Event::kLoss, StreamState::kBroken, Action::kFailAll},
    {StreamState::kMoving, Event::kDone, StreamState::kIdle, Action::kFinishFront},
    {StreamState::kMoving, Event::kThaw, StreamState::kIdle, Action::kLookAgain},
    {StreamState::kMoving, Event::kAborted, StreamState::kBroken, Action::kFailAll},
    {StreamState::kMoving, Event::kLoss, StreamState::kMoving, Action::kNothing},
    {StreamState::kBroken, Event::kLoss, StreamState::kBroken, Action::kFailAll},
    {StreamState::kBroken, Event::kAgreed, StreamState::kBroken, Action::kNothing},
    {StreamState::kBroken, Event::kError, StreamState::kBroken, Action::kNothing},
};

const Stream& Negotiator::Submit(Request* request) {
  Stream* stream = streams_.Use(*request);
  stream->waiting.push_back(request);
  stream->last_submitted = request->submitted_at;
  // agree-N1: one exchange of a stream at a time: a later request waits for its turn.
  const bool is_front = stream->Front() == request;
  if (is_front && (stream->state == StreamState::kIdle || stream->state == StreamState::kBroken))
    Advance(stream);
  return *stream;
}

void Negotiator::Advance(Stream* stream) {
  const Request* front = stream->Front();
  if (front == nullptr) return;
  if (stream->state == StreamState::kBroken)
    return Apply(stream, Event::kLoss, nullptr, stream->broken);
  // agree-N11: a group that has lost a member begins nothing more.
  if (const Status lost = LossIn(*stream->group); !lost.ok())
    return Apply(stream, Event::kLoss, nullptr, lost);
  // agree-N8: frozen, by a plan that is being changed or a name that is being retired.
  if (stream->occurrence >= stream->frozen_from) return Apply(stream, Event::kFrozen, nullptr, {});
  // agree-N7: this occurrence travels with its bundle.
  if (stream->bundle != nullptr && stream->bundle->Takes(*stream))
    return Apply(stream, Event::kBundled, nullptr, {});
  // agree-N2: the first occurrence is announced: there is no landing space to begin in.
  if (!stream->channel.Exists()) return Apply(stream, Event::kNoChannel, nullptr, {});
  // agree-N3: a known signature begins in-band, without a message.
  const bool known = MatchingEntry(stream, *front) != nullptr;
  Apply(stream, known ? Event::kKnown : Event::kDeviates, nullptr, {});
}

// The entry the request fits, remembered as last_entry; null when none. A stream that cycles
// through its entries (unnamed requests of a training step) finds each at once: the one after the
// last.
const Entry* Negotiator::MatchingEntry(Stream* stream, const Request& request) {
  // agree-N5: a request that is refused here fits no entry, so all members hear of it.
  if (!request.refusal.ok()) return nullptr;
  const size_t count = stream->entries.size();
  for (size_t step = 0; step < count; ++step) {
    const size_t i = (stream->last_entry + step) % count;
    if (!Matches(request, stream->entries[i].signature)) continue;
    stream->last_entry = i;
    return &stream->entries[i];
  }
  return nullptr;
}

void Negotiator::Apply(Stream* stream, Event event, const Message* answer, const Status& why) {
  const auto* t = std::find_if(
      std::begin(kTransitions), std::end(kTransitions),
      [&](const Transition& row) { return row.from == stream->state && row.event == event; });
  CHECK(t != std::end(kTransitions), "no transition for this state and event of a stream");
  stream->state = t->to;
  switch (t->action) {
    case Action::kNothing:
      return;
    case Action::kBegin:
      startable_.push_back({stream, stream->Front(), &stream->entries[stream->last_entry]});
      if (stream->name.empty())
        stream->last_entry = (stream->last_entry + 1) % stream->entries.size();
      return;
    case Action::kBeginVoid:
      // agree-N5: a request without a matching entry begins void, which every member sees.
      startable_.push_back({stream, stream->Front(), nullptr});
      return;
    case Action::kAnnounce:
      return Announce(stream);
    case Action::kAdopt:
      return Adopt(stream, *answer);
    case Action::kFailAll:
      return FailAll(stream, why);
    case Action::kHold:
      return Hold(stream);
    case Action::kLookAgain:
      return Advance(stream);
    case Action::kFinishFront:
      FinishFront(stream, why);
      return Advance(stream);
  }
}

void Negotiator::Announce(Stream* stream) {
  const Request* front = stream->Front();
  Message m{.type = MessageType::kAnnounce,
            .id = {stream->group->key, stream->name, stream->occurrence}};
  for (Rank r : stream->group->members) m.ranks.push_back(ToInt(r));
  m.signature = SignatureOf(*front);
  m.text = options_.agreed_text;
  m.waits = front->waits;
  m.submitted_at = front->submitted_at;
  m.peers = front->peers;
  if (!front->refusal.ok()) {
    m.code = front->refusal.code();
    m.text = front->refusal.message();
  }
  const size_t slot_bytes = LandingSlotBytes(m.signature, options_.segment_bytes);
  if (slot_bytes > stream->channel.slot_bytes) {
    stream->proposed_slot_bytes = slot_bytes;
    // agree-N9: the old block stays until AGREED: a slower member may still be in its exchange.
    stream->proposed_block = blocks_->Alloc(slot_bytes, stream->group->members.size(), &m.depth);
    m.slot_bytes = slot_bytes;
    m.blocks = {stream->proposed_block};
  }
  ++announced_;
  outbox_.push_back({stream->group->Coordinator(), std::move(m)});
}

void Negotiator::Adopt(Stream* stream, const Message& agreed) {
  Channel& channel = stream->channel;
  if (agreed.slot_bytes != 0) {
    const size_t me = static_cast<size_t>(ToInt(stream->group->my_index));
    // agree-N9: AGREED says that all members have left the old block.
    if (channel.Exists()) blocks_->Free(channel.blocks[me]);
    // agree-N9: three slots at least: a slower member still reads the slot before.
    channel =
        Channel{.blocks = agreed.blocks, .slot_bytes = agreed.slot_bytes, .depth = agreed.depth};
    stream->proposed_slot_bytes = 0;
  }
  // agree-N2: all members drop their entries at the same AGREED, so the lists stay equal.
  if (stream->entries.size() >= options_.cache_capacity) stream->entries.clear();
  stream->entries.push_back({agreed.entry, SignatureOf(*stream->Front())});
  stream->last_entry = stream->entries.size() - 1;
  startable_.push_back({stream, stream->Front(), &stream->entries.back()});
}

void Negotiator::OnAnswer(const Message& m) {
  Stream* stream = streams_.Find(m.id);
  // agree-N1: an answer belongs to one occurrence.
  if (stream == nullptr || stream->occurrence != m.id.occurrence) return;  // broken meanwhile
  if (m.type == MessageType::kAgreed) return Apply(stream, Event::kAgreed, &m, {});
  DropProposal(stream);
  Apply(stream, Event::kError, nullptr,
        Status(m.code, Describe(*stream) + ": " + m.text, Rank{m.peer}));
}

Status Negotiator::LossIn(const Group& group) const {
  for (const auto& [rank, how] : lost_) {
    if (std::binary_search(group.members.begin(), group.members.end(), rank))
      return Status::Aborted("rank " + std::to_string(ToInt(rank)) + " " + how, rank);
  }
  return Status::Ok();
}

void Negotiator::OnExchangeEnd(Stream* stream, ExchangeEnd end, Status why) {
  if (stream->carries != nullptr) return OnBundleEnd(stream->carries, end, why);
  if (end == ExchangeEnd::kDone) return Apply(stream, Event::kDone, nullptr, {});
  if (end == ExchangeEnd::kAborted) return Apply(stream, Event::kAborted, nullptr, why);
  // agree-N11: a void exchange of such a group is not announced: no answer would come.
  if (const Status lost = LossIn(*stream->group); !lost.ok())
    return Apply(stream, Event::kAborted, nullptr, lost);
  Apply(stream, Event::kVoid, nullptr, {});
}

void Negotiator::OnLoss(Rank lost, const std::string& how) {
  lost_.emplace_back(lost, how);
  const Status why = Status::Aborted("rank " + std::to_string(ToInt(lost)) + " " + how, lost);
  for (const auto& stream : streams_.all()) {
    const auto& members = stream->group->members;
    if (stream->Front() != nullptr && std::binary_search(members.begin(), members.end(), lost))
      Apply(stream.get(), Event::kLoss, nullptr, why);
  }
}

void Negotiator::AbortAll(const Status& why) {
  for (const auto& stream : streams_.all())
    if (stream->state != StreamState::kRunning && stream->Front() != nullptr)
      Apply(stream.get(), Event::kLoss, nullptr, why);
}

void Negotiator::FinishFront(Stream* stream, Status status) {
  // agree-N1: done, error and abort each use one occurrence, so all members count alike.
  ended_.push_back({stream->Front(), std::move(status)});
  ++stream->head;
  ++stream->occurrence;
  if (stream->head < stream->waiting.size()) {
    if (2 * stream->head < std::max(kMostEnded, stream->waiting.size())) return;
    stream->waiting.erase(stream->waiting.begin(),
                          stream->waiting.begin() + static_cast<ptrdiff_t>(stream->head));
  } else {
    stream->waiting.clear();  // keeps its capacity: no allocation per operation
  }
  stream->head = 0;
}

void Negotiator::FailAll(Stream* stream, const Status& why) {
  // agree-N11: a proposed landing block is kept: others may have it from an AGREED that comes too
  // late here.
  if (stream->broken.ok()) stream->broken = why;
  while (stream->Front() != nullptr) {
    const std::string message = Describe(*stream) + ": " + why.message();
    FinishFront(stream, Status(why.code(), message, why.peer()));
  }
}

void Negotiator::DropProposal(Stream* stream) {
  if (stream->proposed_slot_bytes == 0) return;
  if (stream->proposed_block != kNoBlock) blocks_->Free(stream->proposed_block);
  stream->proposed_slot_bytes = 0;
}

}  // namespace covey
