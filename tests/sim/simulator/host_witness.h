// The keeper of the witness in the simulator of replicas: as frameworks/covey/launch/witness.py,
// with requests and answers that take their time. For a while some ranks cannot reach it, or it
// cannot reach them; from some time on it may be gone.
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_WITNESS_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_WITNESS_H_

#include <deque>
#include <vector>

#include "core/base/rng.h"
#include "core/replicated/witness.h"

namespace covey {

class HostWitness {
 public:
  // `span`: of the time in which ranks train.
  HostWitness(Rng rng, size_t size, Time now, Time span, Time longest_delay);

  void Send(int32_t rank, WitnessRequest request, Time now);
  bool Receive(int32_t rank, Time now, WitnessAnswer* answer);

  // Ranks cannot rely on it.
  bool may_be_gone() const { return gone_at_ < kNever; }
  bool HasRequestOf(int32_t rank) const;
  const WitnessRecord& record() const { return record_; }
  uint64_t requests() const { return requests_; }
  uint64_t votes() const { return votes_; }
  uint64_t acceptances() const { return acceptances_; }

 private:
  struct Request {
    int32_t rank;
    Time arrives;
    WitnessRequest request;
  };
  struct Answer {
    Time arrives;
    WitnessAnswer answer;
  };

  Time ArrivalOf(int32_t rank, bool is_answer, Time now);
  void Advance(Time now);

  Rng rng_;
  const Time longest_delay_;
  Time gone_at_ = kNever;
  uint64_t cut_ranks_ = 0;  // between these times
  bool cuts_requests_ = true, cuts_answers_ = true;
  Time cut_begin_ = kNever, cut_end_ = kNever;

  uint64_t state_ = 0;
  Bytes bytes_;
  WitnessRecord record_;
  std::deque<Request> on_way_;                 // in the order of their arrival
  std::vector<std::deque<Answer>> on_return_;  // by rank
  uint64_t requests_ = 0, votes_ = 0, acceptances_ = 0;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_WITNESS_H_
