// A rank's own contributions until they are in a version that is decided, or known to be.
//
// A slot (core/round/slot.h) is emptied by whoever reads it; what is sent to a leader may be lost
// with it, so it stays here until a decided version says that it counts. Sent are whole pieces, in
// order, one at a time: the next once the leader holds the last.
//
//   piece        event                       becomes
//   new          Publish: another step       the same, with that step
//   new          sent                        sent: nothing is added to it any more
//   sent         held as (first..last)       one with the other pieces within first..last
//   any          consumed up to its last     nothing: it counts
//   any          another leader              the same, to be sent again, but not `new` again
//
// Invariant: a version ends between two pieces, never within one: the leader that holds two as one
// takes them as one, and what an earlier leader had proposed is decided or void before a leader
// holds anything (rule W7).
#ifndef COVEY_CORE_HOSTS_PIECES_H_
#define COVEY_CORE_HOSTS_PIECES_H_

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/round/layout.h"
#include "core/round/memory.h"
#include "core/run/kernels.h"

namespace covey {

class Pieces {
 public:
  struct Piece {
    Contribution content;
    std::vector<double> hypers;
    std::unique_ptr<std::byte[]> sum;
    bool is_new = true;                     // it was never sent
    bool is_sent = false, is_held = false;  // by, to the present leader
  };

  // Both outlive the pieces.
  Pieces(const RoundLayout* layout, const Kernels* kernels);

  std::byte* open() const { return open_.get(); }
  // REQUIRES: step grows.
  void Publish(uint64_t step, std::span<const double> hypers);
  // The piece to send now, which is sent from now on; null: none.
  const Piece* Send();
  void OnHeld(const Contribution& content);
  void OnConsumed(uint64_t step);
  void OnNewLeader();

  bool empty() const { return pieces_.empty(); }
  bool AreAllSent() const;
  std::vector<Contribution> contents() const;  // for checkers

 private:
  std::unique_ptr<std::byte[]> NewBuffer();
  void Add(Piece* to, const std::byte* sum, const Contribution& content);

  const RoundLayout* layout_;
  const Kernels* kernels_;
  std::deque<Piece> pieces_;  // by step
  std::vector<std::unique_ptr<std::byte[]>> spare_;
  std::unique_ptr<std::byte[]> open_;
};

}  // namespace covey
#endif  // COVEY_CORE_HOSTS_PIECES_H_
