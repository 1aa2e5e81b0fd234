// The waits of a rank: in words, and as ranks; reports of stalls.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/engine/runtime.h"

namespace covey {
namespace {

// A part of Options::recheck: a look for operations that have waited for long.
constexpr Time kStallLooks = 10;

std::string RankText(const std::vector<Rank>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ToInt(ranks[i]));
  return text;
}

}  // namespace

void Runtime::WatchStalls(Time now) {
  if (now >= coordinator_.NextDeadline()) coordinator_.OnTick(now, &coordinator_outbox_);
  if (now < next_stall_look_) return;
  next_stall_look_ = now + options_.recheck / kStallLooks;
  stall_.OnTick(now, &negotiator_.outbox());
  if (options_.stall_warning == 0) return;
  for (Exchange* exchange : executor_.active()) {
    if (now - exchange->warned_at < options_.stall_warning) continue;
    exchange->warned_at = now;
    const auto* stream = static_cast<const Stream*>(exchange->owner);
    std::vector<int32_t> missing;
    for (Rank r : executor_.AwaitedPeers(*exchange)) missing.push_back(ToInt(r));
    if (missing.empty()) continue;
    const OperationId id = IdOf(*stream);
    const Time waited = now - exchange->begun_at;
    const std::string what = Describe(*stream);
    if (exchange->state != ExchangeState::kAwaitBegins) {
      stall_.OnSlow(id, what, missing, waited, &negotiator_.outbox());
      continue;
    }
    stall_.OnMissing(id, what, missing, waited, &negotiator_.outbox());
    // The missing ranks say it too, on their own stderr.
    Message told{.type = MessageType::kMissing, .id = id, .ranks = missing, .waited = waited};
    for (int32_t rank : missing) negotiator_.outbox().push_back({Rank{rank}, told});
  }
}

// The exchange that moves the front of `stream`; null: none has begun.
const Exchange* Runtime::ExchangeOf(const Stream& stream) const {
  const auto& active = executor_.active();
  const auto running = std::find_if(active.begin(), active.end(), [&](const Exchange* x) {
    return x->owner == &stream ||
           (stream.state == StreamState::kMoving && x->owner == &stream.bundle->carrier);
  });
  return running == active.end() ? nullptr : *running;
}

std::string Runtime::StatusText() {
  const Time now = options_.clock->Now();
  std::string text;
  for (const auto& stream : negotiator_.streams().all()) {
    const Request* front = stream->Front();
    if (front == nullptr) continue;
    char age[32];
    std::snprintf(age, sizeof(age), "%.1f s",
                  static_cast<double>(now - front->submitted_at) / kSecond);
    text += Describe(*stream) + " submitted " + age + " ago: ";
    if (stream->state == StreamState::kHeld) {
      text += stream->bundle == nullptr ? "waits for a plan to change\n"
                                        : "waits for the rest of its bundle\n";
      continue;
    }
    if (stream->state == StreamState::kAnnounced) {
      text += "not yet agreed, rank " + std::to_string(ToInt(stream->group->Coordinator())) +
              " collects it\n";
      continue;
    }
    const Exchange* running = ExchangeOf(*stream);
    std::vector<Rank> awaited;
    if (running != nullptr) awaited = executor_.AwaitedPeers(*running);
    const bool begins = running == nullptr || running->state != ExchangeState::kAwaitReady;
    text += !begins           ? "waits for the device of this rank\n"
            : awaited.empty() ? "running\n"
                              : "waits for " + RankText(awaited) + "\n";
  }
  return text.empty() ? "waits for nothing; " + stall_.LastOperation(now) + "\n" : text;
}

std::vector<int32_t> Runtime::Awaited(const Request& request) {
  std::vector<int32_t> ranks;
  for (const auto& stream : negotiator_.streams().all()) {
    const auto& waiting = stream->waiting;
    const auto front = waiting.begin() + static_cast<ptrdiff_t>(stream->head);
    if (std::find(front, waiting.end(), &request) == waiting.end()) continue;
    if (stream->state == StreamState::kAnnounced) {
      const OperationId id = IdOf(*stream);
      const Stream::Missing told = std::exchange(stream->missing, {});
      if (told.occurrence == stream->occurrence) ranks = told.ranks;
      Message question{.type = MessageType::kWho, .id = id};
      negotiator_.outbox().push_back({stream->group->Coordinator(), std::move(question)});
    } else if (const Exchange* running = ExchangeOf(*stream); running != nullptr) {
      for (Rank rank : executor_.AwaitedPeers(*running)) ranks.push_back(ToInt(rank));
    }
    break;
  }
  return ranks;
}

}  // namespace covey
