#include "core/gossip/gossip.h"

#include <algorithm>
#include <array>

#include "core/base/check.h"

namespace covey {
namespace {

// So that the scratch stays in a core's own cache.
constexpr size_t kPieceElems = 8192;
constexpr size_t kPieceBytes = kPieceElems * sizeof(double);

// Where a tile of a model lies that is given by spans.
template <typename Pointer>
auto TileOf(const RoundLayout& layout, const RoundLayout::Tile& tile,
            std::span<Pointer const> model) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, const void*>, const std::byte, std::byte>;
  return static_cast<Byte*>(model[tile.span]) +
         (tile.offset_bytes - layout.offsets_bytes()[tile.span]);
}

size_t BytesOf(const RoundLayout::Tile& tile) { return tile.count * SizeOf(tile.dtype); }

}  // namespace

Gossip::Gossip(int32_t self, const PairMemory* memory, SharedAtomics* words, const Kernels* kernels,
               const PairCodec& codec, End end)
    : self_(self),
      memory_(memory),
      words_(words),
      kernels_(kernels),
      end_(end),
      exchange_(self, memory, words),
      lost_(static_cast<size_t>(memory->size())),
      scratch_(kPieceBytes) {
  if (codec.Codes())
    quantized_ = std::make_unique<QuantizedPair>(codec, &memory->layout(), kernels);
}

void Gossip::Begin(std::span<const void* const> model) {
  Put(model, base_);
  CHECK(Publish({}, base_), "a rank begins once");
}

void Gossip::Update(std::span<void* const> model) {
  ++counters_.updates;
  for (;;) {
    const ModelWord current = exchange_.Settled(self_);
    const uint32_t buffer = FreeBuffers().at(0);
    // gossip-P1: if others have moved the model, only the progress of this rank is added to it.
    const bool is_own = current.IsIn(self_, base_);
    if (is_own)
      Put({const_cast<const void* const*>(model.data()), model.size()}, buffer);
    else
      Merge(model, memory_->Buffer(current), memory_->Buffer(self_, buffer));
    // gossip-P1: others have changed the model meanwhile: the progress is added to that one.
    if (!Publish(current, buffer)) continue;
    base_ = buffer;
    if (is_own) return;
    ++counters_.merged;
    return Take(memory_->Buffer(self_, base_), model);
  }
}

Gossip::Outcome Gossip::Exchange(int32_t partner, std::span<void* const> model) {
  PairRecord record;
  const FreeNeeded needed = quantized_ ? FreeNeeded{2, 2} : FreeNeeded{1, 2};
  if (const Outcome outcome = Propose(partner, needed, &record); outcome != Outcome::kDone)
    return outcome;
  quantized_ ? WriteBoth(record) : WriteMean(record, model);
  const bool is_done = Commit(record);
  if (is_done) base_ = record.buffer;
  if (quantized_ ? is_done : !is_done) Take(memory_->Buffer(self_, base_), model);
  return is_done ? Outcome::kDone : Outcome::kBusy;
}

Gossip::Outcome Gossip::Exchange(int32_t partner) {
  PairRecord record;
  // The base stays in use, so the mean needs a buffer beside that of the next update.
  const FreeNeeded needed = quantized_ ? FreeNeeded{2, 3} : FreeNeeded{2, 2};
  if (const Outcome outcome = Propose(partner, needed, &record); outcome != Outcome::kDone)
    return outcome;
  quantized_ ? WriteBoth(record) : WriteMean(record, {});
  // gossip-P7: the base stays: with copies the progress since then is still to be pushed.
  return Commit(record) ? Outcome::kDone : Outcome::kBusy;
}

// kDone: it may be tried, and `record` is its record.
Gossip::Outcome Gossip::Propose(int32_t partner, const FreeNeeded& needed, PairRecord* record) {
  // Which settles all words: else it might change, by another one's exchange, what is read below.
  const std::vector<uint32_t> free = FreeBuffers();
  *record = {
      .partner = partner, .own = exchange_.Settled(self_), .others = exchange_.Settled(partner)};
  // gossip-P13: after the model word: a partner that hands its model in changes first its state,
  // then that word, and this exchange fails.
  const MemberWord state = StateOf(partner);
  // gossip-P10: averaging with a rank that is gone would lose half of what is apart.
  const bool is_gone = lost_[static_cast<size_t>(partner)] || state.state == MemberState::kDead;
  // gossip-P13: what has been handed in stays as it is.
  const bool is_handed_in = end_ == End::kElsewhere && state.state != MemberState::kRuns;
  // gossip-P5a: a model of another epoch is not averaged with: its rank goes on from the mean.
  if (is_gone || is_handed_in || state.epoch != epoch_ || record->others.number == 0) {
    ++counters_.absent;
    return Outcome::kAbsent;
  }
  // gossip-P11: what FarAccess adds to lies beside the base, and needs a buffer of its own.
  const size_t of_far = end_ == End::kElsewhere ? 1 : 0;
  // gossip-P3: the last buffers are not given away: one is left for the next update, which comes
  // while the partner holds this one, and one more for the update after it.
  const bool is_given_back = record->others.owner == self_;
  if (free.size() < of_far + (is_given_back ? needed.given_back : needed.otherwise)) {
    ++counters_.no_buffers;
    return Outcome::kNoBuffers;
  }
  record->buffer = free[0];
  // gossip-P8: with a codec each side has a result of its own; else the mean is written once.
  record->others_buffer = quantized_ ? free[1] : free[0];
  return Outcome::kDone;
}

// The draws are of the two models that are averaged, so that both ranks know them.
void Gossip::WriteBoth(const PairRecord& record) {
  const std::byte* const from[] = {memory_->Buffer(record.own), memory_->Buffer(record.others)};
  std::byte* const to[] = {memory_->Buffer(self_, record.buffer),
                           memory_->Buffer(self_, record.others_buffer)};
  quantized_->Write(from, to, record.own.Word() * 0x9e3779b97f4a7c15u + record.others.Word(),
                    memory_->stores());
}

// In rank order; to the buffer and, unless it is empty, to `model`.
void Gossip::WriteMean(const PairRecord& record, std::span<void* const> model) {
  const bool is_lower = self_ < record.partner;
  const std::byte* inputs[] = {memory_->Buffer(is_lower ? record.own : record.others),
                               memory_->Buffer(is_lower ? record.others : record.own)};
  for (const RoundLayout::Tile& tile : memory_->layout().tiles()) {
    const std::array from{inputs[0] + tile.offset_bytes, inputs[1] + tile.offset_bytes};
    std::array to{memory_->Buffer(self_, record.buffer) + tile.offset_bytes,
                  static_cast<std::byte*>(nullptr)};
    if (!model.empty()) to[1] = TileOf(memory_->layout(), tile, model);
    kernels_->reduce({.dtype = tile.dtype, .op = Op::kSum, .divisor = 2}, from,
                     std::span<std::byte* const>(to.data(), model.empty() ? 1 : 2), tile.count,
                     memory_->stores());
  }
}

bool Gossip::Commit(const PairRecord& record) {
  const bool is_done = exchange_.Commit(record);
  ++(is_done ? counters_.exchanges : counters_.busy);
  return is_done;
}

bool Gossip::Peek(int32_t member, std::span<void* const> to) {
  const ModelWord model = exchange_.Settled(member);
  if (model.number == 0) return false;
  Take(memory_->Buffer(model), to);
  // gossip-P2: a copy is right if the word is unchanged: then its buffer was not written.
  return words_->Load(memory_->ModelAt(member)) == model.Word();
}

// In the order of `all`, each laid out as a buffer.
void Gossip::MeanOf(std::span<const std::byte* const> all, std::span<void* const> model) const {
  std::vector<const std::byte*> from(all.size());
  const auto count = static_cast<int32_t>(all.size());
  for (const RoundLayout::Tile& tile : memory_->layout().tiles()) {
    for (size_t i = 0; i < all.size(); ++i) from[i] = all[i] + tile.offset_bytes;
    std::byte* to = TileOf(memory_->layout(), tile, model);
    kernels_->reduce({.dtype = tile.dtype, .op = Op::kSum, .divisor = count}, from,
                     std::span<std::byte* const>(&to, 1), tile.count, Stores::kCached);
  }
}

// ---- Buffers ------------------------------------------------------------------------------------

// Those of this rank that no word names, nor this rank itself. Only this rank can make a word name
// one of them.
std::vector<uint32_t> Gossip::FreeBuffers() {
  std::array<bool, kPairBuffers> used{};
  // gossip-P2: the base is read by the next update, so it is not written before.
  used[base_] = true;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const ModelWord model = exchange_.Settled(i);
    // gossip-P2: a partner's word may name a buffer of this rank: it is not free.
    if (model.owner == self_ && model.number > 0) used[model.buffer] = true;
  }
  std::vector<uint32_t> free;
  for (uint32_t buffer = 0; buffer < kPairBuffers; ++buffer)
    if (!used[buffer]) free.push_back(buffer);
  return free;
}

bool Gossip::Publish(const ModelWord& before, uint32_t buffer) {
  const ModelWord after{
      .engaged = false, .owner = self_, .buffer = buffer, .number = before.number + 1};
  // gossip-P1: by exchange, so what others have made of the model meanwhile is not overwritten.
  return words_->CompareExchange(memory_->ModelAt(self_), before.Word(), after.Word());
}

void Gossip::Put(std::span<const void* const> model, uint32_t buffer) {
  for (const RoundLayout::Tile& tile : memory_->layout().tiles())
    kernels_->copy(memory_->Buffer(self_, buffer) + tile.offset_bytes,
                   TileOf(memory_->layout(), tile, model), BytesOf(tile), memory_->stores());
}

void Gossip::Take(const std::byte* from, std::span<void* const> model) const {
  for (const RoundLayout::Tile& tile : memory_->layout().tiles())
    kernels_->copy(TileOf(memory_->layout(), tile, model), from + tile.offset_bytes, BytesOf(tile),
                   memory_->stores());
}

// to = (model - base) + current, both laid out as a buffer; they may be the same.
void Gossip::Merge(std::span<void* const> model, const std::byte* current, std::byte* to_all) {
  for (const RoundLayout::Tile& tile : memory_->layout().tiles()) {
    const size_t item = SizeOf(tile.dtype);
    const std::byte* base = memory_->Buffer(self_, base_) + tile.offset_bytes;
    const std::byte* own = TileOf(memory_->layout(), tile, model);
    const std::byte* others = current + tile.offset_bytes;
    std::byte* to = to_all + tile.offset_bytes;
    for (size_t at = 0; at < tile.count; at += kPieceElems) {
      const size_t piece = std::min(kPieceElems, tile.count - at);
      const std::byte* taken = base + at * item;
      std::byte* less = scratch_.data();
      kernels_->reduce({.dtype = tile.dtype, .op = Op::kSum, .prescale = -1}, {&taken, 1},
                       {&less, 1}, piece, Stores::kCached);
      const std::array<const std::byte*, 3> from{less, own + at * item, others + at * item};
      std::byte* const out = to + at * item;
      kernels_->reduce({.dtype = tile.dtype, .op = Op::kSum}, from, {&out, 1}, piece,
                       memory_->stores());
    }
  }
}

}  // namespace covey
