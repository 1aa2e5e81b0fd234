#include "core/replicated/pending_contributions.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace covey {

PendingContributions::PendingContributions(const RoundLayout* layout, const Kernels* kernels)
    : layout_(layout), kernels_(kernels), open_(NewBuffer()) {}

CountedBytes PendingContributions::NewBuffer() {
  const auto free = std::find_if(spare_.begin(), spare_.end(),
                                 [](const CountedBytes& one) { return !one.IsShared(); });
  if (free == spare_.end()) return CountedBytes::Zeroed(layout_->length_bytes());
  std::swap(*free, spare_.back());
  CountedBytes buffer = std::move(spare_.back());
  spare_.pop_back();
  return buffer;
}

void PendingContributions::AddSum(std::byte* to, const std::byte* sum) const {
  for (const RoundLayout::Tile& tile : layout_->tiles()) {
    std::byte* at = to + tile.offset_bytes;
    const std::byte* inputs[] = {at, sum + tile.offset_bytes};
    kernels_->reduce({.dtype = tile.dtype, .op = Op::kSum},
                     std::span<const std::byte* const>(inputs), std::span<std::byte* const>(&at, 1),
                     tile.count, Stores::kCached);
  }
}

void PendingContributions::Add(Pending* to, const std::byte* sum, const Contribution& content) {
  AddSum(to->sum.data(), sum);
  to->content.last = content.last;
  to->content.arrived = content.arrived;
  to->content.count += content.count;
}

void PendingContributions::Publish(uint64_t step, std::span<const double> hypers) {
  CHECK(pending_.empty() || step > pending_.back().content.arrived, "steps grow");
  const Contribution content{.first = step, .last = step, .count = 1, .arrived = step};
  // An empty contribution that is not sent says less than the step that comes.
  if (!pending_.empty() && pending_.back().is_new && !pending_.back().sum) pending_.pop_back();
  // replicated-W7b: a sent contribution does not grow: the leader may hold it as it was.
  if (!pending_.empty() && pending_.back().is_new) {
    Add(&pending_.back(), open_.data(), content);
  } else {
    Pending pending;
    pending.content = content;
    pending.sum = std::exchange(open_, {});
    pending_.push_back(std::move(pending));
    open_ = NewBuffer();
  }
  pending_.back().hypers.assign(hypers.begin(), hypers.end());
}

void PendingContributions::Skip(uint64_t step) {
  CHECK(pending_.empty() || step > pending_.back().content.arrived, "steps grow");
  if (pending_.empty() || !pending_.back().is_new) pending_.emplace_back();
  Contribution* content = &pending_.back().content;
  content->arrived = step;
  if (content->count == 0) content->first = content->last = step;
}

const Contributions::Pending* PendingContributions::Send() {
  for (Pending& pending : pending_) {
    if (pending.is_acked) continue;
    // replicated-W7b: one is under way at a time, so versions end between two contributions.
    if (pending.is_sent) return nullptr;
    pending.is_new = false;
    pending.is_sent = true;
    return &pending;
  }
  return nullptr;
}

// Where the leader's sum of two is that of what it got; adding them here again gives the same.
void PendingContributions::OnAck(const Contribution& content) {
  Pending* first = nullptr;
  bool is_after_proposed = false;
  for (Pending& pending : pending_) {
    if (!pending.is_sent || pending.content.arrived > content.arrived) break;
    pending.is_acked = true;
    // Older steps than all that lie there are in a version that is not known here yet.
    const bool is_empty = !pending.sum;
    if (!is_empty && (content.count == 0 || pending.content.first < content.first)) continue;
    // replicated-W14: an abandoned attempt has it, and may be committed by another leader.
    is_after_proposed |= pending.is_proposed;
    if (pending.is_proposed) continue;
    // A later contribution says more than an empty one before it.
    if (first != nullptr && !first->sum && !is_empty) std::exchange(first, nullptr)->content = {};
    if (first == nullptr && (!is_empty || content.count == 0 || is_after_proposed)) {
      first = &pending;
      continue;
    }
    if (first != nullptr) first->content.arrived = pending.content.arrived;
    if (!is_empty) {
      Add(first, pending.sum.data(), pending.content);
      first->hypers = pending.hypers;
      spare_.push_back(std::move(pending.sum));
    }
    pending.content = {};
  }
  std::erase_if(pending_, [](const Pending& pending) { return pending.content.arrived == 0; });
}

Slice PendingContributions::Propose(const Contribution& part) {
  std::vector<Pending*> parts;
  uint64_t count = 0;
  for (Pending& pending : pending_) {
    const Contribution& content = pending.content;
    if (!pending.sum || content.first < part.first || content.last > part.last) continue;
    parts.push_back(&pending);
    count += content.count;
  }
  if (count != part.count) return {};
  for (Pending* one : parts) one->is_proposed = true;
  const CountedBytes& first = parts[0]->sum;
  if (parts.size() == 1) return first;
  // In the order in which an acknowledgement would make them one.
  CountedBytes sum(Bytes(first.data(), first.data() + first.size()));
  for (size_t i = 1; i < parts.size(); ++i) AddSum(sum.data(), parts[i]->sum.data());
  return sum;
}

void PendingContributions::OnConsumed(uint64_t step) {
  while (!pending_.empty() && pending_.front().content.first <= step) {
    CHECK(pending_.front().content.last <= step, "a version ends between two contributions");
    if (pending_.front().sum) spare_.push_back(std::move(pending_.front().sum));
    pending_.pop_front();
  }
}

void PendingContributions::OnExecuted(uint64_t version) {
  std::erase_if(pending_, [version](const Pending& pending) {
    // replicated-W11: an empty contribution stays until versions have come as far: the next leader
    // needs it.
    return !pending.sum && pending.content.arrived <= version;
  });
}

void PendingContributions::OnNewLeader() {
  // replicated-W7b: contributions at the last leader are lost with it: all are sent again.
  for (Pending& pending : pending_) pending.is_sent = pending.is_acked = false;
}

uint64_t PendingContributions::Drop(uint64_t step) {
  uint64_t count = 0;
  for (; !pending_.empty() && pending_.front().content.arrived <= step; pending_.pop_front()) {
    count += pending_.front().content.count;
    if (pending_.front().sum) spare_.push_back(std::move(pending_.front().sum));
  }
  return count;
}

const std::byte* PendingContributions::Withdraw() {
  withdrawn_ = {};
  for (Pending& pending : pending_) {
    if (!pending.sum) continue;
    // Messages may hold what was sent.
    // replicated-W29: all that is left.
    if (!withdrawn_)
      withdrawn_ = CountedBytes(Bytes(pending.sum.data(), pending.sum.data() + pending.sum.size()));
    else
      AddSum(withdrawn_.data(), pending.sum.data());
    spare_.push_back(std::move(pending.sum));
  }
  pending_.clear();
  return withdrawn_.data();
}

std::vector<Contribution> PendingContributions::contents() const {
  std::vector<Contribution> all;
  for (const Pending& pending : pending_)
    if (pending.sum) all.push_back(pending.content);
  return all;
}

bool PendingContributions::empty() const {
  return std::all_of(pending_.begin(), pending_.end(), [](const Pending& p) { return !p.sum; });
}

bool PendingContributions::AreAllSent() const {
  return std::all_of(pending_.begin(), pending_.end(), [](const Pending& p) { return p.is_sent; });
}

}  // namespace covey
