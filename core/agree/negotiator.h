// The member's half of negotiation: when may an operation begin, and with what?
//
// Sans-IO: requests, messages, exchange ends and losses in; starts, ends and envelopes out. No
// clock, no thread. The life of a stream's front occurrence is the transition table in
// negotiator.cc:
//
//            no channel                        AGREED
//   kIdle ---------------> kAnnounced ---------------------> kRunning --done--> kIdle
//     | known entry                ^      ERROR: kIdle        ^   |
//     +----------------------------|--------------------------+   |
//     | deviates: begins void      +---------- void --------------+
//     +---------------------------------------------------------> (kRunning)
//     | frozen, or bundled                      bundle full          done
//     +--------------------------> kHeld ---------------> kMoving ---------> kIdle
//                                    | plan changed, bundle void: kIdle, looked at again
//
// Rules (core/PROTOCOL.md):
//  agree-N1 occurrences count at submit; done, error and abort each use one up. A void leaves the
//     occurrence in place.
//  agree-N2 first occurrence and unknown signatures are announced to the group's lowest rank.
//  agree-N3 a known signature begins in-band; begin headers carry (occurrence, entry), see
//     core/base/channel.h.
//  agree-N5 a rank whose request fits no entry begins *void* on the existing channel; every member
//     then sees the void (or two different entries) in the begin headers, nobody has written user
//     memory, and all announce.
//  agree-N9 landing space is reserved before ANNOUNCE and adopted at AGREED, or the operation is
//      refused.
//  agree-N11 after the loss of a member its groups are broken: what cannot finish ends kAborted,
//      naming the rank.
#ifndef COVEY_CORE_AGREE_NEGOTIATOR_H_
#define COVEY_CORE_AGREE_NEGOTIATOR_H_

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/agree/bundle.h"
#include "core/agree/message.h"
#include "core/agree/retire.h"
#include "core/agree/stream.h"

namespace covey {

// Where landing blocks come from. Alloc chooses how many slots a block gets and returns where it
// lies, or ~0 when there is no room; it holds LandingBlockBytes(slot_bytes, depth, members),
// zero-filled.
class LandingBlocks {
 public:
  virtual ~LandingBlocks() = default;
  virtual uint64_t Alloc(size_t slot_bytes, size_t members, uint32_t* depth) = 0;
  virtual void Free(uint64_t block) = 0;
};

class Negotiator {
 public:
  struct Options {
    Rank self = kNoRank;
    size_t segment_bytes = 64 * 1024;  // a landing slot is never larger
    size_t cache_capacity = 4096;      // entries per stream
    std::string agreed_text;           // knobs that must be equal on all ranks
    RetireRules retire;
  };
  // An exchange to begin now. `entry` is null for a void begin.
  struct Start {
    Stream* stream = nullptr;
    Request* request = nullptr;
    const Entry* entry = nullptr;
  };
  struct Ended {
    Request* request = nullptr;
    Status status;
  };
  enum class ExchangeEnd : uint8_t { kDone, kVoid, kAborted };

  // `blocks` outlives the negotiator.
  Negotiator(Options options, LandingBlocks* blocks)
      : options_(std::move(options)), blocks_(blocks) {}

  // `request` is borrowed until it appears in ended().
  const Stream& Submit(Request* request);
  void OnAnswer(const Message& message);  // kAgreed, kError
  void OnFreeze(const Message& message);
  void OnSwitch(const Message& message);
  void OnBreak(const Message& message);
  void OnRetire(const Message& message);
  void OnDrop(const Message& message);
  // The streams of a group that its coordinator, this rank, sees as idle (Retirement). False: none.
  bool TakeIdle(Message* idle);
  void OnExchangeEnd(Stream* stream, ExchangeEnd end, Status why);
  void OnLoss(Rank lost, const std::string& how);
  // Breaks the bundles that hold a request marked as awaited (agree-N6).
  void BreakAwaited();
  // Calls fn(Request*) for each request held by a bundle; holds() grows with each new one.
  template <typename Fn>
  void ForEachHeld(Fn fn) {
    for (const Bundle* bundle : filling_) {
      if (bundle->carrier.state != StreamState::kIdle) continue;
      for (Stream* member : bundle->members)
        if (member->state == StreamState::kHeld) fn(member->Front());
    }
  }
  uint64_t holds() const { return holds_; }
  // Calls fn(const Stream&) for each bundle's own stream.
  template <typename Fn>
  void ForEachCarrier(Fn fn) const {
    for (const auto& [key, bundle] : bundles_) fn(bundle->carrier);
  }
  // Breaks bundles by age (agree-N6). Nothing changes before NextDeadline().
  void OnTick(Time now);
  Time NextDeadline() const;
  // Ends every operation that is not in an exchange (shutdown).
  void AbortAll(const Status& why);

  // Obligations: the runtime executes and clears them.
  std::vector<Start>& startable() { return startable_; }
  std::vector<Ended>& ended() { return ended_; }
  std::vector<Envelope>& outbox() { return outbox_; }
  // Names of which nothing is kept here any more.
  std::vector<NameMemo*>& forgotten() { return forgotten_; }

  // The stream of this operation; null: nothing of it has been submitted.
  Stream* Find(const OperationId& id) const;
  // All streams, in the order of their first submit (reports; deterministic).
  const std::deque<std::unique_ptr<Stream>>& streams() const { return streams_; }
  size_t bundles() const { return bundles_.size() + dropped_bundles_; }  // ever planned
  uint32_t world_drops() const { return world_drops_; }  // DROPs of the world so far
  uint64_t announced() const { return announced_; }      // ANNOUNCE messages ever sent

  // What a status line says of a request: "allreduce 'x'" or "allreduce #3 of the unnamed stream".
  static std::string Describe(const Stream& stream);
  // Of the front.
  static OperationId IdOf(const Stream& stream) {
    return {stream.group->key, stream.name, stream.occurrence};
  }

 private:
  enum class Event : uint8_t {
    kKnown,
    kNoChannel,
    kDeviates,
    kAgreed,
    kError,
    kDone,
    kVoid,
    kAborted,
    kLoss,
    kFrozen,
    kBundled,
    kMove,
    kThaw
  };
  enum class Action : uint8_t {
    kBegin,
    kBeginVoid,
    kAnnounce,
    kAdopt,
    kFinishFront,
    kFailAll,
    kHold,
    kLookAgain,
    kNothing
  };
  struct Transition;
  static const Transition kTransitions[];

  struct Key {
    uint64_t group;
    std::string_view name;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<std::string_view>()(key.name) ^ (key.group * 0x9e3779b97f4a7c15u);
    }
  };

  Stream* StreamFor(const Request& request);
  Stream* FindOrMake(const Request& request);
  void Apply(Stream* stream, Event event, const Message* answer, const Status& why);
  void Advance(Stream* stream);  // looks at a new front
  const Entry* MatchingEntry(Stream* stream, const Request& request);
  void Announce(Stream* stream);
  void Adopt(Stream* stream, const Message& agreed);
  void FinishFront(Stream* stream, Status status);
  void FailAll(Stream* stream, const Status& why);
  void DropProposal(Stream* stream);
  Status LossIn(const Group& group) const;  // Ok: none of its members is lost

  void OnNewName(Stream* stream);
  bool IsIdle(const Stream& stream) const;
  static bool IsIdle(const Bundle& bundle);
  bool IsForgotten(const Stream& stream) const;
  uint64_t IdleAt(uint64_t group, const PlanMember& item) const;
  void Drop(Stream* stream);
  void FreeBlock(const Stream& stream);

  Bundle* FindBundle(const Message& message);
  void Hold(Stream* stream);
  void Break(Bundle* bundle, bool tell);
  // Breaks each bundle that is being filled and of which this holds.
  template <typename Predicate>
  void BreakIf(Predicate is_due);
  void OnBundleEnd(Bundle* bundle, ExchangeEnd end, const Status& why);

  Options options_;
  LandingBlocks* blocks_;
  std::deque<std::unique_ptr<Stream>> streams_;
  std::unordered_map<Key, Stream*, KeyHash> by_key_;  // keys point into the streams' names
  std::map<std::pair<uint64_t, uint32_t>, std::unique_ptr<Bundle>> bundles_;  // by group, id
  std::vector<Bundle*> filling_;  // those with a held front: few, where there may be many bundles
  uint64_t holds_ = 0;            // fronts ever held by a bundle
  std::vector<std::pair<Rank, std::string>> lost_;
  std::vector<Start> startable_;
  std::vector<Ended> ended_;
  std::vector<Envelope> outbox_;
  uint64_t announced_ = 0;

  // Names that were dropped, and the patience they had: by hash, the later one stays.
  struct Returned {
    uint64_t hash = 0;
    uint64_t patience = 0;
  };
  std::array<Returned, 1024> returned_{};
  std::map<uint64_t, size_t> new_names_;  // by group, since the last look at it
  std::vector<const Group*> look_at_;
  std::vector<NameMemo*> forgotten_;
  uint64_t submissions_ = 0;
  uint32_t world_drops_ = 0;
  size_t dropped_bundles_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_AGREE_NEGOTIATOR_H_
