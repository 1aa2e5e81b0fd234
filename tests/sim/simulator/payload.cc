#include "tests/sim/simulator/payload.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace covey {
namespace {

constexpr int kPoisonByte = 0xdb;
constexpr int kUnwrittenByte = 0x5a;

uint64_t Mix(uint64_t a, uint64_t b) { return Rng(a * 0x9e3779b97f4a7c15u + b).Next(); }

bool IsHalf(DType t) { return t == DType::kF16 || t == DType::kBF16; }
bool IsByte(DType t) { return t == DType::kU8 || t == DType::kI8; }

// What member `index` contributes as element `elem`.
int64_t Value(const Contributor& who, const Spec& spec, size_t elem) {
  const uint64_t h = Mix(Mix(who.seed, who.op * 64 + who.index), elem);
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

// v * scale as core/run/kernels.h says (K3, K4).
void PutScaled(DType dtype, int64_t v, double scale, std::byte* to) {
  if (scale == 1.0) return PutInteger(dtype, v, to);
  if (dtype == DType::kF32) return Put(to, static_cast<float>(v) * static_cast<float>(scale));
  if (dtype == DType::kF64) return Put(to, static_cast<double>(v) * scale);
  PutInteger(dtype, static_cast<int64_t>(std::trunc(static_cast<double>(v) * scale)), to);
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

void PutReduced(Contributor who, const Spec& spec, size_t elem, std::byte* to) {
  int64_t sum = 0;
  for (who.index = 0; who.index < who.size; ++who.index) {
    const int64_t mine = Value(who, spec, elem) * static_cast<int64_t>(spec.prescale);
    sum = who.index == 0 ? mine : Combine(spec.op, sum, mine);
  }
  const double average = spec.average ? 1.0 / static_cast<double>(who.size) : 1.0;
  PutScaled(spec.dtype, sum, spec.postscale * average, to);
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
  if (spec.kind == Kind::kAllreduce)
    append(Total(spec.elems), [&](size_t i, std::byte* to) { PutReduced(who, spec, i, to); });
  if (spec.kind == Kind::kBroadcast) {
    const auto root = std::find(members.begin(), members.end(), spec.root) - members.begin();
    who.index = static_cast<size_t>(root);
    append(Total(spec.elems), own);
  }
  if (spec.kind == Kind::kAllgather)
    for (who.index = 0; who.index < members.size(); ++who.index)
      append(static_cast<size_t>(op.rows[who.index] * spec.elems[0]), own);
  return result;
}

Payload::Payload(const Contributor& who, const ProgramOp& op, Where where, bool in_place,
                 Transport* transport)
    : spec_(op.SpecOf(who.index)),
      rows_(op.rows[who.index]),
      in_place_(in_place && spec_.kind != Kind::kAllgather) {
  size_t elem = 0;
  for (int64_t n : spec_.elems) {
    const auto count = static_cast<size_t>(spec_.kind == Kind::kAllgather ? n * rows_ : n);
    Piece piece = NewPiece(count * SizeOf(spec_.dtype), where, transport);
    for (size_t i = 0; i < count; ++i)
      PutInteger(spec_.dtype, Value(who, spec_, elem++), piece.data + i * SizeOf(spec_.dtype));
    piece.before.assign(piece.data, piece.data + piece.before.size());
    inputs_.push_back(std::move(piece));
    if (where == Where::kArenaAskew && who.index % 2 == 1) transport->AllocData(64);
  }
  if (in_place_ || spec_.kind == Kind::kAllgather) return;
  for (const Piece& input : inputs_)
    outputs_.push_back(NewPiece(input.before.size(), where, transport));
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
  const auto tensor = [&](int64_t elems, std::byte* data) {
    Tensor t;
    t.dtype = spec_.dtype;
    t.data = data;
    t.shape.ndim = 1;
    t.shape.dims[0] = elems;
    if (spec_.kind == Kind::kAllgather) {
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
    request->outputs.push_back(tensor(spec_.elems[i], outputs_[i].data));
}

std::string Payload::CheckDone(const Bytes& expected, const std::byte* gathered) const {
  if (spec_.kind == Kind::kAllgather) {
    if (!expected.empty() && std::memcmp(gathered, expected.data(), expected.size()) != 0)
      return "gathered rows are wrong";
    return CheckInputsWhole();
  }
  size_t at = 0;
  for (const Piece& piece : in_place_ ? inputs_ : outputs_) {
    const size_t length = piece.before.size();
    if (at + length > expected.size()) return "the result has another length";
    for (size_t i = 0; i < length; ++i)
      if (piece.data[i] != expected[at + i])
        return "byte " + std::to_string(at + i) + " of " + std::to_string(expected.size()) +
               " of the result is " + std::to_string(static_cast<int>(piece.data[i])) + ", not " +
               std::to_string(static_cast<int>(expected[at + i]));
    at += length;
  }
  if (at != expected.size()) return "the result has another length";
  return in_place_ ? "" : CheckInputsWhole();
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
