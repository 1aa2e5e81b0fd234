#include "core/partial/shards.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/partial/attendance.h"

namespace covey {
namespace {

// A late gradient counts: it comes later, divided alike.
int32_t DivisorOf(const RoundMemory& memory, const std::vector<Pick>& picks) {
  int32_t divisor = 0;
  for (int32_t i = 0; i < memory.size(); ++i) {
    const Pick& pick = picks[static_cast<size_t>(i)];
    // partial-W11: the divisor counts late gradients, but no nulls: those never come.
    divisor += pick.fate == Fate::kOut || memory.Contributes(i, pick) ? 1 : 0;
  }
  return std::max(1, divisor);
}

}  // namespace

Shards::Shards(const Options& options, const RoundMemory* memory, SharedAtomics* words)
    : options_(options),
      memory_(memory),
      words_(words),
      own_(std::make_unique_for_overwrite<std::byte[]>(
          std::max(memory->layout().shard_bytes(), memory->record_bytes()))) {}

Shards::Outcome Shards::Work(const Turn& turn, const std::vector<Pick>& picks, EarlyCopy* early,
                             Time now, Time* until) {
  size_t shard = 0;
  Look(turn);
  if (Claim(turn, &shard)) {
    Do(turn, picks, early, shard);
    return Outcome::kWorked;
  }
  if (!FindUndone(turn, &shard)) return Outcome::kDone;
  if (stalled_version_ != turn.version()) {
    stalled_version_ = turn.version();
    stalled_since_ = now;
  }
  // partial-W6: a shard that is not done for `overdue` is done again: its rank may be stopped.
  *until = stalled_since_ + options_.overdue;
  if (now < *until) return Outcome::kWaiting;
  Do(turn, picks, early, shard);
  return Outcome::kWorked;
}

// What there is to do in the version of `turn`.
void Shards::Look(const Turn& turn) {
  if (version_ == turn.version()) return;
  version_ = turn.version();
  sum_of_ = memory_->SumsOf(version_, turn.final);
  const int32_t sums = 1 + *std::max_element(sum_of_.begin(), sum_of_.end());
  count_ = 1 + memory_->layout().shards().size() * static_cast<size_t>(sums);
}

bool Shards::Claim(const Turn& turn, size_t* shard) {
  uint64_t* word = memory_->CursorAt(turn.buffer);
  for (;;) {
    Cursor cursor = Cursor::Of(words_->Load(word));
    const uint64_t before = cursor.Word();
    // partial-W1: the cursor is of a later version: this one is over.
    if (cursor.version > turn.version()) return false;
    if (cursor.version < turn.version()) cursor = {turn.version(), 0};
    if (cursor.next >= count_) return false;
    *shard = cursor.next++;
    if (words_->CompareExchange(word, before, cursor.Word())) return true;
  }
}

// Each rank begins elsewhere, so that those who do overdue shards do not all do the same.
bool Shards::FindUndone(const Turn& turn, size_t* shard) {
  const size_t first =
      count_ * static_cast<size_t>(options_.self) / static_cast<size_t>(memory_->size());
  for (size_t i = 0; i < count_; ++i) {
    *shard = (first + i) % count_;
    if (words_->Load(memory_->DoneAt(turn.buffer, *shard)) != turn.version()) return true;
  }
  return false;
}

void Shards::Do(const Turn& turn, const std::vector<Pick>& picks, EarlyCopy* early, size_t shard) {
  std::byte* result = memory_->Result(turn.buffer);
  size_t length_bytes = 0;
  const RoundLayout& layout = memory_->layout();
  const size_t sum = shard == 0 ? 0 : (shard - 1) / layout.shards().size();
  const size_t number = shard == 0 ? 0 : (shard - 1) % layout.shards().size();
  if (shard == 0) {
    length_bytes = MakeRecord(turn, picks);
  } else {
    const RoundLayout::Shard& part = layout.shards()[number];
    length_bytes = Reduce(part, static_cast<int32_t>(sum), picks);
    result += memory_->record_bytes() + layout.length_bytes() * sum + part.offset_bytes;
  }
  // partial-W6: while the version is under way nobody writes a slot that it has taken, and this
  // rank's pin of its buffer came in time.
  if (words_->Load(memory_->TurnAt()) != turn.Word()) return;
  options_.kernels->copy(result, own_.get(), length_bytes, StoresOf(memory_->layout()));
  words_->Store(memory_->DoneAt(turn.buffer, shard), turn.version());
  if (shard > 0 && early != nullptr) early->Take(turn, sum, number, own_.get());
}

size_t Shards::Reduce(const RoundLayout::Shard& shard, int32_t sum,
                      const std::vector<Pick>& picks) {
  const size_t length_bytes = shard.count * SizeOf(shard.dtype);
  inputs_.clear();
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const Pick& pick = picks[static_cast<size_t>(i)];
    // partial-W11: what lies in the slot of a null is undefined.
    if (memory_->Contributes(i, pick) && sum_of_[static_cast<size_t>(i)] == sum)
      inputs_.push_back(memory_->Buffer(i, pick.buffer) + shard.offset_bytes);
  }
  if (inputs_.empty()) {
    std::memset(own_.get(), 0, length_bytes);
    return length_bytes;
  }
  int32_t divisor = options_.average ? DivisorOf(*memory_, picks) : 1;
  // partial-W12: a mean of models is that of those that are in it.
  if (memory_->models().on()) divisor = static_cast<int32_t>(inputs_.size());
  std::byte* output = own_.get();
  options_.kernels->reduce({.dtype = shard.dtype, .op = Op::kSum, .divisor = divisor}, inputs_,
                           std::span<std::byte* const>(&output, 1), shard.count, Stores::kCached);
  return length_bytes;
}

// The leader is the lowest contributor that is fresh; where nobody is, the lowest contributor.
size_t Shards::MakeRecord(const Turn& turn, const std::vector<Pick>& picks) {
  RecordHeader header{.version = turn.version(), .divisor = DivisorOf(*memory_, picks)};
  header.expired = turn.expired;
  header.final = turn.final;
  std::vector<Contribution> contributions(picks.size());
  bool leader_is_fresh = false;
  for (size_t i = 0; i < picks.size(); ++i) {
    if (picks[i].fate != Fate::kIn) continue;
    const auto member = static_cast<int32_t>(i);
    contributions[i] = memory_->Header(member, picks[i].buffer)->content;
    if (contributions[i].count == 0) continue;
    const bool fresh = contributions[i].last >= turn.version();
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
  for (const Attendance& member : AttendanceAfter(*memory_, words_, turn, picks)) {
    const uint64_t missing = member.missing;
    std::memcpy(at, &missing, sizeof(missing));
    at += sizeof(missing);
  }
  if (header.leader >= 0 && memory_->hypers() > 0) {
    const Pick& pick = picks[static_cast<size_t>(header.leader)];
    const auto hypers = memory_->HeaderHypers(header.leader, pick.buffer);
    std::memcpy(at, hypers.data(), hypers.size_bytes());
  }
  return memory_->record_bytes();
}

}  // namespace covey
