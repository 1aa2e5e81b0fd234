#include "tests/sim/simulator/payload.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/base/check.h"
#include "core/run/codec.h"

namespace covey {
namespace {

constexpr int kPoisonByte = 0xdb;
constexpr int kHiddenByte = 0x5d;
constexpr int64_t kLargestCoded = 127;  // which half precision holds exactly
constexpr int kUnwrittenByte = 0x5a;

uint64_t Mix(uint64_t a, uint64_t b) { return Rng(a * 0x9e3779b97f4a7c15u + b).Next(); }

bool IsHalf(DType t) { return t == DType::kF16 || t == DType::kBF16; }
bool IsByte(DType t) { return t == DType::kU8 || t == DType::kI8; }

// The contribution of member `index` as element `elem`.
int64_t Value(const Contributor& who, const Spec& spec, size_t elem) {
  const uint64_t h = Mix(Mix(who.seed, who.op * 64 + who.index), elem);
  if (!spec.codec.empty()) return static_cast<int64_t>(h % (kLargestCoded + 1));
  if (spec.op == Op::kProduct)
    return static_cast<int64_t>(SizeOf(spec.dtype) < 4 ? 1 + h % 2 : h % 4);
  if (IsHalf(spec.dtype)) return static_cast<int64_t>((h & 1) << who.index);
  if (IsByte(spec.dtype)) return static_cast<int64_t>(h % 128);
  return static_cast<int64_t>(h % 1000 * 256 + (uint64_t{1} << who.index));
}

template <typename T>
void Put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// An integer that the type holds exactly (of a byte: its lowest bits).
void PutInteger(DType dtype, int64_t v, std::byte* to) {
  const auto single = static_cast<float>(v);
  const auto bits = std::bit_cast<uint32_t>(single);
  switch (dtype) {
    case DType::kF32:
      return Put(to, single);
    case DType::kF64:
      return Put(to, static_cast<double>(v));
    case DType::kBF16:
      return Put(to, static_cast<uint16_t>(bits >> 16));
    case DType::kF16:  // the same exponent and mantissa, narrower
      return Put(to, static_cast<uint16_t>(v == 0 ? 0 : (bits >> 13) - ((127 - 15) << 10)));
    case DType::kI32:
      return Put(to, static_cast<int32_t>(v));
    case DType::kI64:
      return Put(to, v);
    default:
      return Put(to, static_cast<uint8_t>(v));
  }
}

// v * scale / divisor as core/base/kernels.h says (kernels-K3, kernels-K4).
void PutScaled(DType dtype, int64_t v, double scale, size_t divisor, std::byte* to) {
  if (scale == 1.0 && divisor == 1) return PutInteger(dtype, v, to);
  const double scaled = static_cast<double>(v) * scale;
  if (dtype == DType::kF32)
    return Put(to, static_cast<float>(v) * static_cast<float>(scale) / static_cast<float>(divisor));
  if (dtype == DType::kF64) return Put(to, scaled / static_cast<double>(divisor));
  PutInteger(dtype, static_cast<int64_t>(scaled) / static_cast<int64_t>(divisor), to);
}

int64_t Combine(Op op, int64_t a, int64_t b) {
  if (op == Op::kMin) return std::min(a, b);
  if (op == Op::kMax) return std::max(a, b);
  return op == Op::kProduct ? a * b : a + b;
}

size_t Total(const std::vector<int64_t>& elems) {
  size_t total = 0;
  for (int64_t n : elems) total += static_cast<size_t>(n);
  return total;
}

int64_t SumOf(std::vector<int64_t>::const_iterator begin,
              std::vector<int64_t>::const_iterator end) {
  return std::accumulate(begin, end, int64_t{0});
}

struct ElemRange {
  int64_t begin;
  int64_t end;
};

// Elements of a tensor of `elems` that a reducescatter gives to `who`.
ElemRange PartOf(const Contributor& who, int64_t elems) {
  const auto size = static_cast<int64_t>(who.size);
  const auto index = static_cast<int64_t>(who.index);
  return {PartBegin(elems, size, index), PartBegin(elems, size, index + 1)};
}

// A joined rank contributes nothing, but counts where an average divides.
void PutReduced(Contributor who, const ProgramOp& op, size_t elem, std::byte* to) {
  const Spec& spec = op.spec;
  int64_t sum = 0;
  bool any = false;
  for (who.index = 0; who.index < who.size; ++who.index) {
    if (op.Joined(who.index)) continue;
    const int64_t mine = Value(who, spec, elem) * static_cast<int64_t>(spec.prescale);
    sum = any ? Combine(spec.op, sum, mine) : mine;
    any = true;
  }
  PutScaled(spec.dtype, sum, spec.postscale, spec.average ? who.size : 1, to);
}

// How far from what is exact an element may be: every contribution by the codec's bound (codec-D3),
// and the sums by what float32 rounds. Between more than two hosts the sum of all is encoded once
// more, by a bound that is no larger than that of all contributions (codec-D4).
double LargestError(const Spec& spec, size_t members, size_t hosts) {
  if (spec.codec.empty()) return 0;
  ChosenCodec chosen;
  CHECK(ParseCodec(spec.codec, &chosen).ok(), "the program draws a codec there is not");
  const double average = spec.average ? 1.0 / static_cast<double>(members) : 1.0;
  const double of_one = chosen.codec->bound(chosen.values, double{kLargestCoded}) + 1e-3;
  const double encodings = hosts > 2 ? 2 : 1;
  const double of_all = of_one * static_cast<double>(members) * encodings;
  return of_all * spec.prescale * spec.postscale * average;
}

}  // namespace

Bytes Expected(uint64_t seed, const Program& program, size_t number) {
  const ProgramOp& op = program.ops[number];
  const auto& members = program.MembersOf(number);
  const Spec& spec = op.spec;
  const size_t elem_bytes = SizeOf(spec.dtype);
  Contributor who{seed, number, 0, members.size()};
  Bytes result;
  const auto append = [&](size_t count, const auto& put) {
    const size_t begin = result.size();
    result.resize(begin + count * elem_bytes);
    for (size_t i = 0; i < count; ++i) put(i, result.data() + begin + i * elem_bytes);
  };
  const auto own = [&](size_t i, std::byte* to) {
    PutInteger(spec.dtype, Value(who, spec, i), to);
  };
  if (Reduces(spec.kind))
    append(Total(spec.elems), [&](size_t i, std::byte* to) { PutReduced(who, op, i, to); });
  if (spec.kind == Kind::kBroadcast) {
    const auto root = std::find(members.begin(), members.end(), spec.root) - members.begin();
    who.index = static_cast<size_t>(root);
    append(Total(spec.elems), own);
  }
  if (TraitsOf(spec.kind).output == OutputRule::kInputs)
    for (who.index = 0; who.index < members.size(); ++who.index)
      append(static_cast<size_t>(op.rows[who.index] * spec.elems[0]), own);
  for (size_t to = 0; spec.kind == Kind::kAlltoall && to < members.size(); ++to) {
    for (who.index = 0; who.index < members.size(); ++who.index) {
      const auto row = op.splits.begin() + static_cast<long>(who.index * members.size());
      const auto begin = static_cast<size_t>(SumOf(row, row + static_cast<long>(to)));
      const auto width = static_cast<size_t>(spec.elems[0]);
      append(static_cast<size_t>(row[static_cast<long>(to)]) * width, [&](size_t i, std::byte* at) {
        PutInteger(spec.dtype, Value(who, spec, begin * width + i), at);
      });
    }
  }
  return result;
}

Payload::Payload(const Contributor& who, const ProgramOp& op, Where where, bool in_place,
                 Transport* transport)
    : spec_(op.SpecOf(who.index)),
      rows_(op.rows[who.index]),
      largest_error_(LargestError(spec_, who.size, who.hosts)),
      gets_(Gets(spec_.kind, Rank{spec_.root} == transport->rank())),
      in_place_(in_place && !Gathers(spec_.kind) && spec_.kind != Kind::kReducescatter) {
  if (spec_.kind == Kind::kAlltoall) TakeSplits(who, op);
  const size_t elem_bytes = SizeOf(spec_.dtype);
  size_t elem = 0;
  for (int64_t n : spec_.elems) {
    const auto count = static_cast<size_t>(Gathers(spec_.kind) ? n * rows_ : n);
    Piece piece = NewPiece(count * elem_bytes, where, transport);
    piece.expected_at = elem * elem_bytes;
    for (size_t i = 0; i < count; ++i)
      PutInteger(spec_.dtype, Value(who, spec_, elem++), piece.data + i * elem_bytes);
    piece.before.assign(piece.data, piece.data + piece.before.size());
    inputs_.push_back(std::move(piece));
    if (where == Where::kArenaAskew && who.index % 2 == 1) transport->AllocData(64);
  }
  if (in_place_ || Gathers(spec_.kind)) return;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    ElemRange part{0, spec_.elems[i]};
    if (spec_.kind == Kind::kReducescatter) part = PartOf(who, spec_.elems[i]);
    Piece piece =
        NewPiece(static_cast<size_t>(part.end - part.begin) * elem_bytes, where, transport);
    piece.expected_at = inputs_[i].expected_at + static_cast<size_t>(part.begin) * elem_bytes;
    outputs_.push_back(std::move(piece));
  }
}

// The input of this member, and its own part of the result of all.
void Payload::TakeSplits(const Contributor& who, const ProgramOp& op) {
  const auto rows_of = [&](size_t from, size_t to) { return op.splits[from * who.size + to]; };
  const size_t row_bytes = static_cast<size_t>(spec_.elems[0]) * SizeOf(spec_.dtype);
  rows_ = 0;
  for (size_t j = 0; j < who.size; ++j) {
    splits_.push_back(rows_of(who.index, j));
    rows_ += splits_.back();
    gathered_.length += static_cast<size_t>(rows_of(j, who.index)) * row_bytes;
    for (size_t to = 0; to < who.index; ++to)
      gathered_.begin += static_cast<size_t>(rows_of(j, to)) * row_bytes;
  }
}

Payload::Piece Payload::NewPiece(size_t length_bytes, Where where, Transport* transport) const {
  Piece piece;
  if (where != Where::kHeap && length_bytes > 0)
    piece.data = static_cast<std::byte*>(transport->AllocData(length_bytes));
  if (piece.data == nullptr) {  // also when the arena is full
    piece.own.resize(std::max<size_t>(length_bytes, 1));
    piece.data = piece.own.data();
  }
  std::memset(piece.data, kUnwrittenByte, length_bytes);
  piece.before.assign(piece.data, piece.data + length_bytes);
  return piece;
}

void Payload::FillIn(Request* request) const {
  request->kind = spec_.kind;
  request->op = spec_.op;
  request->average = spec_.average;
  request->root = Rank{spec_.root};
  request->prescale = spec_.prescale;
  request->postscale = spec_.postscale;
  if (ChosenCodec chosen; !spec_.codec.empty() && ParseCodec(spec_.codec, &chosen).ok()) {
    request->codec = chosen.text;
    request->form = chosen.form;
  }
  const auto tensor = [&](int64_t elems, std::byte* data) {
    Tensor t;
    t.dtype = spec_.dtype;
    t.data = data;
    t.shape.ndim = 1;
    t.shape.dims[0] = elems;
    if (Gathers(spec_.kind)) {
      t.shape.ndim = 2;
      t.shape.dims[0] = rows_;
      t.shape.dims[1] = elems;
    }
    return t;
  };
  for (size_t i = 0; i < inputs_.size(); ++i)
    request->inputs.push_back(tensor(spec_.elems[i], inputs_[i].data));
  if (in_place_) request->outputs = request->inputs;
  for (size_t i = 0; i < outputs_.size(); ++i)
    request->outputs.push_back(tensor(
        static_cast<int64_t>(outputs_[i].before.size() / SizeOf(spec_.dtype)), outputs_[i].data));
  request->splits = splits_;
}

void Payload::Hide() {
  for (Piece& piece : inputs_) std::memset(piece.data, kHiddenByte, piece.before.size());
}

bool Payload::Show() {
  bool whole = true;
  for (Piece& piece : inputs_) {
    for (size_t i = 0; i < piece.before.size(); ++i)
      whole &= piece.data[i] == std::byte{kHiddenByte};
    std::copy(piece.before.begin(), piece.before.end(), piece.data);
  }
  return whole;
}

std::string Payload::CheckDone(const Bytes& expected, const std::byte* gathered) const {
  if (Gathers(spec_.kind)) {
    size_t length = splits_.empty() ? expected.size() : gathered_.length;
    if (!gets_) length = 0;
    if (gathered_.begin + length > expected.size()) return "the result has another length";
    if (length > 0 && std::memcmp(gathered, expected.data() + gathered_.begin, length) != 0)
      return "gathered rows are wrong";
    return CheckInputsWhole();
  }
  const std::vector<Piece>& results = Results();
  const size_t end =
      results.empty() ? 0 : results.back().expected_at + results.back().before.size();
  if (spec_.kind != Kind::kReducescatter && end != expected.size())
    return "the result has another length";
  for (const Piece& piece : results) {
    const size_t at = piece.expected_at;
    const size_t length = piece.before.size();
    if (at + length > expected.size()) return "the result has another length";
    if (!spec_.codec.empty()) {
      const std::string wrong = CheckClose(piece, expected.data() + at);
      if (!wrong.empty()) return wrong;
      continue;
    }
    for (size_t i = 0; i < length; ++i)
      if (piece.data[i] != expected[at + i])
        return "byte " + std::to_string(at + i) + " of " + std::to_string(expected.size()) +
               " of the result is " + std::to_string(static_cast<int>(piece.data[i])) + ", not " +
               std::to_string(static_cast<int>(expected[at + i]));
  }
  return in_place_ ? "" : CheckInputsWhole();
}

std::string Payload::CheckClose(const Piece& piece, const std::byte* expected) const {
  for (size_t i = 0; i < piece.before.size(); i += sizeof(float)) {
    float is = 0;
    float exact = 0;
    std::memcpy(&is, piece.data + i, sizeof(float));
    std::memcpy(&exact, expected + i, sizeof(float));
    if (std::abs(double{is} - double{exact}) <= largest_error_) continue;  // not of a NaN
    return "element " + std::to_string(i / sizeof(float)) + " is " + std::to_string(is) +
           ", farther than " + std::to_string(largest_error_) + " from " + std::to_string(exact);
  }
  return "";
}

Bytes Payload::Result() const {
  Bytes result;
  for (const Piece& piece : Results())
    result.insert(result.end(), piece.data, piece.data + piece.before.size());
  return result;
}

std::string Payload::CheckInputsWhole() const {
  if (in_place_) return "";
  for (const Piece& piece : inputs_)
    if (!std::equal(piece.before.begin(), piece.before.end(), piece.data))
      return "an input was written";
  return "";
}

std::string Payload::CheckAllWhole() const {
  for (const auto* pieces : {&inputs_, &outputs_})
    for (const Piece& piece : *pieces)
      if (!std::equal(piece.before.begin(), piece.before.end(), piece.data))
        return pieces == &inputs_ ? "an input was written" : "an output was written";
  return "";
}

void Payload::Poison() {
  for (auto* pieces : {&inputs_, &outputs_})
    for (Piece& piece : *pieces) std::memset(piece.data, kPoisonByte, piece.before.size());
}

std::string Payload::CheckPoison() const {
  for (const auto* pieces : {&inputs_, &outputs_})
    for (const Piece& piece : *pieces)
      for (size_t i = 0; i < piece.before.size(); ++i)
        if (piece.data[i] != std::byte{kPoisonByte})
          return "memory was written after the operation had ended";
  return "";
}

}  // namespace covey
