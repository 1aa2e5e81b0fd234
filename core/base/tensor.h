// A tensor handed in by a framework, and the request made of tensors. Plain values.
//
// Memory is borrowed from the framework from submit until the operation has ended (covey.h,
// convention 5); shapes and names are owned here.
#ifndef COVEY_CORE_BASE_TENSOR_H_
#define COVEY_CORE_BASE_TENSOR_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/collective.h"
#include "core/base/encoded_layout.h"
#include "core/base/status.h"
#include "core/base/types.h"

namespace covey {

inline constexpr int kMaxDims = 16;

// Dimensions of a dense row-major tensor; ndim 0 is a scalar of one element.
struct Shape {
  int32_t ndim = 0;
  std::array<int64_t, kMaxDims> dims{};

  int64_t Elems() const {
    int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= dims[i];
    return n;
  }
  // Elements of one slice along dimension 0. REQUIRES: ndim >= 1.
  int64_t RowElems() const {
    int64_t n = 1;
    for (int i = 1; i < ndim; ++i) n *= dims[i];
    return n;
  }
  bool operator==(const Shape& other) const {
    if (ndim != other.ndim) return false;
    for (int i = 0; i < ndim; ++i)
      if (dims[i] != other.dims[i]) return false;
    return true;
  }
};

std::string ToString(const Shape& shape);  // "[2, 3]"

struct Tensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::byte* data = nullptr;
  DeviceType device = DeviceType::kCpu;
  int32_t device_index = 0;
  void* stream = nullptr;
  void* ready_event = nullptr;

  size_t LengthBytes() const { return static_cast<size_t>(shape.Elems()) * SizeOf(dtype); }
};

// Fills memory of whole elements with what leaves every other operand of a reduction as it is.
void FillIdentity(DType dtype, Op op, std::span<std::byte> memory);

// Dimension 0 split over `size` members as evenly as possible, the first get one more
// (reducescatter): where the part of member `index` begins.
constexpr int64_t PartBegin(int64_t rows, int64_t size, int64_t index) {
  return rows / size * index + (index < rows % size ? index : rows % size);
}

// The members of a group in ascending order. Immutable; lives as long as the runtime.
struct Group {
  uint64_t key = 0;  // 0 = the world; else a hash of the members, equal on every rank
  std::vector<Rank> members;
  GroupIndex my_index{-1};
  std::vector<int32_t> hosts;  // by member: HostsOf of core/transport
  bool shares_memory = true;   // all ranks of the job

  int size() const { return static_cast<int>(members.size()); }
  Rank Coordinator() const { return members.front(); }  // the lowest rank
};

// The key of the group with these (sorted, distinct) members, and of that with names of its own
// which `order` tells apart. Never 0.
uint64_t GroupKey(const std::vector<Rank>& members, std::string_view order = {});

// A memo of a name, kept from one request to the next: it saves the look-up. Used by the holder of
// the progress lock.
struct NameMemo {
  void* stream = nullptr;  // the negotiator's
};

// One operation over the members of a group, as covey_request describes it, validated.
struct Request {
  Kind kind = Kind::kBarrier;
  const Group* group = nullptr;
  std::string name;          // empty = unnamed
  NameMemo* memo = nullptr;  // of the name, in its group; null: nothing is kept
  Op op = Op::kSum;          // never kAverage: a divisor when it runs, `average` kept for messages
  bool average = false;
  Rank root = kNoRank;
  double prescale = 1.0;
  double postscale = 1.0;
  std::string codec;        // with every parameter (core/run/codec.h); empty = none
  EncodedLayout form;       // of the codec
  uint64_t draw = 0;        // seed of a codec that rounds at random; 0: by the occurrence
  bool feeds_back = false;  // the codec's residual is in a later contribution: each travels alone
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;  // one per input; none where the kind gathers
  std::vector<int64_t> splits;  // alltoall: rows of the input for each member, from the first on
  std::vector<uint64_t> peers;  // neighbor_allreduce: the own table of core/base/neighbor_weights.h
  Time submitted_at = 0;
  uint64_t waits = 0;    // how often this rank had waited for an operation before it submitted this
  bool awaited = false;  // a thread waits for it (agree-N6); the holder of the progress lock's
  bool callback_only = false;  // no thread waits for its handle: a callback tells its end
  uint32_t place = 0;          // this rank's operation of this number; 0: none of its own
  bool is_proxy = false;  // submitted by the runtime for a rank that has joined (core/agree/join.h)
  // Events of the inputs' device that the runtime recorded, and gives back at the end.
  std::vector<void*> recorded;
  // Copies of tensors that the request lists twice (core/engine/overlap.h).
  std::vector<std::unique_ptr<std::byte[]>> apart;
  Status refusal;  // not ok: this rank takes no part, so all members fail, for this reason

  // Written by the runtime before the operation ends, where the kind gathers; rows also by a join.
  std::vector<int64_t> rows;  // of the result, from each member; join: [1] the last rank
  std::unique_ptr<std::byte[]> gathered;
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_TENSOR_H_
