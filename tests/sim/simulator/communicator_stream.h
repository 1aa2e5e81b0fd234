// The operations of ranks in the simulator of communicators, and their results.
#ifndef COVEY_TESTS_SIM_SIMULATOR_COMMUNICATOR_STREAM_H_
#define COVEY_TESTS_SIM_SIMULATOR_COMMUNICATOR_STREAM_H_

#include <algorithm>
#include <string>
#include <vector>

#include "core/engine/tensor_queue.h"

namespace covey {

// An operation that is submitted every round.
struct CommunicatorStream {
  size_t group = 0;
  std::string name;
  Kind kind = Kind::kAllreduce;
  Op op = Op::kSum;
  bool average = false;
  size_t elems = 1;  // a multiple of the group's size
  size_t root = 0;   // group index
};

// One rank's part of one, in one round.
struct CommunicatorShare {
  std::vector<float> computed, input, output;
  void* event = nullptr;
  Operation* operation = nullptr;
  bool judged = false;
};

// Element `at` of the whole result.
inline float ExpectedOf(const CommunicatorStream& stream,
                        const std::vector<CommunicatorShare>& shares, size_t at) {
  if (stream.kind == Kind::kBroadcast) return shares[stream.root].computed[at];
  float value = shares[0].computed[at];
  for (size_t j = 1; j < shares.size(); ++j) {
    const float other = shares[j].computed[at];
    value = stream.op == Op::kSum   ? value + other
            : stream.op == Op::kMin ? std::min(value, other)
            : stream.op == Op::kMax ? std::max(value, other)
                                    : value * other;
  }
  return stream.average ? value / static_cast<float>(shares.size()) : value;
}

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_COMMUNICATOR_STREAM_H_
