#include "tests/orders/choices.h"

namespace covey {

size_t Search::Choose(Question, size_t count) {
  if (at_ == path_.size()) path_.push_back({.taken = 0, .count = count});
  const size_t taken = path_[at_++].taken;
  deviations_ += taken > 0 ? 1 : 0;
  return taken;
}

std::string Search::ToString() const {
  std::string text = "deviations";
  for (size_t i = 0; i < path_.size(); ++i)
    if (path_[i].taken > 0) text += " " + std::to_string(i) + ":" + std::to_string(path_[i].taken);
  return text;
}

bool Search::Next() {
  path_.resize(at_);
  while (!path_.empty()) {
    Choice& last = path_.back();
    const size_t others = deviations_ - (last.taken > 0 ? 1 : 0);
    if (last.taken + 1 < last.count && others < most_) {
      ++last.taken;
      at_ = 0;
      deviations_ = 0;
      return true;
    }
    deviations_ = others;
    path_.pop_back();
  }
  return false;
}

Draw::Draw(uint64_t seed) : seed_(seed), rng_(seed) {
  // Few preemptions let a thread sleep through much of what the others do, many mix them.
  for (uint64_t& permille : permille_) permille = uint64_t{5} << rng_.Below(8);
}

size_t Draw::Choose(Question question, size_t count) {
  if (rng_.Below(1000) >= permille_[static_cast<size_t>(question)]) return 0;
  return rng_.Below(count);
}

}  // namespace covey
