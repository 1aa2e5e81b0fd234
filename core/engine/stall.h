// The ranks that an operation waits for: turns "not begun for a while" into sentences that name the
// operation, the ranks, and the Python line they stand on.
//
// Sans-IO but for its log: facts and time in, log lines and envelopes out. A rank that waits asks
// the missing ranks where they are (kWhere); their adapter's watchdog answers through Tell (kHere).
//
// The questions are the one thing shared with another thread (the adapter's watchdog): asked() and
// Tell are any thread's, the rest the holder of the progress lock's.
#ifndef COVEY_CORE_ENGINE_STALL_H_
#define COVEY_CORE_ENGINE_STALL_H_

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "core/agree/message.h"
#include "core/base/log.h"

namespace covey {

class Stall {
 public:
  Stall(Rank self, Log* log) : self_(self), log_(log) {}

  // Something was submitted here; `what` as it appears in answers.
  void OnSubmit(Kind kind, const std::string& name, Time now);
  // The same without a look at the clock; the next pass says about when it was.
  void OnRepeat(Kind kind, const std::string& name);
  void OnRepeats(Time now) { last_submit_ = now; }

  // `missing` have not submitted `what` for `waited`: says so, and asks them where they are.
  void OnMissing(const OperationId& id, const std::string& what,
                 const std::vector<int32_t>& missing, Time waited, std::vector<Envelope>* outbox);
  // All have begun `what`, which runs; `awaited` are behind in it. Says so, and asks them likewise.
  void OnSlow(const OperationId& id, const std::string& what, const std::vector<int32_t>& awaited,
              Time runs, std::vector<Envelope>* outbox);
  void OnQuestion(Rank from, const OperationId& id);
  void OnAnswer(Rank from, const std::string& text);
  // Answers open questions once the watchdog has told, or after `patience` without it.
  void OnTick(Time now, std::vector<Envelope>* outbox);

  // Watchdog: waits until asked (1), for at most timeout (0), or until Close (-1).
  int AwaitQuestion(Time timeout_ns);
  void Tell(const std::string& where);
  void Close();

  std::string LastOperation(Time now) const;

 private:
  struct Question {
    Rank from;
    OperationId id;
    Time asked_at = 0;  // 0 = not yet seen by OnTick
  };

  static void Ask(const OperationId& id, const std::vector<int32_t>& ranks,
                  std::vector<Envelope>* outbox);

  Rank self_;
  Log* log_;
  Kind last_kind_ = Kind::kBarrier;
  std::string last_name_;
  Time last_submit_ = 0;

  std::mutex mutex_;
  std::condition_variable asked_;
  // Protected by mutex_.
  std::vector<Question> questions_;
  std::string told_;
  bool has_told_ = false;
  bool unseen_question_ = false;
  bool closed_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_STALL_H_
