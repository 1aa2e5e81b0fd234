// A random program of a job: the operations that every rank submits, their order, and its waits.
//
// Pure: a program is a function of a Swarm and a seed. It ends whatever the ranks' speeds. Proof:
// operations are numbered; a rank waits for operation k only when it has submitted all of its
// operations up to k. Of all operations that are waited for take the lowest, k: a member that has
// not submitted k would wait for a lower one. Unnamed operations of a group keep their order.
//
// Where ranks run out of data, operations fall into epochs. In an epoch a rank submits what all
// ranks do together up to a number of its own, then a join, which ends when all have joined; what
// it does with some of the ranks only goes on. In the order above a join is submitted at that
// number and waited for after all of the epoch.
#ifndef COVEY_TESTS_SIM_SIMULATOR_PROGRAM_H_
#define COVEY_TESTS_SIM_SIMULATOR_PROGRAM_H_

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/base/types.h"
#include "tests/sim/simulator/swarm.h"

namespace covey {

// The request of a member.
struct Spec {
  Kind kind = Kind::kAllreduce;
  DType dtype = DType::kF32;
  Op op = Op::kSum;
  bool average = false;
  int32_t root = -1;  // a rank
  double prescale = 1.0;
  double postscale = 1.0;
  std::string codec;           // of an allreduce of float32; empty: none
  std::vector<int64_t> elems;  // of each tensor; allgather, alltoall: of one row

  bool operator==(const Spec&) const = default;
};

struct ProgramStream {
  std::string name;  // empty: the unnamed operations of the group
  std::vector<int32_t> members;
  std::vector<Spec> specs;  // its operations take one of them
};

struct ProgramOp {
  size_t stream = 0;
  uint64_t occurrence = 0;
  Spec spec;
  std::vector<int64_t> rows;    // allgather: of each member
  std::vector<int64_t> splits;  // alltoall: rows that member i has for j at i * members + j
  int32_t odd = -1;             // group index of the member that asks for `odd_spec` instead
  Spec odd_spec;
  std::vector<bool> joined;  // by group index: has no data for it, and does not submit it

  const Spec& SpecOf(size_t index) const {
    return static_cast<int32_t>(index) == odd ? odd_spec : spec;
  }
  bool Joined(size_t index) const { return !joined.empty() && joined[index]; }
  bool AnyJoined() const { return std::find(joined.begin(), joined.end(), true) != joined.end(); }
};

// All ranks join between two epochs.
struct ProgramJoin {
  size_t op = 0;     // behind all others
  size_t begin = 0;  // operations of the epoch: [begin, end)
  size_t end = 0;
  std::vector<size_t> from;  // by rank: its first operation of the world for which it has no data
};

enum class ActionKind : uint8_t { kSubmit, kWait, kThink };

struct Action {
  ActionKind kind = ActionKind::kSubmit;
  size_t op = 0;
  Time think = 0;
};

struct Program {
  std::vector<ProgramStream> streams;
  std::vector<ProgramOp> ops;
  std::vector<ProgramJoin> joins;
  std::vector<std::vector<Action>> actions;  // by rank

  const std::vector<int32_t>& MembersOf(size_t op) const { return streams[ops[op].stream].members; }
};

Program MakeProgram(const Swarm& swarm, Rng* rng);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_PROGRAM_H_
