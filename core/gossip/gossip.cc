#include "core/gossip/gossip.h"

#include <algorithm>
#include <array>

#include "core/base/check.h"
#include "core/base/group_barrier.h"

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

// ---- The end of an epoch ------------------------------------------------------------------------

MemberWord Gossip::StateOf(int32_t i) { return MemberWord::Of(words_->Load(memory_->MemberAt(i))); }

// A member that had finished trains on, or has died when it was about to. False: it does not, for
// the epoch is over.
bool Gossip::CountLeaving() {
  for (;;) {
    const EpochBarrier end = EpochBarrier::Of(words_->Load(memory_->BarrierAt()));
    if (end.HasEnded(epoch_)) return false;
    // gossip-P5: the count makes an end that did not see this rank leave fail.
    const EpochBarrier next{.is_over = false, .left = end.left + 1, .epoch = epoch_};
    if (words_->CompareExchange(memory_->BarrierAt(), end.Word(), next.Word())) return true;
  }
}

// Whether a dead member, in that state, died in the middle of its epoch. A member that died after
// it had finished is in the mean of this epoch; all see it alike.
bool Gossip::MayMarkDead(const MemberWord& state) {
  if (state.state == MemberState::kDead) return false;
  if (state.epoch != epoch_ || state.state == MemberState::kRuns) return true;
  // gossip-P5: a rank that has finished and died is in the mean, as all other ranks see it.
  return state.state == MemberState::kLeaves && CountLeaving();
}

void Gossip::MarkLostDead() {
  for (int32_t i = 0; i < memory_->size(); ++i) {
    if (!lost_[static_cast<size_t>(i)]) continue;
    const MemberWord state = StateOf(i);
    if (MayMarkDead(state))
      words_->CompareExchange(memory_->MemberAt(i), state.Word(),
                              MemberWord{MemberState::kDead, state.epoch}.Word());
  }
}

void Gossip::Finish() {
  words_->Store(memory_->MemberAt(self_), MemberWord{MemberState::kFinished, epoch_}.Word());
  words_->Ring(memory_->EventCountAt());
}

// It says so before it counts itself: the member that ends the epoch has either seen it, or fails
// because of the count.
bool Gossip::LeaveBarrier() {
  words_->Store(memory_->MemberAt(self_), MemberWord{MemberState::kLeaves, epoch_}.Word());
  // gossip-P5: one word says for all whether the epoch is over: then this rank takes its mean.
  const bool may = CountLeaving();
  const MemberState state = may ? MemberState::kRuns : MemberState::kFinished;
  words_->Store(memory_->MemberAt(self_), MemberWord{state, epoch_}.Word());
  return may;
}

std::vector<int32_t> Gossip::Unfinished() {
  for (;;) {
    MarkLostDead();
    const EpochBarrier end = EpochBarrier::Of(words_->Load(memory_->BarrierAt()));
    // gossip-P5: the end of the epoch is one word: it has ended for all.
    if (end.HasEnded(epoch_)) return {};
    std::vector<int32_t> unfinished = MissingMembers(memory_->size(), [&](int32_t i) {
      const MemberWord state = StateOf(i);
      const bool has_finished = state.epoch == epoch_ && (state.state == MemberState::kFinished ||
                                                          state.state == MemberState::kMet);
      return has_finished || state.state == MemberState::kDead;
    });
    if (!unfinished.empty()) return unfinished;
    const EpochBarrier over{.is_over = true, .left = end.left, .epoch = epoch_};
    words_->CompareExchange(memory_->BarrierAt(), end.Word(), over.Word());
  }
}

// All at one moment: nothing has changed between two looks.
std::vector<ModelWord> Gossip::AllSettled() {
  std::vector<ModelWord> models;
  for (bool again = true; again;) {
    again = false;
    models.resize(static_cast<size_t>(memory_->size()));
    for (int32_t i = 0; i < memory_->size(); ++i) {
      const ModelWord model = exchange_.Settled(i);
      // gossip-P5: the mean is of all models as they are at one moment.
      again |= model.Word() != models[static_cast<size_t>(i)].Word();
      models[static_cast<size_t>(i)] = model;
    }
  }
  return models;
}

void Gossip::Mean(std::span<void* const> model) {
  MarkLostDead();
  std::vector<const std::byte*> all;
  const std::vector<ModelWord> models = AllSettled();
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const ModelWord& one = models[static_cast<size_t>(i)];
    // A rank that others have given up has its own model at least.
    const bool is_in = i == self_ || StateOf(i).state != MemberState::kDead;
    if (is_in && one.number > 0) all.push_back(memory_->Buffer(one));
  }
  MeanOf(all, model);
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

void Gossip::OwnModel(std::span<void* const> model) {
  MarkLostDead();
  // gossip-P5a: the settled model, with what others have made of it, not the base.
  Take(memory_->Buffer(AllSettled()[static_cast<size_t>(self_)]), model);
}

void Gossip::TakeWithProgress(std::span<void* const> model, Taking take) {
  std::vector<std::byte> taken(memory_->layout().length_bytes());
  std::vector<void*> spans;
  for (const size_t offset : memory_->layout().offsets_bytes())
    spans.push_back(taken.data() + offset);
  (this->*take)(spans);
  AddProgress(model, taken.data());
}

void Gossip::AddProgress(std::span<void* const> model, std::byte* taken) {
  // gossip-P5a: this rank's progress after it had finished is added to the mean.
  Merge(model, taken, taken);
  Take(taken, model);
}

void Gossip::Meet() {
  // gossip-P5a: the ranks that wait in Unmet sleep on this event count.
  words_->Store(memory_->MemberAt(self_), MemberWord{MemberState::kMet, epoch_}.Word());
  words_->Ring(memory_->EventCountAt());
}

std::vector<int32_t> Gossip::Unmet() {
  return MissingMembers(memory_->size(), [&](int32_t i) {
    const MemberWord state = StateOf(i);
    // gossip-P5a: all models stay as they are until every rank has read the mean.
    const bool has_met = state.epoch > epoch_ || state.state == MemberState::kMet ||
                         state.state == MemberState::kDead;
    return has_met || lost_[static_cast<size_t>(i)];
  });
}

// The model first: a member that sees this rank in the next epoch averages with that model.
void Gossip::GoOn(std::span<const void* const> model) {
  const uint32_t buffer = FreeBuffers().at(0);
  Put(model, buffer);
  CHECK(Publish(exchange_.Settled(self_), buffer), "nobody averages between two epochs");
  base_ = buffer;
  ++epoch_;
  words_->Store(memory_->MemberAt(self_), MemberWord{MemberState::kRuns, epoch_}.Word());
}

void Gossip::Leave() {
  for (int32_t i = 0; i < memory_->size(); ++i) words_->Store(memory_->LeftAt(i, self_), 1);
}

bool Gossip::HasLeft(int32_t member) { return words_->Load(memory_->LeftAt(self_, member)) != 0; }

bool Gossip::HaveAllLeft() {
  const auto is_gone = [this](int32_t i) { return lost_[static_cast<size_t>(i)] || HasLeft(i); };
  return MissingMembers(memory_->size(), is_gone).empty();
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
