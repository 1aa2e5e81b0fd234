// A rank's own model, as it was published last: each replaces the one before, and versions take it
// again until the next comes.
//
//   model              event                         becomes
//   new                Publish: a later one          nothing: no leader knows of it
//   new, none sent     Send                          sent, to the present leader
//   sent               acked                         acked; of the acked ones the last two stay
//   any                another leader                to be sent again, if it is the latest
//
// A proposal names the model that the leader knows. A leader that acknowledges a later one has
// proposed the one before it at most to versions whose proposals come first, so the last two serve
// each attempt that may be told here. Messages of an attempt hold what it takes.
#ifndef COVEY_CORE_REPLICATED_LATEST_MODEL_H_
#define COVEY_CORE_REPLICATED_LATEST_MODEL_H_

#include <deque>
#include <span>
#include <vector>

#include "core/replicated/contributions.h"

namespace covey {

class LatestModel final : public Contributions {
 public:
  explicit LatestModel(size_t length_bytes);

  std::byte* open() const override { return open_.data(); }
  void Publish(uint64_t step, std::span<const double> hypers) override;
  void Skip(uint64_t step) override;
  const Pending* Send() override;
  void OnAck(const Contribution& content) override;
  Slice Propose(const Contribution& part) override;
  void OnConsumed(uint64_t step) override;
  void OnExecuted(uint64_t) override {}
  void OnNewLeader() override;

  bool empty() const override {
    return models_.empty() || models_.back().content.last <= consumed_;
  }
  bool AreAllSent() const override { return models_.empty() || models_.back().is_sent; }
  const Pending* model() const override { return models_.empty() ? nullptr : &models_.back(); }
  // The latest, if no version has had it.
  std::vector<Contribution> contents() const override;

 private:
  CountedBytes NewBuffer();

  size_t length_bytes_;
  std::deque<Pending> models_;  // by step
  std::vector<CountedBytes> spare_;
  CountedBytes open_;
  uint64_t consumed_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_LATEST_MODEL_H_
