// The offer of a rank until versions have it: gradients, which add up
// (pending_contributions.h), or its model, which the next replaces (latest_model.h).
#ifndef COVEY_CORE_REPLICATED_CONTRIBUTIONS_H_
#define COVEY_CORE_REPLICATED_CONTRIBUTIONS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/counted_bytes.h"
#include "core/partial/memory.h"

namespace covey {

class Contributions {
 public:
  struct Pending {
    Contribution content;
    std::vector<double> hypers;
    CountedBytes sum;    // none: it is an empty contribution
    bool is_new = true;  // it was never sent
    bool is_proposed = false;
    bool is_sent = false, is_acked = false;  // by, to the present leader
  };

  virtual ~Contributions() = default;

  virtual std::byte* open() const = 0;
  // REQUIRES: step grows.
  virtual void Publish(uint64_t step, std::span<const double> hypers) = 0;
  // The same with nothing to give. REQUIRES: gradients.
  virtual void Skip(uint64_t step) = 0;
  // The contribution to send now, which is sent from now on; null: none.
  virtual const Pending* Send() = 0;
  virtual void OnAck(const Contribution& content) = 0;
  // The content of the steps of `part`, which are proposed: it does not change any more. Empty: it
  // has them not as such.
  virtual Slice Propose(const Contribution& part) = 0;
  virtual void OnConsumed(uint64_t step) = 0;
  // The last version that is committed.
  virtual void OnExecuted(uint64_t version) = 0;
  // The rank has finished, and is not waited for: a version of empty contributions alone would
  // serve no rank.
  void OnFinished() { OnExecuted(~uint64_t{0}); }
  virtual void OnNewLeader() = 0;
  // No version will have what comes up to that step; so many steps. Models stay.
  virtual uint64_t Drop(uint64_t) { return 0; }
  // Gradients. No version will have what is left: the sum of that, which stays there; null: nothing
  // was.
  virtual const std::byte* Withdraw() { return nullptr; }

  // A version has all of it, but for empty contributions.
  virtual bool empty() const = 0;
  virtual bool AreAllSent() const = 0;
  // Models: the one published last; null: none was.
  virtual const Pending* model() const { return nullptr; }
  virtual std::vector<Contribution> contents() const = 0;  // for checkers; without empty ones
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_CONTRIBUTIONS_H_
