// The bundles of a rank by group and number, and which of them are being filled.
#ifndef COVEY_CORE_AGREE_BUNDLE_TABLE_H_
#define COVEY_CORE_AGREE_BUNDLE_TABLE_H_

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/agree/bundle.h"

namespace covey {

class BundleTable {
 public:
  using Key = std::pair<uint64_t, uint32_t>;  // group, number

  Bundle* Find(const Key& key) const {  // null: none
    const auto found = bundles_.find(key);
    return found == bundles_.end() ? nullptr : found->second.get();
  }
  void Add(const Key& key, std::unique_ptr<Bundle> bundle) { bundles_[key] = std::move(bundle); }
  // A plan that no bundle came of.
  void Cancel(const Key& key) { bundles_.erase(key); }
  // A bundle whose names are not used any more.
  void Drop(const Key& key) { dropped_ += bundles_.erase(key); }

  // One more front is held by the bundle.
  void Hold(Bundle* bundle, const Request& front) {
    if (bundle->held == 0) filling_.push_back(bundle);
    bundle->Hold(front);
    ++holds_;
  }
  // The exchange that the bundle was filled for is over.
  void OnEnd(Bundle* bundle) { std::erase(filling_, bundle); }

  const std::map<Key, std::unique_ptr<Bundle>>& all() const { return bundles_; }
  // Those with a held front: few, where there may be many bundles.
  const std::vector<Bundle*>& filling() const { return filling_; }
  // Calls fn(Request*) for each request that waits for the rest of its bundle.
  template <typename Fn>
  void ForEachHeld(Fn fn) const {
    for (const Bundle* bundle : filling_) {
      if (bundle->carrier.state != StreamState::kIdle) continue;
      for (Stream* member : bundle->members)
        if (member->state == StreamState::kHeld) fn(member->Front());
    }
  }
  // Calls fn(const Stream&) for each bundle's own stream.
  template <typename Fn>
  void ForEachCarrier(Fn fn) const {
    for (const auto& [key, bundle] : bundles_) fn(bundle->carrier);
  }
  // When the first of those that are being filled has waited long enough (agree-N6).
  Time NextDeadline() const {
    Time next = kNever;
    for (const Bundle* bundle : filling_) next = std::min(next, bundle->Patience());
    return next;
  }
  uint64_t holds() const { return holds_; }                      // fronts ever held
  size_t planned() const { return bundles_.size() + dropped_; }  // bundles ever planned

 private:
  std::map<Key, std::unique_ptr<Bundle>> bundles_;
  std::vector<Bundle*> filling_;
  uint64_t holds_ = 0;
  size_t dropped_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_AGREE_BUNDLE_TABLE_H_
