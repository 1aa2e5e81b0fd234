#include "core/run/codec_steps.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"

namespace covey {
namespace {

// About as many elements are coded at once: 16 KiB for each member.
constexpr size_t kPieceElems = 4096;

size_t PieceBytes(const EncodedLayout& form) {
  return std::max<size_t>(1, kPieceElems / form.block_elems) * form.block_elems * sizeof(float);
}

// For codecs that round at random.
uint64_t SeedOf(const Exchange& x, size_t begin_bytes) {
  const bool alike = Mixes(x.request->kind);
  uint64_t seed = x.request->draw != 0 ? x.request->draw : x.occurrence;
  // neighbors-G4: neighbors round with the same draws, so equal models stay equal.
  for (uint64_t v : {alike ? uint64_t{0} : uint64_t{x.Me()}, uint64_t{begin_bytes}})
    seed = (seed ^ v) * 0x9e3779b97f4a7c15u + 1;
  return seed;
}

// The seed of a sum in `slot`: a rank may encode two at one place of the message, and the draws of
// the second must not depend on those of the first.
uint64_t SeedOfSum(const Exchange& x, size_t begin_bytes, uint32_t slot) {
  return (SeedOf(x, begin_bytes) ^ (slot + 1)) * 0x9e3779b97f4a7c15u + 1;
}

std::byte* InSlot(const Exchange& x, const Buffer& b) {
  return x.Slot(static_cast<size_t>(b.index), b.slot) + b.offset;
}

// Calls fn(offset, length, coded): each piece of a range, and where in its code the piece begins.
template <typename Fn>
void ForEachPiece(const EncodedLayout& form, size_t length_bytes, Fn fn) {
  const size_t piece_bytes = PieceBytes(form);
  size_t coded = 0;
  for (size_t at = 0; at < length_bytes; at += piece_bytes) {
    const size_t length = std::min(piece_bytes, length_bytes - at);
    fn(at, length, coded);
    coded += form.EncodedBytes(length / sizeof(float));
  }
}

}  // namespace

const ChosenCodec* CodecSteps::Find(const std::string& text) {
  if (text.empty()) return nullptr;
  const auto found = codecs_.find(text);
  if (found != codecs_.end()) return &found->second;
  ChosenCodec chosen;
  CHECK(ParseCodec(text, &chosen).ok(), "a codec that was agreed on is not linked in");
  return &codecs_.emplace(text, std::move(chosen)).first->second;
}

void CodecSteps::EncodeFirst(const Exchange& x) {
  const size_t segment = x.codec->form.ElemsIn(x.channel->slot_bytes) * sizeof(float);
  EncodeRange(x, 0, std::min(x.input.length_bytes(), segment), x.Slot(x.Me(), 0));
}

void CodecSteps::Encode(const Exchange& x, const Step& step) {
  EncodeRange(x, step.input_offset, step.length_bytes,
              x.Slot(x.Me(), step.dst.slot) + step.dst.offset);
}

void CodecSteps::EncodeRange(const Exchange& x, size_t begin_bytes, size_t length_bytes,
                             std::byte* out) {
  ForEachPiece(x.codec->form, length_bytes, [&](size_t at, size_t length, size_t coded) {
    const float* elements = nullptr;
    x.input.ForEach(begin_bytes + at, length,
                    [&](const std::byte* piece, size_t delta, size_t part) {
                      if (part == length) {
                        elements = reinterpret_cast<const float*>(piece);
                        return;
                      }
                      gathered_.resize(length / sizeof(float));
                      std::memcpy(gathered_.data() + delta / sizeof(float), piece, part);
                      elements = gathered_.data();
                    });
    x.codec->codec->encode(*kernels_, x.codec->values, {elements, length / sizeof(float)},
                           SeedOf(x, begin_bytes + at), out + coded);
  });
}

void CodecSteps::Reduce(const Exchange& x, const Step& step) {
  const size_t stride = PieceBytes(x.codec->form) / sizeof(float);
  decoded_.resize(std::max(decoded_.size(), stride * x.size()));
  ForEachPiece(x.codec->form, step.length_bytes, [&](size_t at, size_t length, size_t coded) {
    for (size_t j = 0; j < x.size(); ++j)
      x.codec->codec->decode(*kernels_, x.codec->values,
                             x.Slot(j, step.src.slot) + step.src.offset + coded,
                             {decoded_.data() + j * stride, length / sizeof(float)});
    x.output.ForEach(
        step.dst.offset + at, length, [&](std::byte* piece, size_t delta, size_t part) {
          sources_.clear();
          for (size_t j = 0; j < x.size(); ++j)
            sources_.push_back(reinterpret_cast<const std::byte*>(decoded_.data() + j * stride) +
                               delta);
          kernels_->reduce(x.reduction, sources_, {&piece, 1}, part / sizeof(float),
                           Stores::kCached);
        });
  });
}

void CodecSteps::EncodeSum(const Exchange& x, const Step& step) {
  const auto* sums = reinterpret_cast<const float*>(InSlot(x, step.src));
  std::byte* out = InSlot(x, step.dst);
  ForEachPiece(x.codec->form, step.length_bytes, [&](size_t at, size_t length, size_t coded) {
    x.codec->codec->encode(*kernels_, x.codec->values,
                           {sums + at / sizeof(float), length / sizeof(float)},
                           SeedOfSum(x, step.input_offset + at, step.src.slot), out + coded);
  });
}

void CodecSteps::DecodeSum(const Exchange& x, const Step& step) {
  auto* sums = reinterpret_cast<float*>(InSlot(x, step.dst));
  const std::byte* in = InSlot(x, step.src);
  const bool adds = step.kind == StepKind::kAddDecoded;
  const Reduction combined{DType::kF32, x.reduction.op};
  decoded_.resize(std::max(decoded_.size(), PieceBytes(x.codec->form) / sizeof(float)));
  ForEachPiece(x.codec->form, step.length_bytes, [&](size_t at, size_t length, size_t coded) {
    const size_t count = length / sizeof(float);
    float* to = sums + at / sizeof(float);
    x.codec->codec->decode(*kernels_, x.codec->values, in + coded,
                           {adds ? decoded_.data() : to, count});
    if (!adds) return;
    auto* target = reinterpret_cast<std::byte*>(to);
    sources_ = {target, reinterpret_cast<const std::byte*>(decoded_.data())};
    kernels_->reduce(combined, sources_, {&target, 1}, count, Stores::kCached);
  });
}

// A piece of what lies in one slot of each of the ranks that the own row names, and of this one.
void CodecSteps::Mix(const Exchange& x, const Step& step) {
  const size_t stride = PieceBytes(x.codec->form) / sizeof(float);
  decoded_.resize(std::max(decoded_.size(), 3 * stride));
  const std::span<float> own(decoded_.data(), stride), theirs(decoded_.data() + stride, stride),
      moved(decoded_.data() + 2 * stride, stride);
  const PeerTable row = x.PeersOf(x.Me());
  ForEachPiece(x.codec->form, step.length_bytes, [&](size_t at, size_t length, size_t coded) {
    const size_t count = length / sizeof(float);
    const auto decode = [&](size_t member, std::span<float> to) {
      x.codec->codec->decode(*kernels_, x.codec->values,
                             x.Slot(member, step.src.slot) + step.src.offset + coded,
                             to.first(count));
    };
    // neighbors-G4: the own code is decoded too: the difference of two codes keeps the models' sum.
    decode(x.Me(), own);
    std::fill_n(moved.begin(), count, 0.0f);
    for (size_t j = 0; j < x.size(); ++j) {
      const auto weight = static_cast<float>(WeightOf(row, j));
      if (j == x.Me() || weight == 0) continue;
      decode(j, theirs);
      for (size_t i = 0; i < count; ++i) moved[i] += weight * (theirs[i] - own[i]);
    }
    AddMoved(x, step, at, moved.first(count));
  });
}

// Output = input + moved, from `at` on.
void CodecSteps::AddMoved(const Exchange& x, const Step& step, size_t at,
                          std::span<const float> moved) {
  const auto add = [&](const std::byte* in, std::byte* out, size_t begin, size_t length) {
    for (size_t i = 0; i < length / sizeof(float); ++i) {
      float number;
      std::memcpy(&number, in + i * sizeof(float), sizeof(number));
      number += moved[begin / sizeof(float) + i];
      std::memcpy(out + i * sizeof(float), &number, sizeof(number));
    }
  };
  x.output.ForEach(step.dst.offset + at, moved.size_bytes(),
                   [&](std::byte* out, size_t delta, size_t length) {
                     x.input.ForEach(step.input_offset + at + delta, length,
                                     [&](const std::byte* in, size_t within, size_t part) {
                                       add(in, out + within, delta + within, part);
                                     });
                   });
}

}  // namespace covey
