// The memory of one rank for one operation, and what must be in it afterwards: the slow obvious
// reference.
//
// Every contribution is a small integer that no other member, element or operation has, so that one
// lost, doubled or swapped shows; sums of them are exact in every element type. Memory is filled
// with poison once the operation has ended: a peer that still reads it computes a wrong result, one
// that still writes it is found by CheckPoison.
#ifndef COVEY_TESTS_SIM_SIMULATOR_PAYLOAD_H_
#define COVEY_TESTS_SIM_SIMULATOR_PAYLOAD_H_

#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/base/wire.h"
#include "core/transport/transport.h"
#include "tests/sim/simulator/program.h"

namespace covey {

// Which contributions: of member `index` of a group of `size` to operation `op`.
struct Contributor {
  uint64_t seed = 0;
  size_t op = 0;
  size_t index = 0;
  size_t size = 1;
  size_t hosts = 1;  // on which the members lie
};

// The result that operation `op` must give on all ranks: all tensors end to end; allgather: all
// rows; alltoall: what each member gets, end to end.
Bytes Expected(uint64_t seed, const Program& program, size_t op);

class Payload {
 public:
  enum class Where : uint8_t { kHeap, kArena, kArenaAskew };  // askew: each rank's lie differently

  // Memory filled with the contribution. In place where the draw says so.
  Payload(const Contributor& who, const ProgramOp& op, Where where, bool in_place,
          Transport* transport);

  void FillIn(Request* request) const;

  // The inputs hold something else until they are shown. Show: false when that was written to.
  void Hide();
  bool Show();

  // Empty when right, else what is wrong. `gathered` is allgather's result, else ignored.
  std::string CheckDone(const Bytes& expected, const std::byte* gathered) const;
  Bytes Result() const;                  // as it lies in the outputs, end to end
  std::string CheckInputsWhole() const;  // where outputs are apart
  std::string CheckAllWhole() const;     // nothing was written at all

  void Poison();
  std::string CheckPoison() const;

 private:
  struct Piece {
    std::byte* data = nullptr;
    Bytes own;               // the memory, unless it lies in the arena
    Bytes before;            // its content at submit
    size_t expected_at = 0;  // where its result stands in what is expected
  };

  struct Slice {
    size_t begin = 0;
    size_t length = 0;
  };

  const std::vector<Piece>& Results() const { return in_place_ ? inputs_ : outputs_; }
  void TakeSplits(const Contributor& who, const ProgramOp& op);
  std::string CheckClose(const Piece& piece, const std::byte* expected) const;
  Piece NewPiece(size_t length_bytes, Where where, Transport* transport) const;

  Spec spec_;
  int64_t rows_ = 0;
  std::vector<int64_t> splits_;  // alltoall
  Slice gathered_;               // alltoall: of what all get
  double largest_error_ = 0;     // of an element of the result; where it travels encoded
  bool is_root_ = false;
  bool gets_ = true;  // whether this rank has a result
  bool in_place_ = false;
  std::vector<Piece> inputs_;
  std::vector<Piece> outputs_;  // empty: in place, or allocated by the runtime
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_PAYLOAD_H_
