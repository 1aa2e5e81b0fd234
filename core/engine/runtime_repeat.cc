// An operation that repeats the one before, carried out where it is submitted.
//
// A program that averages a loss or a metric in each step submits the same small sum again and
// again, and waits for it at once. A pass over all stages costs several times as much as the sum.
// While nothing else is in flight only the steps of that one exchange are needed: this rank's
// begin, a look at those of its peers, and the sum. On the wire it is an exchange like any other;
// if some peer has not begun it becomes one on this rank, too.
#include <sched.h>

#include "core/base/processor.h"
#include "core/engine/runtime.h"

namespace covey {
namespace {

// After so many repeats a pass handles messages, losses and deadlines.
constexpr uint32_t kMostRepeats = 64;
// Looks for the begins of peers: the first follow one another at once, later ones after a pause.
constexpr int kCloseLooks = 32;
constexpr int kLooks = 128;
// Looks after yields take no longer: other threads of this process may wait for the progress lock.
constexpr Time kLongestYields = 100 * kMicrosecond;

}  // namespace

bool Runtime::MayRepeat() {
  // engine-E6: no stage that a pass would run has anything to do, as far as is known without it.
  return repeats_ < kMostRepeats && timeline_ == nullptr && lost_.empty() && join_.IsQuiet() &&
         Idle() && !transport_->HasMail();
}

Time Runtime::Repeat(Operation* operation, int yields) {
  ++repeats_;
  Stream* stream = negotiator_.streams().ToRepeat(*operation);
  Exchange* x = nullptr;
  if (stream != nullptr) x = executor_.TakeRepeat(operation, &stream->channel, stream->occurrence);
  if (x == nullptr) {
    TakeNow(operation);
    return 0;
  }
  ++counters_.repeats_begun;
  stall_.OnRepeat(operation->kind, operation->name);
  if (options_.observer != nullptr)
    options_.observer->OnBegin(transport_->rank(), IdOf(*stream), x->entry);
  executor_.BeginRepeat(x);
  Time waited = 0;
  if (!AllBegin(x, yields, &waited) || !executor_.FinishRepeat(x, waited)) {
    const Time now = options_.clock->Now();
    operation->submitted_at = now;
    // engine-E7: it has begun: the passes to come find it as if a pass had begun it.
    negotiator_.Submit(operation);
    negotiator_.startable().clear();
    executor_.Resume(x, stream, now);
    return waited;
  }
  if (options_.observer != nullptr) {
    options_.observer->OnExchangeEnd(transport_->rank(), IdOf(*stream), Outcome::kDone);
    options_.observer->OnEnd(transport_->rank(), *operation, Status::Ok());
  }
  negotiator_.streams().OnRepeated(stream);
  executor_.Recycle(x);
  ++counters_.ended;
  ++counters_.repeats_done;
  finished_.push_back({operation, Status::Ok()});
  queue_->Finish(&finished_);
  return waited;
}

// Whether all members begin within a few looks.
bool Runtime::AllBegin(Exchange* x, int yields, Time* waited) {
  bool all = executor_.AllHaveBegun(x);
  if (!all && yields > 0) {
    const Time began = options_.clock->Now();
    for (int i = 0; !all && i < yields && *waited < kLongestYields; ++i) {
      sched_yield();
      all = executor_.AllHaveBegun(x);
      *waited = options_.clock->Now() - began;
    }
    return all;
  }
  Time since = 0;
  for (int looks = 0; !all && looks < kLooks; ++looks) {
    if (looks == kCloseLooks) since = options_.clock->Now();
    if (looks >= kCloseLooks) Pause();
    all = executor_.AllHaveBegun(x);
  }
  if (since != 0) *waited = options_.clock->Now() - since;
  return all;
}

// The stages of a pass that an operation needs to begin.
void Runtime::TakeNow(Operation* operation) {
  const Time now = options_.clock->Now();
  operation->submitted_at = now;
  stall_.OnSubmit(operation->kind, operation->name, now);
  Submit(operation);
  bool moved = false;
  StartAndProgress(now, &moved);
  FinishEnded(&moved);
}

}  // namespace covey
