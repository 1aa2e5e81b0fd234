// When a rank pushes its progress, and the partner it averages with then: some steps of its own,
// then one of two forms, neither of which waits.
//
//   form        what is averaged with the partner         its steps since then
//   blocking    its model, with the steps just done       none are left
//   copies      what both pushed last (SwarmSGD's         are added to the mean, and pushed, for
//               communication copies Y; not blocking)     the next rank that averages with it
//
// The partner's own steps, wherever it is in them, are as they were in both: X - B does not change.
//
// Lian et al., ICML 2018, arXiv:1710.06952 (one step); Nadiradze, Sabour, Davies, Li, Alistarh:
// Asynchronous Decentralized SGD with Quantized and Local Updates, NeurIPS 2021, arXiv:1910.12308.
// Sans-IO; one thread at a time.
#ifndef COVEY_CORE_GOSSIP_STEPS_H_
#define COVEY_CORE_GOSSIP_STEPS_H_

#include <span>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "core/gossip/gossip.h"
#include "core/plan/topology.h"

namespace covey {

class FarPairs;

// The same on all ranks.
struct PairRule {
  Topology topology;          // that gives pairs; its seed is that of random numbers of steps too
  bool all_begin = true;      // else of each pair the rank that IsFirst says
  int64_t local_steps = 1;    // of a rank between what it pushes
  bool is_random = false;     // these are a mean: geometrically distributed, each rank's by itself
  bool non_blocking = false;  // the second form
};

// Counts a rank's own steps.
class LocalSteps {
 public:
  LocalSteps(int32_t self, const PairRule& rule);

  // One more is over: whether it was the last.
  bool IsLast();
  // The next one is the first.
  void Restart() { left_ = 0; }
  // Steps were done since the last one that was.
  bool IsBetween() const { return left_ > 0; }

 private:
  PairRule rule_;
  Rng rng_;
  int64_t left_ = 0;  // 0: not drawn yet
};

class GossipSteps {
 public:
  // The outcome of a step: nothing while its local steps are not over.
  struct Met {
    // Its index; -1: it has averaged with no rank. One on another host has an offer, or will.
    int32_t partner = -1;
    bool merged = false;  // others had averaged with this rank since its last step
  };

  // `gossip` outlives it, and has begun when it is used. With members on several hosts it has those
  // of this one: `near` says, by member, its index there (-1: it is on another), and `far`, which
  // outlives it too, averages with the others.
  GossipSteps(int32_t self, const PairRule& rule, Gossip* gossip, std::vector<int32_t> near = {},
              FarPairs* far = nullptr)
      : self_(self),
        rule_(rule),
        local_steps_(self, rule),
        gossip_(gossip),
        near_(std::move(near)),
        far_(far) {}

  // `model` has become what it is by one step of this rank; it is what this rank has then.
  Met Step(std::span<void* const> model) { return CountStep() ? Exchange(model) : Met{}; }
  // The same in two: whether that was the last of its local steps; if so, the rest.
  bool CountStep() { return local_steps_.IsLast(); }
  Met Exchange(std::span<void* const> model);
  // Hands in what steps that are not the last of theirs have brought, and begins anew.
  void PushDelta(std::span<void* const> model);

 private:
  int32_t Average(std::span<void* const> model);
  Gossip::Outcome AverageWith(int32_t partner, std::span<void* const> model);

  int32_t self_;
  PairRule rule_;
  LocalSteps local_steps_;
  Gossip* gossip_;
  std::vector<int32_t> near_;  // empty: all members are near
  FarPairs* far_;
  uint64_t round_ = 0;  // of the topology: the next one of this rank
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_STEPS_H_
