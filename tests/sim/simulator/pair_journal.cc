#include "tests/sim/simulator/pair_journal.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "core/base/kernels.h"

namespace covey {
namespace {

constexpr double kRounding = 1e-2;  // of sums of float32; progress is 1 or more

}  // namespace

PairJournal::PairJournal(const PairMemory* memory) : memory_(memory) {
  const auto size = static_cast<size_t>(memory->size());
  models_.resize(size);
  progress_.resize(size);
  goes_on_.resize(size);
  own_.resize(size);
}

void PairJournal::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

PairJournal::Model PairJournal::Resolve(int32_t i) {
  const ModelWord word = ModelWord::Of(*memory_->ModelAt(i));
  if (word.number == 0) return {};
  if (!word.engaged) return {{word.owner, word.buffer}, word.number};
  const RecordWord decision = RecordWord::Of(*memory_->RecordWordAt(word.owner));
  if (decision.number != word.number) {
    Fail("3: model " + std::to_string(i) + " is engaged in an exchange that is over");
    return models_[static_cast<size_t>(i)];
  }
  ++undecided;
  const bool own = i == word.owner;
  const ModelWord before = ModelWord::Of(*memory_->RecordAt(word.owner, own ? 1 : 2));
  if (decision.state != RecordState::kCommitted)
    return {{before.owner, before.buffer}, before.number};
  const uint64_t first = *memory_->RecordAt(word.owner, 0);
  const auto buffer = static_cast<uint32_t>((own ? first : first >> 8) & 0xff);
  return {{word.owner, buffer}, before.number + 1};
}

void PairJournal::Look() {
  std::vector<Model> now;
  std::vector<int32_t> changed;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    now.push_back(Resolve(i));
    // An exchange that was aborted changes the number alone.
    if (now.back().place != models_[static_cast<size_t>(i)].place) changed.push_back(i);
  }
  for (const auto& [place, bytes] : held_)
    if (std::memcmp(memory_->Buffer(place.first, place.second), bytes.data(), bytes.size()) != 0)
      Fail("2: buffer " + std::to_string(place.second) + " of rank " + std::to_string(place.first) +
           " was written while a word names it");
  if (!changed.empty() && failure_.empty()) OnChange(now, changed);
}

void PairJournal::OnChange(const std::vector<Model>& now, const std::vector<int32_t>& changed) {
  for (const int32_t i : changed) {
    const Model& model = now[static_cast<size_t>(i)];
    if (held_.count(model.place) == 0) {
      const std::byte* at = memory_->Buffer(model.place.first, model.place.second);
      held_[model.place] = Bytes(at, at + memory_->layout().length_bytes());
    }
    if (model.place.first == i) own_[static_cast<size_t>(i)] = held_[model.place];
    hash_ = (hash_ ^ (static_cast<uint64_t>(i) * 31 + model.number)) * 1099511628211u;
  }
  if (changed.size() == 2) {
    CheckMean(now, changed[0], changed[1]);
  } else {
    const auto i = static_cast<size_t>(changed[0]);
    if (changed.size() > 2 || now[i].place.first != changed[0])
      Fail("1: model " + std::to_string(i) + " was changed by another rank alone");
    if (models_[i].number == 0) {
      Count(own_[i], 1);
    } else if (goes_on_[i]) {
      goes_on_[i] = false;
      progress_[i].clear();  // It begins with what it has learnt meanwhile.
      Count(*ModelOf(changed[0]), -1);
      Count(own_[i], 1);
    } else if (progress_[i].empty()) {
      Fail("1: rank " + std::to_string(i) + " has changed its model, and had nothing to push");
    } else {
      ++updates;
      for (size_t e = 0; e < expected_.size(); ++e) expected_[e] += progress_[i][e];
      progress_[i].clear();
    }
  }
  models_ = now;
  for (auto at = held_.begin(); at != held_.end();) {
    const bool named = std::any_of(models_.begin(), models_.end(), [&](const Model& model) {
      return model.number > 0 && model.place == at->first;
    });
    at = named ? std::next(at) : held_.erase(at);
  }
  CheckSum();
}

// Two models change at once to what is their mean, bit for bit; with a codec nearly.
void PairJournal::CheckMean(const std::vector<Model>& now, int32_t a, int32_t b) {
  ++exchanges;
  const Model& one = now[static_cast<size_t>(a)];
  const Model& other = now[static_cast<size_t>(b)];
  if (error_ ? one.place.first != other.place.first || one.place == other.place
             : one.place != other.place)
    return Fail("1: ranks " + std::to_string(a) + " and " + std::to_string(b) +
                " have changed at once, and not by one exchange");
  if (HasPushed(one.place.first) == non_blocking_)
    Fail("7: rank " + std::to_string(one.place.first) +
         (non_blocking_ ? " averages" : " keeps back") + " the steps it has just done");
  const Bytes* before_a = ModelOf(a);
  const Bytes* before_b = ModelOf(b);
  if (before_a == nullptr || before_b == nullptr) return Fail("1: who has not begun was averaged");
  Bytes expected(before_a->size());
  for (const RoundLayout::Tile& tile : memory_->layout().tiles()) {
    const std::byte* inputs[] = {before_a->data() + tile.offset_bytes,
                                 before_b->data() + tile.offset_bytes};
    std::byte* output = expected.data() + tile.offset_bytes;
    ScalarKernels().reduce({.dtype = tile.dtype, .op = Op::kSum, .divisor = 2},
                           std::span<const std::byte* const>(inputs),
                           std::span<std::byte* const>(&output, 1), tile.count, Stores::kCached);
  }
  CheckResults(expected, a, b, held_[one.place], held_[other.place]);
  CheckEqualStay({before_a, before_b}, {&held_[one.place], &held_[other.place]});
}

// By codecs to which a number's neighbors are nothing.
void PairJournal::CheckEqualStay(const std::array<const Bytes*, 2>& before,
                                 const std::array<const Bytes*, 2>& after) {
  if (!keeps_equal_) return;
  const std::vector<double> x = Values(*before[0]), y = Values(*before[1]);
  const std::vector<double> new_x = Values(*after[0]), new_y = Values(*after[1]);
  for (size_t e = 0; e < x.size(); ++e) {
    if (x[e] != y[e]) continue;
    if (new_x[e] != x[e] || new_y[e] != x[e])
      Fail("9: what was equal in two models is " + std::to_string(new_x[e]) + " and " +
           std::to_string(new_y[e]) + ", not " + std::to_string(x[e]));
  }
}

void PairJournal::CheckResults(const Bytes& mean, int32_t a, int32_t b, const Bytes& of_a,
                               const Bytes& of_b) {
  const std::string who = "ranks " + std::to_string(a) + " and " + std::to_string(b);
  const int32_t initiator = ModelWord::Of(*memory_->ModelAt(a)).owner;
  const double error = error_ ? error_(static_cast<size_t>(initiator)) : 0;
  if (error == 0) {
    if (!IsEqual(of_a, mean) || !IsEqual(of_b, mean))
      Fail("1: " + who + " have something else than their mean");
    return;
  }
  ++coded;
  const std::vector<double> means = Values(mean), ones = Values(of_a), others = Values(of_b);
  for (size_t e = 0; e < means.size(); ++e) {
    const double rounding =
        (std::abs(means[e]) + std::abs(ones[e]) + std::abs(others[e])) * 0x1p-23;
    if (std::abs(ones[e] - means[e]) > error + rounding ||
        std::abs(others[e] - means[e]) > error + rounding)
      Fail("8: " + who +
           " are further from their mean than half a step: " + std::to_string(ones[e]) + " and " +
           std::to_string(others[e]) + ", not " + std::to_string(means[e]));
    if (std::abs(ones[e] + others[e] - 2 * means[e]) > 2 * rounding)
      Fail("8: the sum of " + who + " has moved by what is lost in rounding");
  }
}

void PairJournal::CheckSum() {
  std::vector<double> sum(expected_.size());
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const Bytes* model = ModelOf(i);
    if (model == nullptr) continue;
    const std::vector<double> values = Values(*model);
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += values[e];
  }
  for (size_t e = 0; e < sum.size(); ++e)
    if (std::abs(sum[e] - expected_[e]) > kRounding)
      return Fail("1: the sum of all models is " + std::to_string(sum[e]) + " at element " +
                  std::to_string(e) + ", not " + std::to_string(expected_[e]));
}

void PairJournal::OnProgress(int32_t rank, const std::vector<double>& progress) {
  std::vector<double>& all = progress_[static_cast<size_t>(rank)];
  all.resize(progress.size());
  for (size_t e = 0; e < all.size(); ++e) all[e] += progress[e];
}

void PairJournal::OnTaken(int32_t rank, const Bytes& model) {
  Look();
  if (!IsEqual(model, own_[static_cast<size_t>(rank)]))
    Fail("4: rank " + std::to_string(rank) + " trains on something else than it has published");
  if (!progress_[static_cast<size_t>(rank)].empty())
    Fail("1: rank " + std::to_string(rank) + " has pushed what is in no model");
}

void PairJournal::OnGoOn(int32_t rank) { goes_on_[static_cast<size_t>(rank)] = true; }

void PairJournal::CheckMeanOfAll(const Bytes& model) {
  const auto size = static_cast<size_t>(memory_->size());
  std::vector<const std::byte*> models(size);
  Bytes mean(model.size());
  for (const RoundLayout::Tile& tile : memory_->layout().tiles()) {
    for (size_t i = 0; i < size; ++i)
      models[i] = ModelOf(static_cast<int32_t>(i))->data() + tile.offset_bytes;
    std::byte* to = mean.data() + tile.offset_bytes;
    ScalarKernels().reduce(
        {.dtype = tile.dtype, .op = Op::kSum, .divisor = static_cast<int32_t>(size)}, models,
        std::span<std::byte* const>(&to, 1), tile.count, Stores::kCached);
  }
  if (!IsEqual(mean, model)) Fail("5: what all have after finish() is not the mean of all");
}

void PairJournal::CheckOwn(int32_t rank, const Bytes& model) {
  Look();
  if (!IsEqual(model, *ModelOf(rank)))
    Fail("5: rank " + std::to_string(rank) + " keeps something else than it has");
}

void PairJournal::CheckMeanOfEpoch(int32_t rank, int epoch, const Bytes& mean) {
  Bytes& first = means_[epoch];
  if (first.empty()) first = mean;
  if (!IsEqual(first, mean))
    Fail("5: an epoch ends with two means, rank " + std::to_string(rank) + "'s is the second");
}

void PairJournal::CheckProgress(int32_t rank, const Bytes& taken, const Bytes& model) {
  const std::vector<double> before = Values(taken), after = Values(model);
  const std::vector<double>& progress = progress_[static_cast<size_t>(rank)];
  for (size_t e = 0; e < before.size(); ++e)
    if (std::abs(before[e] + progress[e] - after[e]) > kRounding)
      return Fail("5: what rank " + std::to_string(rank) + " learnt while others finished is lost");
}

const Bytes* PairJournal::ModelOf(int32_t i) const {
  const Model& model = models_[static_cast<size_t>(i)];
  return model.number == 0 ? nullptr : &held_.at(model.place);
}

bool PairJournal::IsEqual(const Bytes& a, const Bytes& b) const {
  const auto& tiles = memory_->layout().tiles();
  return a.size() == b.size() &&
         std::all_of(tiles.begin(), tiles.end(), [&](const RoundLayout::Tile& tile) {
           return std::memcmp(a.data() + tile.offset_bytes, b.data() + tile.offset_bytes,
                              tile.count * SizeOf(tile.dtype)) == 0;
         });
}

std::vector<double> PairJournal::Values(const Bytes& model) const {
  std::vector<double> values;
  for (const RoundLayout::Tile& tile : memory_->layout().tiles())
    for (size_t i = 0; i < tile.count; ++i) {
      const std::byte* at = model.data() + tile.offset_bytes + i * SizeOf(tile.dtype);
      float single = 0;
      double value = 0;
      if (tile.dtype == DType::kF32) {
        std::memcpy(&single, at, sizeof(single));
        value = static_cast<double>(single);
      } else {
        std::memcpy(&value, at, sizeof(value));
      }
      values.push_back(value);
    }
  return values;
}

void PairJournal::Count(const Bytes& model, double sign) {
  const std::vector<double> values = Values(model);
  expected_.resize(values.size());
  for (size_t e = 0; e < values.size(); ++e) expected_[e] += sign * values[e];
}

}  // namespace covey
