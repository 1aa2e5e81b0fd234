#include "core/gossip/far_codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/base/finite.h"

namespace covey {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 10;  // so that it stays in a core's own cache
// The bounds of a step that a message brings.
constexpr float kLeastStep = 0x1p-110f, kLargestStep = 0x1p110f;

// All parts of a body begin at such multiples.
constexpr size_t Padded(size_t length_bytes) { return (length_bytes + 7) / 8 * 8; }

// The next part of a body; null: there is not so much.
const std::byte* Next(std::span<const std::byte>* body, size_t length_bytes) {
  if (body->size() < Padded(length_bytes)) return nullptr;
  const std::byte* at = body->data();
  *body = body->subspan(Padded(length_bytes));
  return at;
}

// Room for one more.
std::byte* Extend(size_t length_bytes, Bytes* to) {
  to->resize(to->size() + Padded(length_bytes));
  return to->data() + to->size() - Padded(length_bytes);
}

bool AreFinite(std::span<const float> numbers) {
  return CountNotFinite(DType::kF32, reinterpret_cast<const std::byte*>(numbers.data()),
                        numbers.size()) == 0;
}

void Halve(std::span<const float> theirs, std::span<const float> mine, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = (theirs[i] - mine[i]) / 2;
}

}  // namespace

FarCodec::FarCodec(const PairCodec& codec, const RoundLayout* layout, const Kernels* kernels,
                   int32_t size)
    : codec_(codec), layout_(layout), kernels_(kernels), negative_(kPieceBytes) {
  size_t chunks = 0;
  ForEach(
      [this](const RoundLayout::Tile& tile) {
        longest_bytes_ += Padded(tile.count * SizeOf(tile.dtype));
        return true;
      },
      [&](const Chunk& chunk) {
        ++chunks;
        longest_bytes_ += sizeof(Head) + Padded(std::max(chunk.count * sizeof(float),
                                                         codec_.ChunkBytes(chunk.count)));
        return true;
      });
  if (!codec_.Codes()) return;
  for (std::vector<float>* numbers : {&theirs_, &mine_, &half_, &zeros_})
    numbers->resize(codec_.ChunkElems());
  if (!IsBeside()) return;
  steps_.assign(chunks, ReferenceStep(codec_.codec->reach(codec_.values)));
  is_known_.assign(chunks, false);
  goes_whole_.assign(static_cast<size_t>(size), std::vector<bool>(chunks));
}

// Tiles that go as they are, and chunks of the others, in order. False: one of the calls was.
template <typename Whole, typename Coded>
bool FarCodec::ForEach(const Whole& whole, const Coded& coded) const {
  size_t number = 0;
  for (const RoundLayout::Tile& tile : layout_->tiles()) {
    if (!codec_.Codes() || tile.dtype != DType::kF32) {
      if (!whole(tile)) return false;
      continue;
    }
    const size_t most = codec_.ChunkElems();
    for (size_t at = 0; at < tile.count; at += most, ++number) {
      const Chunk chunk{.number = number,
                        .count = std::min(most, tile.count - at),
                        .offset_bytes = tile.offset_bytes + at * sizeof(float)};
      if (!coded(chunk)) return false;
    }
  }
  return true;
}

void FarCodec::PutModel(const std::byte* model, int32_t partner, uint64_t draw, Bytes* to) {
  const size_t begin = to->size();
  to->reserve(begin + longest_bytes_);
  ForEach(
      [&](const RoundLayout::Tile& tile) {
        const size_t length_bytes = tile.count * SizeOf(tile.dtype);
        kernels_->copy(Extend(length_bytes, to), model + tile.offset_bytes, length_bytes,
                       Stores::kCached);
        return true;
      },
      [&](const Chunk& chunk) {
        const auto* numbers = reinterpret_cast<const float*>(model + chunk.offset_bytes);
        const bool is_whole =
            IsBeside() &&
            (!is_known_[chunk.number] || goes_whole_[static_cast<size_t>(partner)][chunk.number]);
        PutChunk(chunk, {numbers, chunk.count}, is_whole, draw + chunk.number, to);
        return true;
      });
  counters_.bytes += to->size() - begin;
}

bool FarCodec::PutDifference(std::span<const std::byte> body, const std::byte* own, uint64_t draw,
                             std::byte* difference, Bytes* to) {
  const size_t begin = to->size();
  to->reserve(begin + longest_bytes_);
  const bool is_whole = ForEach(
      [&](const RoundLayout::Tile& tile) {
        const size_t length_bytes = tile.count * SizeOf(tile.dtype);
        const std::byte* theirs = Next(&body, length_bytes);
        if (theirs == nullptr) return false;
        std::byte* at = difference + tile.offset_bytes;
        Subtract(tile, theirs, own + tile.offset_bytes, at);
        kernels_->copy(Extend(length_bytes, to), at, length_bytes, Stores::kCached);
        return true;
      },
      [&](const Chunk& chunk) {
        return AnswerChunk(
            chunk, &body, {reinterpret_cast<const float*>(own + chunk.offset_bytes), chunk.count},
            draw + chunk.number,
            {reinterpret_cast<float*>(difference + chunk.offset_bytes), chunk.count}, to);
      });
  counters_.bytes += to->size() - begin;
  return is_whole && body.empty();
}

bool FarCodec::ReadDifference(std::span<const std::byte> body, int32_t partner,
                              std::byte* difference) {
  const bool is_whole = ForEach(
      [&](const RoundLayout::Tile& tile) {
        const size_t length_bytes = tile.count * SizeOf(tile.dtype);
        const std::byte* from = Next(&body, length_bytes);
        if (from == nullptr) return false;
        kernels_->copy(difference + tile.offset_bytes, from, length_bytes, Stores::kCached);
        return true;
      },
      [&](const Chunk& chunk) {
        return ReadChunk(chunk, &body, partner,
                         {reinterpret_cast<float*>(difference + chunk.offset_bytes), chunk.count});
      });
  return is_whole && body.empty();
}

// Half of what `theirs` is more than `own`.
void FarCodec::Subtract(const RoundLayout::Tile& tile, const std::byte* theirs,
                        const std::byte* own, std::byte* difference) {
  const size_t item = SizeOf(tile.dtype), most = kPieceBytes / item;
  for (size_t at = 0; at < tile.count; at += most) {
    const size_t piece = std::min(most, tile.count - at);
    const std::byte* from = own + at * item;
    std::byte* less = negative_.data();
    kernels_->reduce({.dtype = tile.dtype, .op = Op::kSum, .prescale = -1}, {&from, 1}, {&less, 1},
                     piece, Stores::kCached);
    const std::array<const std::byte*, 2> both{theirs + at * item, less};
    std::byte* to = difference + at * item;
    kernels_->reduce({.dtype = tile.dtype, .op = Op::kSum, .divisor = 2}, both, {&to, 1}, piece,
                     Stores::kCached);
  }
}

// ---- Chunks -------------------------------------------------------------------------------------

// False: it is not as its codec made it, or a number is not finite.
bool FarCodec::Decode(const std::byte* code, float step, Floats reference, std::span<float> to) {
  ++counters_.decoded;
  if (IsBeside()) {
    if (!(step >= kLeastStep && step <= kLargestStep)) return false;
    return codec_.codec->decode(*kernels_, codec_.values, code, reference, to).is_right;
  }
  codec_.alone.codec->decode(*kernels_, codec_.alone.values, code, to);
  return AreFinite(to);
}

bool FarCodec::Encode(Floats numbers, Floats reference, float step, uint64_t draw, std::byte* code,
                      std::span<float> decoded) {
  if (IsBeside())
    codec_.codec->encode(*kernels_, codec_.values, step, numbers, draw, code);
  else
    codec_.alone.codec->encode(*kernels_, codec_.alone.values, numbers, draw, code);
  return Decode(code, step, reference, decoded);
}

void FarCodec::PutChunk(const Chunk& chunk, Floats model, bool is_whole, uint64_t draw, Bytes* to) {
  const size_t begin = to->size();
  if (!is_whole) {
    const Head head{Form::kCoded, IsBeside() ? steps_[chunk.number].step() : 0};
    std::memcpy(Extend(sizeof(head), to), &head, sizeof(head));
    std::byte* code = Extend(codec_.ChunkBytes(chunk.count), to);
    const std::span<float> decoded = std::span(mine_).first(chunk.count);
    if (Encode(model, model, head.step, draw, code, decoded)) return;
    to->resize(begin);
  }
  counters_.repaired += is_whole ? 0 : 1;
  const Head head{Form::kWhole, 0};
  std::memcpy(Extend(sizeof(head), to), &head, sizeof(head));
  std::memcpy(Extend(model.size_bytes(), to), model.data(), model.size_bytes());
}

bool FarCodec::AnswerChunk(const Chunk& chunk, std::span<const std::byte>* body, Floats own,
                           uint64_t draw, std::span<float> difference, Bytes* to) {
  Head head;
  const std::byte* from = Next(body, sizeof(head));
  if (from == nullptr) return false;
  std::memcpy(&head, from, sizeof(head));
  const std::span<float> theirs = std::span(theirs_).first(chunk.count);
  const std::span<float> mine = std::span(mine_).first(chunk.count);
  bool has_theirs = head.form == Form::kWhole, has_mine = false;
  const size_t code_bytes = codec_.ChunkBytes(chunk.count);
  from = Next(body, has_theirs ? theirs.size_bytes() : code_bytes);
  if (from == nullptr || head.form > Form::kWhole) return false;
  if (has_theirs) {
    std::memcpy(theirs.data(), from, theirs.size_bytes());
  } else if (Decode(from, head.step, own, theirs)) {
    const size_t begin = to->size();
    const Head answer{Form::kCoded, head.step / 2};
    std::memcpy(Extend(sizeof(answer), to), &answer, sizeof(answer));
    std::byte* code = Extend(code_bytes, to);  // for the own code first
    // gossip-P14: both codes use the same draws, so equal models stay equal.
    has_mine = Encode(own, own, head.step, draw, code, mine);
    const std::span<float> half = std::span(half_).first(chunk.count);
    Halve(theirs, mine, half);
    if (has_mine &&
        Encode(half, Floats(zeros_).first(chunk.count), answer.step, draw, code, difference))
      return true;
    to->resize(begin);
    has_theirs = !IsBeside();
  }
  counters_.repaired += head.form == Form::kWhole ? 0 : 1;
  const Head answer{has_theirs ? Form::kWhole : Form::kNone, 0};
  std::memcpy(Extend(sizeof(answer), to), &answer, sizeof(answer));
  std::fill(difference.begin(), difference.end(), 0.f);
  if (!has_theirs) return true;
  Halve(theirs, has_mine ? Floats(mine) : own, difference);
  std::memcpy(Extend(difference.size_bytes(), to), difference.data(), difference.size_bytes());
  return true;
}

bool FarCodec::ReadChunk(const Chunk& chunk, std::span<const std::byte>* body, int32_t partner,
                         std::span<float> difference) {
  Head head;
  const std::byte* from = Next(body, sizeof(head));
  if (from == nullptr) return false;
  std::memcpy(&head, from, sizeof(head));
  std::fill(difference.begin(), difference.end(), 0.f);
  if (head.form == Form::kWhole) {
    from = Next(body, difference.size_bytes());
    if (from == nullptr) return false;
    std::memcpy(difference.data(), from, difference.size_bytes());
  } else if (head.form == Form::kCoded) {
    from = Next(body, codec_.ChunkBytes(chunk.count));
    if (from == nullptr || !Decode(from, head.step, Floats(zeros_).first(chunk.count), difference))
      return false;
  } else if (head.form != Form::kNone) {
    return false;
  }
  if (!IsBeside()) return true;
  // gossip-P14: a chunk that could not be decoded goes whole next time.
  goes_whole_[static_cast<size_t>(partner)][chunk.number] = head.form == Form::kNone;
  if (head.form == Form::kNone) return true;
  float largest = 0;
  for (const float one : difference) largest = std::max(largest, std::abs(one));
  is_known_[chunk.number] = true;
  steps_[chunk.number].OnDistance(2 *
                                  (static_cast<double>(largest) + static_cast<double>(head.step)));
  return true;
}

}  // namespace covey
