// topk: of each block the elements of largest magnitude, as they are; all others become zero.
//
// A block of n elements has room for k = (6 + bits n / 8) / 6 of them, rounded down: at least one,
// and with blocks of 1024 22 (2 %) for each of the `bits` an element costs. It is their number (16
// bits), the places (16 bits each) in order, then the elements (float32 each); of equal magnitudes
// those that come first are kept. ||decoded - x||^2 <= (1 - k/n) ||x||^2; kept elements come back
// exactly. The rest is lost: training needs error feedback, which adds it to the rank's next
// contribution.
//
// A block that holds a NaN or an infinity becomes NaN as a whole: an overflow must be seen.
//
// Source: S. U. Stich, J.-B. Cordonnier, M. Jaggi, 2018, Sparsified SGD with Memory, NeurIPS 31,
// doi:10.48550/arXiv.1809.07599; D. Alistarh et al., 2018, The Convergence of Sparsified Gradient
// Methods, doi:10.48550/arXiv.1809.10505. There k of the whole tensor are chosen; here k of each
// block, so that pieces are coded on their own.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "core/run/codec.h"

namespace covey {
namespace {

constexpr size_t kMaxBlock = 4096;
constexpr size_t kHeaderBytes = 8;  // the number of those kept, and room for one at least
constexpr size_t kCountBytes = 2;
constexpr size_t kKeptBytes = 6;
constexpr uint16_t kNotFinite = 0xffff;  // instead of a number
constexpr uint32_t kInfinityBits = 0x7f800000;

EncodedLayout Form(const CodecValues& values) {
  return {.block_elems = static_cast<uint32_t>(values[1]),
          .header_bytes = kHeaderBytes,
          .elem_bits = static_cast<uint32_t>(values[0])};
}

double Bound(const CodecValues&, double largest_magnitude) { return largest_magnitude; }

// Of a block of `count` elements.
size_t Room(const EncodedLayout& form, size_t count) {
  return std::min(count, (kHeaderBytes - kCountBytes + count * form.elem_bits / 8) / kKeptBytes);
}

// Whether all elements are finite. The places of the `kept` of largest magnitude come first.
bool Choose(std::span<const float> block, size_t kept, std::span<uint64_t> keys) {
  uint32_t largest = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(block[i]) & 0x7fffffff;
    largest = std::max(largest, magnitude);
    keys[i] = uint64_t{~magnitude} << 32 | i;
  }
  if (largest >= kInfinityBits) return false;
  const auto begin = keys.begin();
  if (kept < block.size())
    std::nth_element(begin, begin + static_cast<ptrdiff_t>(kept),
                     begin + static_cast<ptrdiff_t>(block.size()));
  for (size_t i = 0; i < kept; ++i) keys[i] = static_cast<uint32_t>(keys[i]);
  std::sort(begin, begin + static_cast<ptrdiff_t>(kept));
  return true;
}

void EncodeBlock(const EncodedLayout& form, std::span<const float> block, std::byte* out) {
  std::array<uint64_t, kMaxBlock> keys;
  const size_t kept = Room(form, block.size());
  std::fill_n(out, form.BlockBytes(block.size()), std::byte{0});
  if (!Choose(block, kept, keys)) {
    std::memcpy(out, &kNotFinite, kCountBytes);
    return;
  }
  const auto count = static_cast<uint16_t>(kept);
  std::memcpy(out, &count, kCountBytes);
  for (size_t i = 0; i < kept; ++i) {
    const auto place = static_cast<uint16_t>(keys[i]);
    std::memcpy(out + kCountBytes + 2 * i, &place, sizeof(place));
    std::memcpy(out + kCountBytes + 2 * kept + 4 * i, &block[place], sizeof(float));
  }
}

void DecodeBlock(const EncodedLayout& form, const std::byte* in, std::span<float> block) {
  uint16_t kept = 0;
  std::memcpy(&kept, in, kCountBytes);
  const bool finite = kept != kNotFinite;
  std::fill(block.begin(), block.end(), finite ? 0.0f : std::numeric_limits<float>::quiet_NaN());
  if (!finite || kept > Room(form, block.size())) return;
  for (size_t i = 0; i < kept; ++i) {
    uint16_t place = 0;
    std::memcpy(&place, in + kCountBytes + 2 * i, sizeof(place));
    if (place < block.size())
      std::memcpy(&block[place], in + kCountBytes + 2 * kept + 4 * i, sizeof(float));
  }
}

void Encode(const Kernels&, const CodecValues& values, std::span<const float> elements, uint64_t,
            std::byte* out) {
  const EncodedLayout form = Form(values);
  for (size_t at = 0; at < elements.size(); at += form.block_elems) {
    const size_t count = std::min<size_t>(form.block_elems, elements.size() - at);
    EncodeBlock(form, elements.subspan(at, count), out);
    out += form.BlockBytes(count);
  }
}

void Decode(const Kernels&, const CodecValues& values, const std::byte* in,
            std::span<float> elements) {
  const EncodedLayout form = Form(values);
  for (size_t at = 0; at < elements.size(); at += form.block_elems) {
    const size_t count = std::min<size_t>(form.block_elems, elements.size() - at);
    DecodeBlock(form, in, elements.subspan(at, count));
    in += form.BlockBytes(count);
  }
}

constexpr CodecParameter kParameters[] = {
    {.name = "bits", .standard = 1, .minimum = 1, .maximum = 16, .multiple = 1},
    {.name = "block", .standard = 1024, .minimum = 16, .maximum = kMaxBlock, .multiple = 8}};
constexpr Codec kCodec{
    "topk",
    "bits/8 + 8/block bytes per element (0.133); the bits/48 of each block (2 %) that are largest "
    "stay as they are, all others become zero and need error feedback; a block with a NaN or "
    "infinity becomes NaN",
    kParameters,
    Form,
    Bound,
    Encode,
    Decode,
    nullptr,
    [](const CodecValues&) {
      return "leaves most of what it encodes out: a model is no sparse thing, and what is to be "
             "left out of one are changes, not numbers";
    },
    true};
const CodecRegistration kRegistration(kCodec);

}  // namespace
}  // namespace covey
