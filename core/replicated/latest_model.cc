#include "core/replicated/latest_model.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace covey {
namespace {

constexpr std::ptrdiff_t kAckedKept = 2;

}  // namespace

LatestModel::LatestModel(size_t length_bytes) : length_bytes_(length_bytes), open_(NewBuffer()) {}

CountedBytes LatestModel::NewBuffer() {
  const auto free = std::find_if(spare_.begin(), spare_.end(),
                                 [](const CountedBytes& one) { return !one.IsShared(); });
  if (free == spare_.end()) return CountedBytes::Zeroed(length_bytes_);
  std::swap(*free, spare_.back());
  CountedBytes buffer = std::move(spare_.back());
  spare_.pop_back();
  return buffer;
}

void LatestModel::Publish(uint64_t step, std::span<const double> hypers) {
  CHECK(models_.empty() || step > models_.back().content.last, "steps grow");
  if (!models_.empty() && models_.back().is_new) {
    spare_.push_back(std::move(models_.back().sum));
    models_.pop_back();
  }
  Pending model;
  model.content = {.first = step, .last = step, .count = 1, .arrived = step};
  model.hypers.assign(hypers.begin(), hypers.end());
  model.sum = std::move(open_);
  models_.push_back(std::move(model));
  open_ = NewBuffer();
}

void LatestModel::Skip(uint64_t) { CHECK(false, "a rank that averages models publishes one"); }

const Contributions::Pending* LatestModel::Send() {
  const bool is_any_under_way = std::any_of(models_.begin(), models_.end(), [](const Pending& one) {
    return one.is_sent && !one.is_acked;
  });
  if (AreAllSent() || is_any_under_way) return nullptr;
  models_.back().is_new = false;
  models_.back().is_sent = true;
  return &models_.back();
}

void LatestModel::OnAck(const Contribution& content) {
  std::ptrdiff_t acked = 0;
  for (Pending& model : models_) {
    if (model.is_new || model.content.last > content.last) break;
    model.is_acked = true;
    ++acked;
  }
  // replicated-W19: a proposal that comes later names one of the last two that its leader knew.
  for (; acked > kAckedKept; --acked) {
    spare_.push_back(std::move(models_.front().sum));
    models_.pop_front();
  }
}

Slice LatestModel::Propose(const Contribution& part) {
  for (const Pending& model : models_)
    if (model.content.last == part.last) return model.sum;
  return {};
}

void LatestModel::OnConsumed(uint64_t step) { consumed_ = std::max(consumed_, step); }

void LatestModel::OnNewLeader() {
  for (Pending& model : models_) model.is_sent = model.is_acked = false;
}

std::vector<Contribution> LatestModel::contents() const {
  if (empty()) return {};
  return {models_.back().content};
}

}  // namespace covey
