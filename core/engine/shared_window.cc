#include "core/engine/shared_window.h"

namespace covey {
namespace {

TrainerWindow::Own OwnOf(const SharedWindow::Options& options) {
  std::byte* base = options.transport->Base(options.transport->rank());
  return {.words = options.transport->words(),
          .at = reinterpret_cast<uint64_t*>(base + options.offset),
          .base = base,
          .model = options.model,
          .is_copy = options.is_copy,
          .length_bytes = options.length_bytes,
          .version = options.version};
}

}  // namespace

// The words of its own are followed by one for each member.
size_t SharedWindow::BlockBytes(int32_t members) {
  return kOwnBytes + sizeof(uint64_t) * static_cast<size_t>(members);
}

SharedWindow::SharedWindow(const Options& options)
    : TrainerWindow(OwnOf(options)), options_(options) {}

WindowState SharedWindow::LookAt(int32_t member, std::span<void* const> to,
                                 std::span<const uint64_t> lengths, TrainerMark* mark) const {
  const auto index = static_cast<size_t>(member);
  uint64_t packed = 0;
  const WindowState state = LookAtWindow(options_.transport, options_.group->members[index],
                                         offsets_[index], to, lengths, &packed);
  *mark = TrainerMark::Unpacked(packed);
  return state;
}

WindowState SharedWindow::Look(int32_t member, std::span<std::byte> model, int64_t* version) {
  void* const to[] = {model.data()};
  const uint64_t lengths_bytes[] = {model.size()};
  const size_t spans = model.empty() ? 0 : 1;
  TrainerMark mark;
  LookAt(member, {}, {}, &mark);
  // train-T19: what may be written now is not read.
  if (spans > 0 && mark.waits && mark.IsBehind(begun())) {
    *version = static_cast<int64_t>(mark.version);
    return WindowState::kChanging;
  }
  const WindowState state = LookAt(member, {to, spans}, {lengths_bytes, spans}, &mark);
  *version = static_cast<int64_t>(mark.version);
  if (model.empty()) return state == WindowState::kNothing ? WindowState::kWhole : state;
  // train-T19: where this rank has come, too, that memory may be written.
  const bool may_be_written = state == WindowState::kWhole && mark.waits && mark.IsBehind(begun());
  return may_be_written ? WindowState::kChanging : state;
}

bool SharedWindow::IsBehind(int32_t member) {
  TrainerMark of;
  LookAt(member, {}, {}, &of);
  return of.IsBehind(mark().exchanges);
}

uint64_t* SharedWindow::OwnAt(int32_t of) const {
  const auto index = static_cast<size_t>(of);
  std::byte* block = options_.transport->Base(options_.group->members[index]) + offsets_[index];
  return reinterpret_cast<uint64_t*>(block);
}

uint64_t* SharedWindow::LeftAt(int32_t member, int32_t of) const {
  return OwnAt(of) + kOwnBytes / sizeof(uint64_t) + member;
}

void SharedWindow::Want(int32_t member) {
  options_.transport->words()->Store(OwnAt(member) + SeqLock::LengthBytes(1) / sizeof(uint64_t), 1);
}

void SharedWindow::Leave() {
  Hide();
  const int32_t self = ToInt(options_.group->my_index);
  for (int32_t of = 0; of < options_.group->size(); ++of)
    if (of != self) options_.transport->words()->Store(LeftAt(self, of), 1);
}

bool SharedWindow::HaveAllLeft() {
  const int32_t self = ToInt(options_.group->my_index);
  for (int32_t member = 0; member < options_.group->size(); ++member) {
    const Rank rank = options_.group->members[static_cast<size_t>(member)];
    if (member == self || options_.transport->IsLost(rank)) continue;
    if (options_.transport->words()->Load(LeftAt(member, self)) == 0) return false;
  }
  return true;
}

}  // namespace covey
