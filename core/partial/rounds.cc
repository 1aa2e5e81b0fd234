#include "core/partial/rounds.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/partial/collect.h"
#include "core/partial/suspicion.h"

namespace covey {
Rounds::Rounds(const Options& options, const RoundMemory* memory, SharedAtomics* words)
    : self_(options.self),
      max_wait_(options.max_wait),
      memory_(memory),
      words_(words),
      kernels_(options.kernels),
      slot_(options.self, memory, words, options.kernels),
      eager_(options.self, memory, words, options.kernels),
      arrivals_(options.admission, memory, words),
      log_(memory, words, options.kernels),
      tiles_({.self = options.self,
              .average = options.average,
              .overdue = options.overdue,
              .kernels = options.kernels},
             memory, words),
      snapshots_(options.self, options.snapshot_overdue, memory, words, options.kernels),
      epoch_end_(options.self,
                 {.slot = &slot_, .arrivals = &arrivals_, .snapshots = &snapshots_, .log = &log_},
                 memory, words),
      skips_ahead_(options.skips_ahead) {}

uint64_t Rounds::executed() { return StateWord::Of(words_->Load(memory_->StateAt())).executed; }

Time Rounds::ended() { return static_cast<Time>(words_->Load(memory_->EndedAt())); }

uint64_t Rounds::Publish(std::span<const double> hypers) {
  if (memory_->models().on())
    return Arrive([&](uint64_t step) {
      const bool was_taken = slot_.Replace(step, hypers);
      // partial-W12b: offered progress that a version has taken counts from there on.
      if (std::exchange(has_offered_, false) && was_taken) base_ = begun_.data();
      eager_.Aim(OpenSpans());
    });
  return Arrive([&](uint64_t step) { slot_.Publish(step, hypers); });
}

uint64_t Rounds::Skip() {
  return Arrive([&](uint64_t step) { slot_.Skip(step); });
}

uint64_t Rounds::Arrive(const std::function<void(uint64_t)>& publish) {
  // partial-W6a: this rank has written its model, or will, where early copies would go.
  eager_.Forget();
  copies_early_ = false;
  if (epoch_end_.DropsStep()) return executed() + 1;
  uint64_t* word = memory_->MemberAt(self_);
  const MemberStatus status{words_->Load(word)};
  const bool has_models = memory_->models().on();
  if (status.finished()) step_ = std::max(step_, executed());  // versions were made without it
  step_ = has_models ? step_ + 1 : next_step();
  copies_early_ = true;
  publish(step_);
  // partial-W9: a late rank does not wait: this wakes the ranks that wait for it.
  if (!has_models && step_ <= executed()) words_->Ring(memory_->EventCountAt());
  if (status.finished()) words_->Store(word, status.word + 1);
  return step_;
}

uint64_t Rounds::next_step() const {
  // partial-W8a: an overdue rank goes on after the last version it has read, or stays late.
  return (skips_ahead_ || is_overdue_ ? std::max(step_, read_) : step_) + 1;
}

Found Rounds::Read(uint64_t version, std::span<void* const> to, RoundRecord* record) {
  const Found found = log_.Read(version, to, record, eager_.IsAimedAt(to) ? &eager_ : nullptr);
  if (!to.empty()) eager_.Forget();
  if (found != Found::kYes) return found;
  NoteApplied(version);
  if (record != nullptr) is_overdue_ = record->missing[static_cast<size_t>(self_)] > 0;
  return found;
}

void Rounds::NoteApplied(uint64_t version) {
  if (version <= read_) return;
  read_ = version;
  words_->Store(memory_->AppliedAt(self_), version);
}

void Rounds::OnSnapshot(uint64_t version) {
  NoteApplied(version);
  is_overdue_ = Suspicion::Of(words_->Load(memory_->SuspicionAt(self_))).overdue();
}

Time Rounds::Advance(Time now, bool* moved) {
  *moved = false;
  StateWord state = StateWord::Of(words_->Load(memory_->StateAt()));
  if (!state.fired) {
    // train-T18: what a version after the last one had would count for late ranks alone.
    if (state.executed >= last_) return kNever;
    const MemberStatus status{words_->Load(memory_->MemberAt(self_))};
    // partial-W10a: a rank that could give a snapshot may not have read the last version yet.
    const bool may_fire = !snapshots_.IsInNeed();
    const WaitingRank self{.step = may_fire ? step_ : 0,
                           .finished = may_fire && status.finished(),
                           .times = may_fire ? status.times() : 0,
                           .max_wait = max_wait_};
    const Arrivals::Answer answer = arrivals_.FireAt(state.version(), epoch_end_.lost(), self, now);
    if (answer.at > now) return answer.at;
    if (!may_fire) return kNever;
    *moved = true;
    if (!Fire(&state, answer)) return now;
  }
  // partial-W9a: time waited for a slow rank counts, whichever rank fires.
  arrivals_.OnFired(state.version(), max_wait_, now);
  Time until = kNever;
  words_->Store(memory_->PinAt(self_), state.buffer + 1);
  Work(state, now, &until, moved);
  words_->Store(memory_->PinAt(self_), 0);
  return until;
}

bool Rounds::Fire(StateWord* state, const Arrivals::Answer& answer) {
  StateWord fired = *state;
  fired.fired = true;
  fired.expired = answer.expired;
  fired.final = answer.final;
  fired.buffer = log_.FreeBuffer();
  // partial-W8: one exchange decides which member fires, also when max_wait is over.
  if (!words_->CompareExchange(memory_->StateAt(), state->Word(), fired.Word())) return false;
  *state = fired;
  ++counters_.fired;
  counters_.expired += answer.expired ? 1 : 0;
  words_->Ring(memory_->EventCountAt());
  return true;
}

void Rounds::Work(const StateWord& state, Time now, Time* until, bool* moved) {
  if (collected_.version != state.version()) {
    *moved = true;
    if (state.expired) arrivals_.OnExpired(state.version());
    if (!Collect(*memory_, words_, epoch_end_.lost(), state, &collected_.inclusions)) return;
    collected_.version = state.version();
  }
  EagerCopy* eager = WantsEager(state) ? &eager_ : nullptr;
  const Tiles::Outcome outcome = tiles_.Work(state, collected_.inclusions, eager, now, until);
  *moved |= outcome != Tiles::Outcome::kWaiting;
  *moved |= eager != nullptr && eager->Work(state);
  counters_.tiles += outcome == Tiles::Outcome::kWorked ? 1 : 0;
  if (outcome == Tiles::Outcome::kDone) End(state, now);
}

void Rounds::End(const StateWord& state, Time now) {
  UpdateSuspicion(*memory_, words_, state, collected_.inclusions);
  log_.Enter(state.version(), state.buffer);
  if (Close(state) && !memory_->models().on())
    words_->Store(memory_->EndedAt(), static_cast<uint64_t>(now));
}

// The rest of the end of a version that is in the log; false: another one did it.
bool Rounds::Close(const StateWord& state) {
  const StateWord next{.executed = state.version(), .final = state.final};
  // partial-W1: by exchange: a rank that was stopped here does not end the version again.
  if (!words_->CompareExchange(memory_->StateAt(), state.Word(), next.Word())) return false;
  words_->Ring(memory_->EventCountAt());
  return true;
}

// Models: only while the trainer waits for its next model; then no other thread writes open().
bool Rounds::WantsEager(const StateWord& state) {
  if (!memory_->models().on()) return state.version() == read_ + 1;
  if (!copies_early_) return false;
  const Inclusion& own = collected_.inclusions[static_cast<size_t>(self_)];
  return own.decision == Decision::kIn && own.Names(slot_.offered());
}

std::vector<void*> Rounds::OpenSpans() const {
  std::vector<void*> spans;
  for (const size_t offset : memory_->layout().offsets_bytes()) spans.push_back(open() + offset);
  return spans;
}

void Rounds::Merge(uint64_t version, std::span<void* const> to, Merged* merged) {
  MergeOf member{.self = self_, .own = slot_.offered()};
  if (eager_.IsAimedAt(to)) member.eager = &eager_;
  copies_early_ = false;
  const uint64_t last = executed();
  // partial-W12a: a rank that was superseded goes on from the newest version.
  if (memory_->models().HasSuperseded(member.own.step, last)) version = last;
  do {
    member.takes = version == epoch_end_.settled();
    // partial-W12b: progress counts only if no version has had the model. Looked at here: once a
    // version of all has passed it by no other takes it.
    member.base = slot_.offered().state == SlotState::kTaken ? nullptr : base_;
    if (covey::Merge(*memory_, words_, *kernels_, member, version, to, merged) == Found::kYes)
      break;
    // A member that has entered the next version in its place may have stopped before it said so.
    const StateWord state = StateWord::Of(words_->Load(memory_->StateAt()));
    if (state.fired && log_.Has(state.version())) Close(state);
    version = executed();
  } while (true);
  eager_.Forget();
  NoteBase(*merged, to);
  const uint64_t newest = executed();
  if (merged->late && memory_->models().LastSync(newest) >= member.own.step)
    step_ = std::max(step_, newest);
  merged->step = step_;
}

void Rounds::Begin() {
  begun_.assign(open(), open() + memory_->layout().length_bytes());
  base_ = begun_.data();
}

uint64_t Rounds::OfferAgain(std::span<const double> hypers) {
  const std::byte* model = open();
  begun_.assign(model, model + memory_->layout().length_bytes());
  const uint64_t before = step_;
  Publish(hypers);
  copies_early_ = false;
  has_offered_ = step_ > before;
  return step_;
}

// The model to train on from here: mostly the mean, which it holds.
void Rounds::NoteBase(const Merged& merged, std::span<void* const> to) {
  base_ = merged.mean;
  if (!merged.is_of_both) return std::vector<std::byte>().swap(begun_);
  base_ = nullptr;
  if (std::find(to.begin(), to.end(), nullptr) != to.end()) return;
  const RoundLayout& layout = memory_->layout();
  begun_.resize(layout.length_bytes());
  for (const RoundLayout::Tile& tile : layout.tiles()) {
    const size_t offset = tile.offset_bytes - layout.offsets_bytes()[tile.span];
    std::memcpy(begun_.data() + tile.offset_bytes,
                static_cast<const std::byte*>(to[tile.span]) + offset,
                tile.count * SizeOf(tile.dtype));
  }
  base_ = begun_.data();
}

bool Rounds::Peek(int32_t member, std::span<void* const> to, uint64_t* step) const {
  const SlotWord slot = SlotWord::Of(words_->Load(memory_->SlotAt(member)));
  *step = slot.step;
  if (slot.step == 0) return true;
  const RoundLayout& layout = memory_->layout();
  for (const RoundLayout::Tile& tile : layout.tiles())
    kernels_->copy(static_cast<std::byte*>(to[tile.span]) +
                       (tile.offset_bytes - layout.offsets_bytes()[tile.span]),
                   memory_->Buffer(member, slot.buffer) + tile.offset_bytes,
                   tile.count * SizeOf(tile.dtype), StoresOf(layout));
  // partial-W10: taken or not, it lies there until the owner offers another buffer.
  return SlotWord::Of(words_->Load(memory_->SlotAt(member))).step == slot.step;
}

// Members that still wait for the flush count how often it has finished.
void Rounds::GoOn() {
  uint64_t* word = memory_->MemberAt(self_);
  const MemberStatus status{words_->Load(word)};
  // partial-W8b: an even word: it is waited for again from now on. Not one of models that has
  // published further ahead: what it ended with would be the next version's, and make one.
  const bool is_ahead = memory_->models().on() && step_ > executed();
  if (status.finished() && !is_ahead) words_->Store(word, status.word + 1);
  step_ = std::max(step_, executed());  // steps may have gone into fewer versions
}

}  // namespace covey
