#include "core/engine/runtime.h"

#include <algorithm>

#include "core/base/check.h"

namespace covey {
namespace {

// How often an awaited device is looked at: it rings no thread.
constexpr Time kDeviceLook = 50 * kMicrosecond;
// A part of Options::recheck: a look for dead peers, which bounds their detection.
constexpr Time kPeerPolls = 20;
// Messages taken in one pass, so that a rank which many report about still comes to its exchanges.
constexpr int kMailPerPass = 64;
// How long a message waits that found no room: an emptied mailbox rings no rank.
constexpr Time kUnsentRetry = kMillisecond;

// Calls fn(id) for each operation an exchange of the stream moves: those of a bundle's members. A
// bundle begun void moves none of them and stands for itself.
template <typename Fn>
void ForEachMoved(const Stream& stream, uint32_t entry, Fn fn) {
  if (stream.carries == nullptr || entry == 0) return fn(IdOf(stream));
  for (const Stream* member : stream.carries->members)
    fn({stream.group->key, member->name, member->base + stream.occurrence});
}

}  // namespace

Runtime::Runtime(Options options, Transport* transport, TensorQueue* queue)
    : options_(std::move(options)),
      transport_(transport),
      queue_(queue),
      blocks_(std::make_unique<LandingAllocator>(transport, options_.landing_bytes)),
      negotiator_({.self = transport->rank(),
                   .segment_bytes = options_.segment_bytes,
                   .cache_capacity = options_.cache_capacity,
                   .agreed_text = options_.agreed_text,
                   .retire = transport->SharesWithAll() ? options_.retire : RetireRules{}},
                  blocks_.get()),
      coordinator_({.stall_warning = options_.stall_warning,
                    .fusion = options_.fusion,
                    .segment_bytes = options_.segment_bytes,
                    .world_size = transport->size()}),
      join_(transport->rank()),
      executor_({.kernels = options_.kernels,
                 .cache_bytes = options_.cache_bytes,
                 .unstaged_above = options_.selector.flat_bytes,
                 .places_small = options_.selector.algorithm != "auto" ||
                                 options_.selector.read_bytes < options_.selector.flat_bytes,
                 .stages_batches = options_.selector.algorithm == "auto" ||
                                   options_.selector.algorithm == "staged",
                 .clock = options_.clock,
                 .planner = {options_.plan, &options_.selector},
                 .staging = {.arena_bytes = options_.device_arena_bytes,
                             .ipc_bytes = options_.device_ipc_bytes},
                 .communicators = {.path = options_.device_path,
                                   .least_bytes = options_.communicator_bytes,
                                   .patience = options_.communicator_patience,
                                   .log = options_.log}},
                transport),
      stall_(transport->rank(), options_.log),
      channels_(transport) {
  for (size_t i = 0; i < options_.devices.size(); ++i)
    if (options_.devices[i] != nullptr) executor_.AddDevice(DeviceType(i), options_.devices[i]);
}

Runtime::~Runtime() = default;

void Runtime::AddDevice(DeviceType type, Device* device) {
  options_.devices[static_cast<size_t>(type)] = device;
  executor_.AddDevice(type, device);
}

Time Runtime::RunOnce(bool* moved) {
  *moved = false;
  ++counters_.passes;
  const Time now = pass_began_ = options_.clock->Now();
  if (repeats_ > 0) stall_.OnRepeats(now);
  repeats_ = 0;
  NoteAwaited();
  TakeSubmitted(now, moved);
  if (negotiator_.streams().HasGroup()) TakeIdle();
  ReceiveAll(now, moved);
  WatchPeers(now);
  join_.Progress(negotiator_, now);
  negotiator_.BreakAwaited();
  negotiator_.OnTick(now);
  StartAndProgress(now, moved);
  FinishEnded(moved);
  WatchStalls(now);
  SendAll(moved);
  const Time channels = channels_.Advance(now, moved);
  const bool busy = !executor_.Idle() || queue_->in_flight() > 0;
  const Time next =
      std::min({coordinator_.NextDeadline(), negotiator_.bundles().NextDeadline(), channels});
  Time until =
      std::min(next, busy ? std::min(next_peer_poll_, next_stall_look_) : now + options_.recheck);
  if (executor_.AwaitsDevice()) until = std::min(until, now + kDeviceLook);
  const bool unsent = !pending_.empty() || transport_->HasUnsent();
  return unsent ? std::min(until, now + kUnsentRetry) : until;
}

// Marks the awaited operations. Before new submissions are taken: a waiting thread has submitted
// all it had to, so a bundle that is not full then stays so (agree-N6).
void Runtime::NoteAwaited() {
  const uint64_t waits = queue_->waits();
  // agree-N10: a joining rank fills no bundle any more: all it has in flight counts as awaited.
  const bool all = join_.AwaitsWorld();
  if (!all && waits == waits_seen_ && negotiator_.bundles().holds() == holds_seen_) return;
  waits_seen_ = waits;
  holds_seen_ = negotiator_.bundles().holds();
  negotiator_.bundles().ForEachHeld([all](Request* held) {
    if (held->is_proxy) return;
    held->awaited =
        (all && held->group->key == 0) || static_cast<Operation*>(held)->waited_for.load();
  });
}

void Runtime::TakeSubmitted(Time now, bool* moved) {
  queue_->TakeAll(&taken_);
  for (Operation* operation : taken_) {
    operation->submitted_at = now;
    stall_.OnSubmit(operation->kind, operation->name, now);
    Submit(operation);
    *moved = true;
  }
}

void Runtime::TakeIdle() {
  if (Message idle; negotiator_.TakeIdle(&idle))
    coordinator_.Retire(std::move(idle), &coordinator_outbox_);
}

void Runtime::Submit(Request* request) {
  if (request->kind == Kind::kJoin) return join_.Submit(request);
  if (const Status wrong = join_.Check(*request); !wrong.ok())
    return negotiator_.ended().push_back({request, wrong});
  join_.OnSubmit(negotiator_.Submit(request));
}

void Runtime::ReceiveAll(Time now, bool* moved) {
  Rank from = kNoRank;
  for (int taken = 0; taken < kMailPerPass && transport_->TryReceive(&from, &received_); ++taken) {
    *moved = true;
    if (Fragmenter::IsFrame(received_)) {
      counters_.malformed_messages += channels_.OnFrame(from, std::move(received_), now) ? 0 : 1;
      continue;
    }
    Message message;
    if (DecodeMessage(received_, &message)) {
      if (options_.observer != nullptr)
        options_.observer->OnReceive(transport_->rank(), from, message);
      Route(from, std::move(message), now);
    } else {
      ++counters_.malformed_messages;
    }
  }
}

void Runtime::Route(Rank from, Message message, Time now) {
  switch (message.type) {
    case MessageType::kAnnounce:
      return coordinator_.OnAnnounce(from, std::move(message), now, &coordinator_outbox_);
    case MessageType::kAgreed:
    case MessageType::kError:
      return negotiator_.OnAnswer(message);
    case MessageType::kFreeze:
      negotiator_.OnFreeze(message);
      return negotiator_.bundles().ForEachCarrier(
          [this](const Stream& carrier) { CloseIfLost(carrier); });
    case MessageType::kFrozen:
      return coordinator_.OnFrozen(from, message, &coordinator_outbox_);
    case MessageType::kSwitch:
      return negotiator_.OnSwitch(message);
    case MessageType::kBreak:
      return negotiator_.OnBreak(message);
    case MessageType::kJoin:
      return coordinator_.OnJoin(from, &coordinator_outbox_);
    case MessageType::kJoined:
      return join_.OnJoined(message, negotiator_);
    case MessageType::kAllJoined:
      return join_.OnAllJoined(message);
    case MessageType::kShadow:
      if (Request* proxy = join_.OnShadow(message, negotiator_, now)) negotiator_.Submit(proxy);
      return;
    case MessageType::kRetire:
      return negotiator_.OnRetire(message);
    case MessageType::kIdle:
      return coordinator_.OnIdle(from, message, &coordinator_outbox_);
    case MessageType::kDrop:
      return Drop(message);
    case MessageType::kDropped:
      return coordinator_.OnDropped(from, message, &coordinator_outbox_);
    case MessageType::kMissing: {
      if (Stream* stream = negotiator_.streams().Find(message.id); stream != nullptr)
        stream->missing = {message.id.occurrence, message.ranks};
      const std::string what = message.id.stream.empty() ? "unnamed operation number " +
                                                               std::to_string(message.id.occurrence)
                                                         : "'" + message.id.stream + "'";
      return stall_.OnMissing(message.id, what, message.ranks, message.waited,
                              &negotiator_.outbox());
    }
    case MessageType::kWho:
      return coordinator_.OnWho(from, message.id, now, &coordinator_outbox_);
    case MessageType::kWhere:
      return stall_.OnQuestion(from, message.id);
    case MessageType::kHere:
      return stall_.OnAnswer(from, message.text);
  }
}

void Runtime::Drop(const Message& message) {
  negotiator_.OnDrop(message);
  join_.OnDrop(negotiator_.world_drops());
  queue_->Forget(negotiator_.streams().forgotten());
  negotiator_.streams().forgotten().clear();
}

void Runtime::WatchPeers(Time now) {
  if (now < next_peer_poll_) return;
  next_peer_poll_ = now + options_.recheck / kPeerPolls;
  for (const PeerLoss& loss : transport_->PollPeers()) {
    lost_.push_back(loss.rank);
    channels_.OnLoss(loss.rank);
    coordinator_.OnLoss(loss.rank);
    executor_.OnLoss(loss);
    negotiator_.OnLoss(loss.rank, loss.how);
    join_.OnLoss(
        Status::Aborted("rank " + std::to_string(ToInt(loss.rank)) + " " + loss.how, loss.rank),
        now);
    // agree-N11: peers learn from the cells of these streams that this rank begins nothing more.
    for (const auto& stream : negotiator_.streams().all()) CloseIfLost(*stream);
    negotiator_.bundles().ForEachCarrier([this](const Stream& carrier) { CloseIfLost(carrier); });
  }
}

// agree-N11: a group that has lost a member begins nothing more. Peers that have begun without
// knowing of the loss, or of an AGREED that came too late here, learn it from this rank's cells.
void Runtime::CloseIfLost(const Stream& stream) {
  if (stream.state == StreamState::kRunning) return;  // its end comes here again
  const auto& members = stream.group->members;
  for (Rank lost : lost_) {
    if (!std::binary_search(members.begin(), members.end(), lost)) continue;
    const auto me = static_cast<size_t>(ToInt(stream.group->my_index));
    if (stream.channel.Exists()) executor_.Close(*stream.group, stream.channel.blocks[me], lost);
    if (stream.proposed_slot_bytes != 0 && stream.proposed_block != Transport::kNoOffset)
      executor_.Close(*stream.group, stream.proposed_block, lost);
    return;
  }
}

void Runtime::StartAndProgress(Time now, bool* moved) {
  for (;; now = options_.clock->Now()) {
    for (const Negotiator::Start& start : negotiator_.startable()) {
      *moved = true;
      const uint32_t entry = start.entry == nullptr ? 0 : start.entry->id;
      if (options_.observer != nullptr)
        ForEachMoved(*start.stream, entry, [&](const OperationId& id) {
          options_.observer->OnBegin(transport_->rank(), id, entry);
        });
      executor_.Begin(start.request, &start.stream->channel, start.stream->occurrence, entry,
                      start.stream, now);
      if (timeline_ != nullptr)
        timeline_->Span("negotiate", start.stream->name, start.request->submitted_at, now);
    }
    negotiator_.startable().clear();
    *moved |= executor_.Progress(now);
    if (executor_.ended().empty()) return;
    const Time ended_at = timeline_ == nullptr ? now : options_.clock->Now();
    for (Exchange* exchange : executor_.ended()) HandleEnded(exchange, ended_at);
    executor_.ended().clear();
    if (negotiator_.startable().empty()) return;
  }
}

void Runtime::HandleEnded(Exchange* exchange, Time now) {
  auto* stream = static_cast<Stream*>(exchange->owner);
  if (timeline_ != nullptr && exchange->outcome == Outcome::kDone) {
    timeline_->Span("exchange", stream->name, exchange->begun_at, now);
    timeline_->Span("wait for peers", stream->name, exchange->begun_at, exchange->all_begun_at);
  }
  if (options_.observer != nullptr)
    ForEachMoved(*stream, exchange->begun_as, [&](const OperationId& id) {
      options_.observer->OnExchangeEnd(transport_->rank(), id, exchange->outcome);
    });
  const auto end = exchange->outcome == Outcome::kDone   ? Negotiator::ExchangeEnd::kDone
                   : exchange->outcome == Outcome::kVoid ? Negotiator::ExchangeEnd::kVoid
                                                         : Negotiator::ExchangeEnd::kAborted;
  const bool is_of_operation = stream->carries == nullptr && !exchange->request->is_proxy;
  if (is_of_operation && executor_.NoteRepeats(exchange))
    static_cast<Operation*>(exchange->request)->repeats = true;
  negotiator_.OnExchangeEnd(stream, end, std::move(exchange->why));
  executor_.Recycle(exchange);
  CloseIfLost(*stream);
}

void Runtime::FinishEnded(bool* moved) {
  for (std::vector<EndedRequest>* list : {&negotiator_.ended(), &join_.ended()}) {
    for (EndedRequest& ended : *list) {
      *moved = true;
      if (ended.request->is_proxy) {
        join_.OnProxyEnded(ended.request);
        continue;
      }
      // engine-E4: every operation that ends is handed out exactly once.
      ++counters_.ended;
      if (!ended.status.ok()) ++counters_.failed;
      if (options_.observer != nullptr)
        options_.observer->OnEnd(transport_->rank(), *ended.request, ended.status);
      for (void* event : ended.request->recorded)
        options_.devices[static_cast<size_t>(ended.request->inputs[0].device)]->GiveBack(event);
      // engine-E4: handed out once: the handle may be reused as soon as the queue has it.
      finished_.push_back({static_cast<Operation*>(ended.request), std::move(ended.status)});
    }
    list->clear();
  }
  queue_->Finish(&finished_);
}

void Runtime::SendAll(bool* moved) {
  for (std::vector<Envelope>* outbox :
       {&negotiator_.outbox(), &coordinator_outbox_, &join_.outbox()}) {
    for (const Envelope& envelope : *outbox) {
      // agree-N13: counted is what agrees on something; reports of stalls do not.
      counters_.coordinator_messages += Agrees(envelope.message.type);
      if (options_.observer != nullptr)
        options_.observer->OnSend(transport_->rank(), envelope.to, envelope.message);
      // engine-E5: a report that finds no room may be dropped: a later one says the same.
      pending_.push_back(
          {envelope.to, EncodeMessage(envelope.message), !Agrees(envelope.message.type)});
      CHECK(pending_.back().bytes.size() <= transport_->MaxMessageBytes(),
            "a message longer than a mailbox");
    }
    outbox->clear();
  }
  if (pending_.empty()) return;
  // Per receiver in order: once one does not fit, the later ones to that rank wait too. Reports do
  // not: to a rank that is stopped they would pile up without end.
  std::vector<Rank> full;
  std::erase_if(pending_, [&](const Unsent& unsent) {
    if (std::find(lost_.begin(), lost_.end(), unsent.to) != lost_.end()) return true;
    if (std::find(full.begin(), full.end(), unsent.to) != full.end()) return unsent.is_report;
    if (transport_->TrySend(unsent.to, unsent.bytes)) return *moved = true;
    full.push_back(unsent.to);
    return unsent.is_report;
  });
}

void Runtime::AbortAll(const Status& why) {
  bool moved = false;
  TakeSubmitted(options_.clock->Now(), &moved);
  // Operations about to begin end like those that have begun.
  while (!negotiator_.startable().empty()) {
    Stream* stream = negotiator_.startable().back().stream;
    negotiator_.startable().pop_back();
    negotiator_.OnExchangeEnd(stream, Negotiator::ExchangeEnd::kAborted, why);
  }
  executor_.AbortAll(why);
  executor_.Progress(options_.clock->Now());
  for (Exchange* exchange : executor_.ended()) {
    negotiator_.OnExchangeEnd(static_cast<Stream*>(exchange->owner),
                              Negotiator::ExchangeEnd::kAborted, why);
    executor_.Recycle(exchange);
  }
  executor_.ended().clear();
  negotiator_.AbortAll(why);
  join_.Abort(why);
  FinishEnded(&moved);
}

}  // namespace covey
