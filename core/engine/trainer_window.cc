#include "core/engine/trainer_window.h"

namespace covey {

TrainerMark TrainerMark::Unpacked(uint64_t packed) {
  const uint64_t rest = packed / kCounted;
  return {.version = rest / 2, .exchanges = packed % kCounted, .waits = rest % 2 == 1};
}

uint64_t TrainerMark::Packed() const {
  return (2 * version + (waits ? 1 : 0)) * kCounted + exchanges % kCounted;
}

bool TrainerMark::IsBehind(uint64_t begun) const {
  // train-T19: no two are further apart than one exchange.
  return (exchanges - begun) % kCounted >= kCounted / 2;
}

TrainerWindow::TrainerWindow(const Own& own) : own_(own) {
  mark_.version = static_cast<uint64_t>(own.version);
  window().Open({});
  window().EndChange(mark_.Packed());  // A member that is lost has not closed it.
  if (takes_copies()) OpenOdd();
}

// The mark, and with it what lies there, if that is this rank's model.
void TrainerWindow::Put(int64_t version) {
  mark_.version = static_cast<uint64_t>(version);
  if (!is_there_) return window().Tell(mark_.Packed());
  window().EndChange(mark_.Packed());
  OnEven();
}

void TrainerWindow::OpenOdd() {
  const SeqLock::Span model{static_cast<uint64_t>(own_.model - own_.base), own_.length_bytes};
  window().BeginChange();
  window().Open({&model, 1});
}

void TrainerWindow::Show(int64_t version) {
  const auto held = Hold();
  if (is_there_ || own_.model == nullptr || own_.is_copy) return;
  OpenOdd();
  is_there_ = true;
  Put(version);
}

void TrainerWindow::ShowCopy(int64_t version) {
  const auto held = Hold();
  is_there_ = true;
  Put(version);
}

void TrainerWindow::HideCopy() {
  const auto held = Hold();
  if (!own_.is_copy) return;
  Change();
  is_there_ = false;
}

bool TrainerWindow::IsWanted() {
  const auto held = Hold();
  // train-T23: a copy is made for those that ask.
  return takes_copies() && own_.words->Load(WantedAt()) != 0;
}

void TrainerWindow::ClearWanted() {
  const auto held = Hold();
  own_.words->Store(WantedAt(), 0);
}

void TrainerWindow::Change() {
  if (is_there_) window().BeginChange();
}

void TrainerWindow::Begin() {
  const auto held = Hold();
  Change();
}

void TrainerWindow::End(int64_t version) {
  const auto held = Hold();
  Put(version);
}

void TrainerWindow::Wait() {
  const auto held = Hold();
  mark_.waits = true;
  Put(static_cast<int64_t>(mark_.version));
}

void TrainerWindow::EndWait(bool has_mean) {
  const auto held = Hold();
  if (!mark_.waits) return;
  Change();
  mark_.waits = false;
  if (has_mean)
    ++mark_.exchanges;
  else
    Put(static_cast<int64_t>(mark_.version));
}

void TrainerWindow::CountMean() {
  const auto held = Hold();
  Change();
  ++mark_.exchanges;
  Put(static_cast<int64_t>(mark_.version));
}

void TrainerWindow::Tell(int64_t version, bool is_there) {
  const auto held = Hold();
  if (!is_there) {
    Change();
    is_there_ = false;
  }
  if (mark_.version == static_cast<uint64_t>(version)) return;
  Change();
  Put(version);
}

void TrainerWindow::Hide() {
  const auto held = Hold();
  window().Close();
  OnEven();
}

}  // namespace covey
