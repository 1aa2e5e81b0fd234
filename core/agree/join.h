// The member's half of join (agree-N10): ranks that have run out of data, and the rank that keeps
// them in step.
//
// A rank that joins has nothing in flight and submits nothing more; its engine does, on its behalf.
// The lowest rank that has not joined *leads*: every operation of the world it has in flight, and
// every further one, it also tells the joined ranks (SHADOW), and those take part by a *proxy
// request*, with the reduction's identity element, in-band like all members. Occurrences thus stay
// counted alike everywhere, nothing has to be broken, and a rank may hear of the same occurrence
// from two leaders (when the first joins too): it takes part once. A joined rank refuses
// the kinds whose results only a user can receive; that is an error on every rank.
//
// Once all have joined, nothing is in flight anywhere, and all ranks go on as before.
//
// Sans-IO: submissions and messages in; envelopes, proxy requests and ends out.
#ifndef COVEY_CORE_AGREE_JOIN_H_
#define COVEY_CORE_AGREE_JOIN_H_

#include <memory>
#include <vector>

#include "core/agree/message.h"
#include "core/agree/stream.h"

namespace covey {

class Negotiator;

class Join {
 public:
  explicit Join(Rank self);
  ~Join();

  // The user's join. Ends with `rows` = {the last rank that joined}.
  void Submit(Request* join);
  // The user has asked to join, and that waits for all of the world that is in flight here. Nothing
  // more of it comes, so no bundle need be held for the rest.
  bool AwaitsWorld() const { return join_ != nullptr && !said_; }
  // Says JOIN as soon as nothing of the world is in flight here.
  void Progress(const Negotiator& negotiator, Time now);
  // No rank, as far as is known here, has joined or is about to.
  bool IsQuiet() const { return join_ == nullptr && !said_ && joined_.empty(); }
  // Why `request` cannot be submitted now; Ok: it can.
  Status Check(const Request& request) const;
  // `stream` has just got a request of this rank's user.
  void OnSubmit(const Stream& stream);

  void OnJoined(const Message& message, const Negotiator& negotiator);
  void OnAllJoined(const Message& message);
  // Occurrences told of by ranks that had dropped something less, or more, are of another count.
  void OnDrop(uint32_t drops) { drops_ = drops; }
  // The request by which this rank takes part, owned here until OnProxyEnded; null: it did so
  // before.
  Request* OnShadow(const Message& message, const Negotiator& negotiator, Time now);
  void OnProxyEnded(Request* proxy);
  // A rank is lost. It may have left because all had joined, which this rank is about to hear: one
  // that waits for nothing else gives that some time. Else as Abort.
  void OnLoss(const Status& why, Time now);
  // Ends a join in progress, and every later one: a rank is lost, or this one shuts down.
  void Abort(const Status& why);

  std::vector<Envelope>& outbox() { return outbox_; }
  std::vector<EndedRequest>& ended() { return ended_; }

 private:
  struct ProxyRequest;

  bool Leads() const;
  void Tell(const Stream& stream, size_t index);

  Rank self_;
  Request* join_ = nullptr;  // in progress
  bool said_ = false;        // JOIN
  uint32_t drops_ = 0;       // of the world, by this rank
  Status aborted_;           // why no join can end any more
  Time abort_at_ = kNever;   // the one in progress, for that
  std::vector<int32_t> joined_;
  std::vector<std::unique_ptr<ProxyRequest>> proxies_;
  std::vector<Envelope> outbox_;
  std::vector<EndedRequest> ended_;
};

}  // namespace covey
#endif  // COVEY_CORE_AGREE_JOIN_H_
