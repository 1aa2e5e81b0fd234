#include "core/partial/tiles.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/partial/suspicion.h"

namespace covey {
namespace {

// A late gradient counts: it comes later, divided alike.
int32_t DivisorOf(const RoundMemory& memory, const std::vector<Inclusion>& inclusions) {
  int32_t divisor = 0;
  for (int32_t i = 0; i < memory.size(); ++i) {
    const Inclusion& inclusion = inclusions[static_cast<size_t>(i)];
    // partial-W11: the divisor counts late gradients, but no empty contributions: those never come.
    divisor += inclusion.decision == Decision::kOut || Contributes(memory, i, inclusion) ? 1 : 0;
  }
  return std::max(1, divisor);
}

}  // namespace

Tiles::Tiles(const Options& options, const RoundMemory* memory, SharedAtomics* words)
    : options_(options),
      memory_(memory),
      words_(words),
      own_(std::make_unique_for_overwrite<std::byte[]>(
          std::max(memory->layout().tile_bytes(), memory->record_bytes()))) {}

Tiles::Outcome Tiles::Work(const StateWord& state, const std::vector<Inclusion>& inclusions,
                           EagerCopy* eager, Time now, Time* until) {
  size_t tile = 0;
  Look(state);
  if (Claim(state, &tile)) {
    Do(state, inclusions, eager, tile);
    return Outcome::kWorked;
  }
  if (!FindUndone(state, &tile)) return Outcome::kDone;
  if (stalled_version_ != state.version()) {
    stalled_version_ = state.version();
    stalled_since_ = now;
  }
  // partial-W6: a tile that is not done for `overdue` is done again: its rank may be stopped.
  *until = stalled_since_ + options_.overdue;
  if (now < *until) return Outcome::kWaiting;
  Do(state, inclusions, eager, tile);
  return Outcome::kWorked;
}

// The work that is left in the version of `state`.
void Tiles::Look(const StateWord& state) {
  if (version_ == state.version()) return;
  version_ = state.version();
  sum_of_ = memory_->SumsOf(version_, state.final);
  const int32_t sums = 1 + *std::max_element(sum_of_.begin(), sum_of_.end());
  count_ = 1 + memory_->layout().tiles().size() * static_cast<size_t>(sums);
}

bool Tiles::Claim(const StateWord& state, size_t* tile) {
  uint64_t* word = memory_->CursorAt(state.buffer);
  for (;;) {
    Cursor cursor = Cursor::Of(words_->Load(word));
    const uint64_t before = cursor.Word();
    // partial-W1: the cursor is of a later version: this one is over.
    if (cursor.version > state.version()) return false;
    if (cursor.version < state.version()) cursor = {state.version(), 0};
    if (cursor.next >= count_) return false;
    *tile = cursor.next++;
    if (words_->CompareExchange(word, before, cursor.Word())) return true;
  }
}

// Each rank begins elsewhere, so that ranks doing overdue tiles do not all do the same one.
bool Tiles::FindUndone(const StateWord& state, size_t* tile) {
  const size_t first =
      count_ * static_cast<size_t>(options_.self) / static_cast<size_t>(memory_->size());
  for (size_t i = 0; i < count_; ++i) {
    *tile = (first + i) % count_;
    if (words_->Load(memory_->DoneAt(state.buffer, *tile)) != state.version()) return true;
  }
  return false;
}

void Tiles::Do(const StateWord& state, const std::vector<Inclusion>& inclusions, EagerCopy* eager,
               size_t tile) {
  std::byte* result = memory_->Result(state.buffer);
  size_t length_bytes = 0;
  const RoundLayout& layout = memory_->layout();
  const size_t sum = tile == 0 ? 0 : (tile - 1) / layout.tiles().size();
  const size_t number = tile == 0 ? 0 : (tile - 1) % layout.tiles().size();
  if (tile == 0) {
    length_bytes = MakeRecord(state, inclusions);
  } else {
    const RoundLayout::Tile& part = layout.tiles()[number];
    length_bytes = Reduce(part, static_cast<int32_t>(sum), inclusions);
    result += memory_->record_bytes() + layout.length_bytes() * sum + part.offset_bytes;
  }
  // partial-W6: while the version is under way no member writes a slot that it has taken, and this
  // rank's pin of its buffer came in time.
  if (words_->Load(memory_->StateAt()) != state.Word()) return;
  options_.kernels->copy(result, own_.get(), length_bytes, StoresOf(memory_->layout()));
  words_->Store(memory_->DoneAt(state.buffer, tile), state.version());
  if (tile > 0 && eager != nullptr) eager->Take(state, sum, number, own_.get());
}

size_t Tiles::Reduce(const RoundLayout::Tile& tile, int32_t sum,
                     const std::vector<Inclusion>& inclusions) {
  const size_t length_bytes = tile.count * SizeOf(tile.dtype);
  inputs_.clear();
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const Inclusion& inclusion = inclusions[static_cast<size_t>(i)];
    // partial-W11: the slot of an empty contribution is undefined.
    if (Contributes(*memory_, i, inclusion) && sum_of_[static_cast<size_t>(i)] == sum)
      inputs_.push_back(memory_->Buffer(i, inclusion.buffer) + tile.offset_bytes);
  }
  if (inputs_.empty()) {
    std::memset(own_.get(), 0, length_bytes);
    return length_bytes;
  }
  int32_t divisor = options_.average ? DivisorOf(*memory_, inclusions) : 1;
  // partial-W12: a mean of models is that of those that are in it.
  if (memory_->models().on()) divisor = static_cast<int32_t>(inputs_.size());
  std::byte* output = own_.get();
  options_.kernels->reduce({.dtype = tile.dtype, .op = Op::kSum, .divisor = divisor}, inputs_,
                           std::span<std::byte* const>(&output, 1), tile.count, Stores::kCached);
  return length_bytes;
}

void Tiles::WriteMostSteps(const std::vector<Inclusion>& inclusions,
                           const std::vector<Contribution>& contributions, std::byte* at) const {
  double most = 0;
  for (size_t i = 0; i < inclusions.size(); ++i) {
    if (contributions[i].count == 0) continue;
    const auto member = static_cast<int32_t>(i);
    most = std::max(most, memory_->HeaderHypers(member, inclusions[i].buffer)[0]);
  }
  std::memcpy(at, &most, sizeof(most));
}

// The leader is the lowest contributor that is fresh; where none is, the lowest contributor.
size_t Tiles::MakeRecord(const StateWord& state, const std::vector<Inclusion>& inclusions) {
  RecordHeader header{.version = state.version(), .divisor = DivisorOf(*memory_, inclusions)};
  header.expired = state.expired;
  header.final = state.final;
  std::vector<Contribution> contributions(inclusions.size());
  bool leader_is_fresh = false;
  for (size_t i = 0; i < inclusions.size(); ++i) {
    if (inclusions[i].decision != Decision::kIn) continue;
    const auto member = static_cast<int32_t>(i);
    contributions[i] = memory_->Header(member, inclusions[i].buffer)->content;
    if (contributions[i].count == 0) continue;
    const bool fresh = contributions[i].last >= state.version();
    // partial-W5: the lowest fresh contributor leads; without a fresh one the lowest.
    if (header.leader >= 0 && (leader_is_fresh || !fresh)) continue;
    header.leader = member;
    leader_is_fresh = fresh;
  }
  std::byte* at = own_.get();
  std::memset(at, 0, memory_->record_bytes());
  std::memcpy(at, &header, sizeof(header));
  at += sizeof(header);
  std::memcpy(at, contributions.data(), sizeof(Contribution) * contributions.size());
  at += sizeof(Contribution) * contributions.size();
  for (const Suspicion& member : AttendanceAfter(*memory_, words_, state, inclusions)) {
    const uint64_t missing = member.missing;
    std::memcpy(at, &missing, sizeof(missing));
    at += sizeof(missing);
  }
  if (header.leader >= 0 && memory_->hypers() > 0) {
    const Inclusion& inclusion = inclusions[static_cast<size_t>(header.leader)];
    const auto hypers = memory_->HeaderHypers(header.leader, inclusion.buffer);
    std::memcpy(at, hypers.data(), hypers.size_bytes());
  }
  // train-T4: after a finish() all go on from the step of the member that has done most: all have
  // come to the end of a part then, or none.
  if (memory_->models().CountsSteps() && memory_->hypers() > 0)
    WriteMostSteps(inclusions, contributions, at);
  return memory_->record_bytes();
}

}  // namespace covey
