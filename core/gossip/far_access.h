// The access of ranks on other hosts to the model that a rank shares on its own: what they are
// given of it, and what they move it by.
//
// Sans-IO; as the Gossip of that rank, with its lock.
#ifndef COVEY_CORE_GOSSIP_FAR_ACCESS_H_
#define COVEY_CORE_GOSSIP_FAR_ACCESS_H_

#include <functional>

#include "core/gossip/gossip.h"

namespace covey {

class FarAccess {
 public:
  // `gossip` outlives it. REQUIRES: Gossip::End::kElsewhere.
  explicit FarAccess(Gossip* gossip) : gossip_(gossip) {}

  // Calls `read` with a model that this rank has, or had a moment ago, laid out as a buffer; again
  // if it has changed meanwhile.
  void Read(const std::function<void(const std::byte* model)>& read);
  // `scale` times a difference, laid out as a buffer, is added to the model.
  void Add(const std::byte* difference, double scale);
  // No rank of this host averages with this one from now on, until Gossip::GoOn, also if it had
  // begun to; and they may again.
  void HandIn();
  void TakeBack();

 private:
  Gossip* gossip_;
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_FAR_ACCESS_H_
