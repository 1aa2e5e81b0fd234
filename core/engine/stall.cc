#include "core/engine/stall.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace covey {
namespace {

constexpr Time kPatience = 2 * kSecond;  // a watchdog that cannot get the interpreter answers never

std::string Seconds(Time t) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", static_cast<double>(t) / kSecond);
  return text;
}

std::string Ranks(const std::vector<int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

void Stall::OnSubmit(Kind kind, const std::string& name, Time now) {
  last_kind_ = kind;
  last_name_ = name;
  last_submit_ = now;
}

void Stall::OnRepeat(Kind kind, const std::string& name) {
  last_kind_ = kind;
  last_name_ = name;
}

std::string Stall::LastOperation(Time now) const {
  if (last_submit_ == 0) return "nothing submitted yet";
  const std::string name = last_name_.empty()
                               ? "unnamed " + std::string(NameOf(last_kind_))
                               : std::string(NameOf(last_kind_)) + " '" + last_name_ + "'";
  return "last operation " + name + ", " + Seconds(now - last_submit_) + " ago";
}

void Stall::OnMissing(const OperationId& id, const std::string& what,
                      const std::vector<int32_t>& missing, Time waited,
                      std::vector<Envelope>* outbox) {
  const bool me = std::find(missing.begin(), missing.end(), ToInt(self_)) != missing.end();
  const std::string since = waited > 0 ? " for " + Seconds(waited) : "";
  log_->Write(LogLevel::kWarn,
              me ? "other ranks wait" + since + " for " + what + ", which " + Ranks(missing) +
                       " (this is rank " + std::to_string(ToInt(self_)) + ") did not submit"
                 : "waiting" + since + " for " + Ranks(missing) + " to submit " + what);
  Ask(id, missing, outbox);
}

void Stall::OnSlow(const OperationId& id, const std::string& what,
                   const std::vector<int32_t>& awaited, Time runs, std::vector<Envelope>* outbox) {
  log_->Write(LogLevel::kWarn, what + " runs for " + Seconds(runs) + " and waits for " +
                                   Ranks(awaited) + ", in the middle of it");
  Ask(id, awaited, outbox);
}

void Stall::Ask(const OperationId& id, const std::vector<int32_t>& ranks,
                std::vector<Envelope>* outbox) {
  for (int32_t rank : ranks) {
    Message question;
    question.type = MessageType::kWhere;
    question.id = id;
    outbox->push_back({Rank{rank}, std::move(question)});
  }
}

void Stall::OnQuestion(Rank from, const OperationId& id) {
  const std::lock_guard lock(mutex_);
  for (const Question& q : questions_)
    if (q.from == from) return;
  questions_.push_back({from, id});
  unseen_question_ = true;
  asked_.notify_all();
}

void Stall::OnAnswer(Rank from, const std::string& text) {
  log_->Write(LogLevel::kWarn, "rank " + std::to_string(ToInt(from)) + ": " + text);
}

void Stall::OnTick(Time now, std::vector<Envelope>* outbox) {
  const std::lock_guard lock(mutex_);
  if (questions_.empty()) return;
  bool overdue = false;
  for (Question& q : questions_) {
    if (q.asked_at == 0) q.asked_at = now;
    overdue |= now - q.asked_at >= kPatience;
  }
  if (!has_told_ && !overdue) return;
  Message answer;
  answer.type = MessageType::kHere;
  answer.text = LastOperation(now) + "; now at " +
                (has_told_ ? told_ : "an unknown line (the interpreter is busy)");
  for (const Question& q : questions_) {
    answer.id = q.id;
    outbox->push_back({q.from, answer});
  }
  questions_.clear();
  has_told_ = false;
}

int Stall::AwaitQuestion(Time timeout_ns) {
  std::unique_lock lock(mutex_);
  asked_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                  [&] { return unseen_question_ || closed_; });
  if (closed_) return -1;
  return std::exchange(unseen_question_, false) ? 1 : 0;
}

void Stall::Tell(const std::string& where) {
  const std::lock_guard lock(mutex_);
  told_ = where;
  has_told_ = true;
}

void Stall::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  asked_.notify_all();
}

}  // namespace covey
