#include "core/engine/far_window.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace covey {

FarWindow::FarWindow(Options options)
    : TrainerWindow({.words = &words_,
                     .at = block_,
                     .base = options.model,
                     .model = options.model,
                     .is_copy = options.is_copy,
                     .length_bytes = options.length_bytes,
                     .version = options.version}),
      options_(std::move(options)),
      members_(options_.group->members.size()) {}

void FarWindow::AddRounds(int64_t part, Published published) {
  const std::lock_guard lock(mutex_);
  published_.emplace(part, std::move(published));
  if (AnswerAll()) Stir();
}

void FarWindow::DropRounds(int64_t part) {
  const std::lock_guard lock(mutex_);
  published_.erase(part);
}

// ---- This rank's looks --------------------------------------------------------------------------

WindowState FarWindow::Look(int32_t member, std::span<std::byte> model, int64_t* version) {
  FarAnswer seen;
  {
    const std::lock_guard lock(mutex_);
    const FarQuestion question{.begun = begun(), .wants_model = !model.empty()};
    if (member != ToInt(options_.group->my_index))
      Ask(member, question, model, &seen);
    else if (!See(question, model, &seen))
      seen.state = WindowState::kChanging;
  }
  *version = seen.version;
  if (seen.state == WindowState::kAsked) Stir();
  return seen.state;
}

WindowState FarWindow::LookAtPublished(int32_t member, int64_t part, std::span<std::byte> model,
                                       FarAnswer* seen) {
  {
    const std::lock_guard lock(mutex_);
    Ask(member, {.part = part, .begun = begun(), .wants_model = true}, model, seen);
  }
  if (seen->state == WindowState::kAsked) Stir();
  return seen->state;
}

// Takes the member's answer, if that was to this question; else asks.
void FarWindow::Ask(int32_t member, const FarQuestion& question, std::span<std::byte> model,
                    FarAnswer* seen) {
  Member& of = At(member);
  *seen = {.state = of.is_closed ? WindowState::kClosed : WindowState::kLost};
  if (of.is_closed || of.is_lost) return;
  const Time now = options_.clock->Now();
  const bool is_fresh = now - std::exchange(of.looked_at, now) <= kKept;
  // train-T24: memory that was at rest when the question was asked may be written by the answer.
  if (std::exchange(of.has_come, false) && is_fresh && of.question == question) {
    *seen = of.answer;
    std::copy(of.model.begin(), of.model.end(), model.begin());
    return;
  }
  seen->state = WindowState::kAsked;
  if (std::exchange(of.is_asked, true)) return;
  of.question = question;
  Send(member, {.kind = FarLook::Kind::kAsk, .question = question, .answer = {}});
}

void FarWindow::Leave() {
  Hide();
  const std::lock_guard lock(mutex_);
  has_left_ = true;
  published_.clear();
  for (int32_t member = 0; member < options_.group->size(); ++member) {
    At(member).asks.reset();
    if (member != ToInt(options_.group->my_index)) Send(member, {.question = {}, .answer = {}});
  }
  Stir();
}

bool FarWindow::HaveAllLeft() {
  const std::lock_guard lock(mutex_);
  for (int32_t member = 0; member < options_.group->size(); ++member) {
    const bool is_there = !At(member).is_closed && !At(member).is_lost;
    if (member != ToInt(options_.group->my_index) && is_there) return false;
  }
  return messages_.empty();
}

// ---- The looks of others ------------------------------------------------------------------------

void FarWindow::OnEven() {
  if (AnswerAll()) Stir();
}

bool FarWindow::AnswerAll() {
  bool has_answered = false;
  for (int32_t member = 0; member < options_.group->size(); ++member)
    has_answered |= At(member).asks.has_value() && Answer(member);
  return has_answered;
}

// False: it waits.
bool FarWindow::Answer(int32_t member) {
  const FarQuestion question = *At(member).asks;
  CountedBytes model;
  if (question.wants_model) model = CountedBytes::Uninitialized(options_.length_bytes);
  FarLook look{.kind = FarLook::Kind::kAnswer, .question = question, .answer = {}};
  if (!See(question, {model.data(), model.size()}, &look.answer)) return false;
  At(member).asks.reset();
  if (look.answer.state != WindowState::kWhole) model = {};
  Send(member, look, std::move(model));
  return true;
}

// False: the model is not to be seen now.
bool FarWindow::See(const FarQuestion& question, std::span<std::byte> model, FarAnswer* seen) {
  uint64_t packed = 0;
  SeqLock::Found found = window().Peek(own().base, {}, {}, &packed);
  const TrainerMark told = TrainerMark::Unpacked(packed);
  seen->version = static_cast<int64_t>(told.version);
  seen->state = static_cast<WindowState>(found);
  if (found == SeqLock::Found::kClosed) return true;
  if (question.part != FarQuestion::kInPlace) return SeePublished(question, model, seen);
  if (!question.wants_model) {
    if (found == SeqLock::Found::kNothing) seen->state = WindowState::kWhole;
    return true;
  }
  void* const to[] = {model.data()};
  const uint64_t lengths_bytes[] = {model.size()};
  found = window().Peek(own().base, to, lengths_bytes, &packed);
  seen->state = static_cast<WindowState>(found);
  // train-T19: where the rank that asks has come, too, that memory may be written.
  const bool may_be_written = told.waits && told.IsBehind(question.begun);
  if (!may_be_written && found != SeqLock::Found::kChanging) return true;
  words_.Store(WantedAt(), 1);
  return false;
}

bool FarWindow::SeePublished(const FarQuestion& question, std::span<std::byte> model,
                             FarAnswer* seen) {
  const auto rounds = published_.find(question.part);
  if (rounds == published_.end()) return false;
  const Status found = rounds->second(model, &seen->step);
  const bool is_there = found.ok() && seen->step > 0;
  seen->state = is_there ? WindowState::kWhole : WindowState::kNothing;
  return true;
}

// ---- The network --------------------------------------------------------------------------------

void FarWindow::Send(int32_t to, const FarLook& look, CountedBytes model) {
  messages_.push_back({.to = to, .bytes = look.Head(), .body = Slice(std::move(model))});
}

void FarWindow::OnMessage(int32_t from, Slice message, Time) {
  FarLook look;
  if (!FarLook::Decode({message.begin(), message.end()}, &look)) return;
  const std::lock_guard lock(mutex_);
  Member& of = At(from);
  const bool has_model = look.question.wants_model && look.answer.state == WindowState::kWhole;
  switch (look.kind) {
    case FarLook::Kind::kAsk:
      if (has_left_) return;
      of.asks = look.question;
      Answer(from);
      break;
    case FarLook::Kind::kAnswer:
      if (!of.is_asked || look.question != of.question ||
          look.answer.model.size() != (has_model ? options_.length_bytes : 0))
        return;
      of.is_asked = false;
      of.has_come = true;
      of.model.assign(look.answer.model.begin(), look.answer.model.end());
      of.answer = look.answer;
      of.answer.model = {};
      break;
    case FarLook::Kind::kClosed:
      of.is_closed = true;
      of.asks.reset();
      break;
  }
}

void FarWindow::OnLoss(int32_t member) {
  const std::lock_guard lock(mutex_);
  At(member).is_lost = true;
  At(member).asks.reset();
}

ChannelPort::Pass FarWindow::Advance(Time, bool) {
  const std::lock_guard lock(mutex_);
  Pass pass;
  pass.messages = std::exchange(messages_, {});
  return pass;
}

}  // namespace covey
