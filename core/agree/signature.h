// The signature of an operation: all members of a group must agree on it before it may run
// (agree-N2).
//
// Not in the signature, because it may differ between ranks: memory placement, dimension 0 of
// tensors that is gathered and alltoall's splits (they travel with the begin header), the ready
// event, the stream. Plain values; pure functions.
#ifndef COVEY_CORE_AGREE_SIGNATURE_H_
#define COVEY_CORE_AGREE_SIGNATURE_H_

#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/base/wire.h"

namespace covey {

// Which occurrence of which stream (agree-N1).
struct OperationId {
  uint64_t group = 0;
  std::string stream;
  uint64_t occurrence = 0;

  bool operator==(const OperationId&) const = default;
  auto operator<=>(const OperationId&) const = default;
};

struct Signature {
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kF32;
  Op op = Op::kSum;
  bool average = false;
  DeviceType device = DeviceType::kCpu;
  Rank root = kNoRank;
  double prescale = 1.0;
  double postscale = 1.0;  // as the user gave it, without average's 1/n
  std::string codec;       // empty = none; its form follows from it
  EncodedLayout form;
  bool feeds_back = false;    // the codec's residuals are in later contributions
  std::vector<Shape> shapes;  // one per tensor; dims[0] is 0 where kinds gather

  size_t Elems() const;
  size_t LengthBytes() const { return Elems() * SizeOf(dtype); }
  // Of what travels.
  size_t TravellingBytes() const {
    return form.Codes() ? form.EncodedBytes(Elems()) : LengthBytes();
  }
  bool operator==(const Signature&) const = default;
};

Signature SignatureOf(const Request& request);

// SignatureOf(request) == signature, without building it: the check of every steady-state submit.
bool Matches(const Request& request, const Signature& signature);

// The first aspect in which two signatures differ, in words: "shapes differ: {a} has [2, 3], {b}
// has [3, 2]" with the given names for the two sides. REQUIRES: a != b.
std::string DescribeDifference(const Signature& a, const std::string& name_a, const Signature& b,
                               const std::string& name_b);

void Encode(const Signature& signature, Writer* writer);
bool Decode(Reader* reader, Signature* signature);  // false: not a signature this build knows

}  // namespace covey
#endif  // COVEY_CORE_AGREE_SIGNATURE_H_
