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

// Its words are followed by one for each member, and by one for those that ask.
size_t TrainerWindow::BlockBytes(int32_t members) {
  return SeqLock::LengthBytes(1) + sizeof(uint64_t) * (static_cast<size_t>(members) + 1);
}

TrainerWindow::TrainerWindow(const Options& options) : options_(options) {
  mark_.version = static_cast<uint64_t>(options.version);
  Own().Open({});
  Own().EndChange(mark_.Packed());  // A member that is lost has not closed it.
  if (takes_copies()) OpenOdd();
}

SeqLock TrainerWindow::Own() const {
  return WindowAt(options_.transport, options_.transport->rank(), options_.offset);
}

// The mark, and with it what lies there, if that is this rank's model.
void TrainerWindow::Put(int64_t version) {
  mark_.version = static_cast<uint64_t>(version);
  if (is_there_)
    Own().EndChange(mark_.Packed());
  else
    Own().Tell(mark_.Packed());
}

void TrainerWindow::OpenOdd() {
  const SeqLock::Span model{options_.transport->OffsetOf(options_.model, options_.length_bytes),
                            options_.length_bytes};
  Own().BeginChange();
  Own().Open({&model, 1});
}

void TrainerWindow::Show(int64_t version) {
  if (is_there_ || options_.model == nullptr || options_.is_copy) return;
  OpenOdd();
  is_there_ = true;
  Put(version);
}

void TrainerWindow::ShowCopy(int64_t version) {
  is_there_ = true;
  Put(version);
}

void TrainerWindow::HideCopy() {
  if (!options_.is_copy) return;
  Begin();
  is_there_ = false;
}

bool TrainerWindow::IsWanted() const {
  // train-T23: a copy is made for those that ask.
  return takes_copies() &&
         options_.transport->words()->Load(WantedAt(ToInt(options_.group->my_index))) != 0;
}

void TrainerWindow::ClearWanted() {
  options_.transport->words()->Store(WantedAt(ToInt(options_.group->my_index)), 0);
}

void TrainerWindow::Want(int32_t member) {
  options_.transport->words()->Store(WantedAt(member), 1);
}

void TrainerWindow::Begin() {
  if (is_there_) Own().BeginChange();
}

void TrainerWindow::End(int64_t version) { Put(version); }

void TrainerWindow::Wait() {
  mark_.waits = true;
  Put(static_cast<int64_t>(mark_.version));
}

void TrainerWindow::EndWait(bool has_mean) {
  if (!mark_.waits) return;
  Begin();
  mark_.waits = false;
  if (has_mean)
    ++mark_.exchanges;
  else
    Put(static_cast<int64_t>(mark_.version));
}

void TrainerWindow::CountMean() {
  Begin();
  ++mark_.exchanges;
  Put(static_cast<int64_t>(mark_.version));
}

void TrainerWindow::Tell(int64_t version, bool is_there) {
  if (!is_there) {
    Begin();
    is_there_ = false;
  }
  if (mark_.version == static_cast<uint64_t>(version)) return;
  Begin();
  Put(version);
}

void TrainerWindow::Hide() { Own().Close(); }

WindowState TrainerWindow::Look(int32_t member, std::span<std::byte> model,
                                int64_t* version) const {
  const auto index = static_cast<size_t>(member);
  void* const to[] = {model.data()};
  const uint64_t lengths_bytes[] = {model.size()};
  const size_t spans = model.empty() ? 0 : 1;
  const uint64_t begun = mark_.exchanges + (mark_.waits ? 1 : 0);
  uint64_t packed = 0;
  LookAtWindow(options_.transport, options_.group->members[index], offsets_[index], {}, {},
               &packed);
  // train-T19: what may be written now is not read.
  const TrainerMark before = TrainerMark::Unpacked(packed);
  if (spans > 0 && before.waits && before.IsBehind(begun)) {
    *version = static_cast<int64_t>(before.version);
    return WindowState::kChanging;
  }
  const WindowState state =
      LookAtWindow(options_.transport, options_.group->members[index], offsets_[index], {to, spans},
                   {lengths_bytes, spans}, &packed);
  const TrainerMark mark = TrainerMark::Unpacked(packed);
  *version = static_cast<int64_t>(mark.version);
  if (model.empty()) return state == WindowState::kNothing ? WindowState::kWhole : state;
  // train-T19: where this rank has come, too, that memory may be written.
  const bool may_be_written = state == WindowState::kWhole && mark.waits && mark.IsBehind(begun);
  return may_be_written ? WindowState::kChanging : state;
}

bool TrainerWindow::IsBehind(int32_t member) const {
  const auto index = static_cast<size_t>(member);
  uint64_t packed = 0;
  LookAtWindow(options_.transport, options_.group->members[index], offsets_[index], {}, {},
               &packed);
  return TrainerMark::Unpacked(packed).IsBehind(mark_.exchanges);
}

uint64_t* TrainerWindow::LeftAt(int32_t member, int32_t of) const {
  const auto index = static_cast<size_t>(of);
  std::byte* block = options_.transport->Base(options_.group->members[index]) + offsets_[index];
  return reinterpret_cast<uint64_t*>(block + SeqLock::LengthBytes(1)) + member;
}

void TrainerWindow::Leave() {
  Hide();
  const int32_t self = ToInt(options_.group->my_index);
  for (int32_t of = 0; of < options_.group->size(); ++of)
    if (of != self) options_.transport->words()->Store(LeftAt(self, of), 1);
}

bool TrainerWindow::HaveAllLeft() const {
  const int32_t self = ToInt(options_.group->my_index);
  for (int32_t member = 0; member < options_.group->size(); ++member) {
    const Rank rank = options_.group->members[static_cast<size_t>(member)];
    if (member == self || options_.transport->IsLost(rank)) continue;
    if (options_.transport->words()->Load(LeftAt(member, self)) == 0) return false;
  }
  return true;
}

}  // namespace covey
