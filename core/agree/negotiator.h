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
//     then sees the void (or two different entries) in the begin headers, no member has written
//     user memory, and all announce.
//  agree-N9 landing space is reserved before ANNOUNCE and adopted at AGREED, or the operation is
//      refused.
//  agree-N11 after the loss of a member its groups are broken: operations that cannot finish end
//      kAborted, naming the rank.
#ifndef COVEY_CORE_AGREE_NEGOTIATOR_H_
#define COVEY_CORE_AGREE_NEGOTIATOR_H_

#include <string>
#include <utility>
#include <vector>

#include "core/agree/bundle_table.h"
#include "core/agree/landing.h"
#include "core/agree/message.h"
#include "core/agree/retire.h"
#include "core/agree/stream_table.h"

namespace covey {

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
  enum class ExchangeEnd : uint8_t { kDone, kVoid, kAborted };

  // `blocks` outlives the negotiator.
  Negotiator(Options options, LandingBlocks* blocks)
      : options_(std::move(options)), blocks_(blocks), streams_(options_.self, options_.retire) {}

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
  // Breaks bundles by age (agree-N6). Nothing changes before bundles().NextDeadline().
  void OnTick(Time now);
  // Ends every operation that is not in an exchange (shutdown).
  void AbortAll(const Status& why);

  // Obligations: the runtime executes and clears them.
  std::vector<Start>& startable() { return startable_; }
  std::vector<EndedRequest>& ended() { return ended_; }
  std::vector<Envelope>& outbox() { return outbox_; }

  StreamTable& streams() { return streams_; }
  const StreamTable& streams() const { return streams_; }
  const BundleTable& bundles() const { return bundles_; }
  uint32_t world_drops() const { return world_drops_; }  // DROPs of the world so far
  uint64_t announced() const { return announced_; }      // ANNOUNCE messages ever sent

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

  void Apply(Stream* stream, Event event, const Message* answer, const Status& why);
  void Advance(Stream* stream);  // looks at a new front
  const Entry* MatchingEntry(Stream* stream, const Request& request);
  void Announce(Stream* stream);
  void Adopt(Stream* stream, const Message& agreed);
  void FinishFront(Stream* stream, Status status);
  void FailAll(Stream* stream, const Status& why);
  void DropProposal(Stream* stream);
  Status LossIn(const Group& group) const;  // Ok: none of its members is lost

  bool IsIdle(const Stream& stream) const;
  bool IsForgotten(const Stream& stream) const;
  uint64_t IdleAt(uint64_t group, const PlanMember& item) const;
  void Drop(Stream* stream);
  void FreeBlock(const Stream& stream);

  void Hold(Stream* stream);
  void Break(Bundle* bundle, bool tell);
  // Breaks each bundle that is being filled and of which this holds.
  template <typename Predicate>
  void BreakIf(Predicate is_due);
  void OnBundleEnd(Bundle* bundle, ExchangeEnd end, const Status& why);

  Options options_;
  LandingBlocks* blocks_;
  StreamTable streams_;
  BundleTable bundles_;
  std::vector<std::pair<Rank, std::string>> lost_;
  std::vector<Start> startable_;
  std::vector<EndedRequest> ended_;
  std::vector<Envelope> outbox_;
  uint64_t announced_ = 0;
  uint32_t world_drops_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_AGREE_NEGOTIATOR_H_
