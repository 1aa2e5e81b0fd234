#include "core/engine/trainer_state.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <system_error>

namespace covey {
namespace {

using Array = TrainerState::Array;

// A record of each array, which a NUL ends: "0 1 70000 momentum", without a name "0 1 70000".
std::string TextOf(const std::vector<Array>& arrays) {
  std::string text;
  for (const Array& array : arrays) {
    text += std::to_string(static_cast<int>(array.dtype)) + (array.is_average ? " 1 " : " 0 ") +
            std::to_string(array.count);
    if (!array.name.empty()) text += " " + array.name;
    text += '\0';
  }
  return text;
}

// The number that `text` begins with, and what follows its blank.
bool ReadNumber(std::string_view* text, int64_t most, int64_t* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || *number < 0 || *number > most) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  if (!text->empty() && text->front() != ' ') return false;
  if (!text->empty()) text->remove_prefix(1);
  return true;
}

bool ReadArray(std::string_view record, Array* array) {
  int64_t dtype = 0, is_average = 0;
  const bool is_read = ReadNumber(&record, kNumDTypes - 1, &dtype) &&
                       ReadNumber(&record, 1, &is_average) &&
                       ReadNumber(&record, INT64_MAX, &array->count);
  array->dtype = static_cast<DType>(dtype);
  array->is_average = is_average != 0;
  array->name = record;
  return is_read;
}

// `slot`: a text, and zeros after it.
bool ReadList(std::string_view slot, std::vector<Array>* arrays) {
  while (!slot.empty() && slot.front() != '\0') {
    const size_t length = slot.find('\0');
    if (length == std::string_view::npos) return false;
    if (!ReadArray(slot.substr(0, length), &arrays->emplace_back())) return false;
    slot.remove_prefix(length + 1);
  }
  return true;
}

// FNV-1a; a bit less, so that it has a negative.
int64_t HashOf(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return static_cast<int64_t>(hash >> 1);
}

bool IsOfKind(const Array& a, const Array& b) {
  return a.dtype == b.dtype && a.is_average == b.is_average && a.count == b.count;
}

std::string KindOf(const Array& array) {
  return std::string(NameOf(array.dtype)) + "[" + std::to_string(array.count) + "] (" +
         NameOf(array.is_average ? Op::kAverage : Op::kMax) + ")";
}

bool IsBefore(const Array& a, const Array& b) { return a.name < b.name; }

}  // namespace

void TrainerState::List(std::vector<Array> arrays) {
  own_ = std::move(arrays);
  std::stable_sort(own_.begin(), own_.end(), IsBefore);
  all_.clear();
  memory_.clear();
  texts_.clear();
  phase_ = Phase::kListed;
}

Status TrainerState::Next(std::vector<Allreduce>* next) {
  next->clear();
  switch (phase_) {
    case Phase::kListed:
      AddDigest(next);
      phase_ = Phase::kDigest;
      return Status::Ok();
    case Phase::kDigest:
      if (AreEqual()) {
        all_ = own_;
        break;
      }
      AddTexts(next);
      phase_ = Phase::kTexts;
      return Status::Ok();
    case Phase::kTexts:
      RETURN_IF_ERROR(Unite());
      break;
    case Phase::kAverages:
      return Status::Ok();
  }
  AddAverages(next);
  phase_ = Phase::kAverages;
  return Status::Ok();
}

void TrainerState::AddDigest(std::vector<Allreduce>* next) {
  text_ = TextOf(own_);
  digest_[0] = HashOf(text_);
  digest_[1] = static_cast<int64_t>(text_.size());
  digest_[2] = -digest_[0];
  digest_[3] = -digest_[1];
  next->push_back({.word = "state",
                   .dtype = DType::kI64,
                   .op = Op::kMax,
                   .count = 4,
                   .data = reinterpret_cast<std::byte*>(digest_)});
}

// train-T15: whether the texts of all members are equal: the greatest digest is the least one.
bool TrainerState::AreEqual() const {
  return digest_[0] == -digest_[2] && digest_[1] == -digest_[3];
}

void TrainerState::AddTexts(std::vector<Allreduce>* next) {
  const auto longest = static_cast<size_t>(digest_[1]);
  texts_.assign(longest * group_->members.size(), std::byte{0});
  const auto me = static_cast<size_t>(ToInt(group_->my_index));
  if (!text_.empty()) std::memcpy(texts_.data() + me * longest, text_.data(), text_.size());
  next->push_back({.word = "state.lists",
                   .dtype = DType::kU8,
                   .op = Op::kMax,
                   .count = static_cast<int64_t>(texts_.size()),
                   .data = texts_.data()});
}

std::string_view TrainerState::Slot(size_t member) const {
  const auto longest = static_cast<size_t>(digest_[1]);
  return {reinterpret_cast<const char*>(texts_.data()) + member * longest, longest};
}

Status TrainerState::Unite() {
  std::vector<std::vector<Array>> lists(group_->members.size());
  for (size_t i = 0; i < lists.size(); ++i)
    if (!ReadList(Slot(i), &lists[i]))
      return Status::Internal("what the optimizer of '" + trainer_ + "' keeps on " + RankOf(i) +
                              " cannot be read");
  const auto has_no_names = [](const std::vector<Array>& list) {
    return !list.empty() && list.front().name.empty();
  };
  const bool goes_by_order = std::any_of(lists.begin(), lists.end(), has_no_names);
  return goes_by_order ? UniteByOrder(lists) : UniteByName(lists);
}

// Lists that differ, of arrays without names on a member: the first difference.
Status TrainerState::UniteByOrder(const std::vector<std::vector<Array>>& lists) const {
  size_t least = SIZE_MAX, most = 0;
  for (const std::vector<Array>& list : lists) {
    least = std::min(least, list.size());
    most = std::max(most, list.size());
  }
  if (least != most)
    return Status::Mismatch("the optimizers of '" + trainer_ + "' keep " + std::to_string(least) +
                            " to " + std::to_string(most) +
                            " arrays beside the model, this rank's " + std::to_string(own_.size()) +
                            ": all have to list as many, or to name them");
  for (size_t i = 1; i < lists.size(); ++i)
    for (size_t k = 0; k < most; ++k) {
      if (lists[i][k].name.empty() != lists[0][k].name.empty())
        return Status::Mismatch("the optimizer of '" + trainer_ + "' names its arrays on " +
                                RankOf(lists[i][k].name.empty() ? 0 : i) + ", and not on " +
                                RankOf(lists[i][k].name.empty() ? i : 0));
      if (!IsOfKind(lists[i][k], lists[0][k]))
        return Differ("array " + std::to_string(k), lists[0][k], 0, lists[i][k], i);
    }
  return Status::Internal("the lists of '" + trainer_ + "' are equal, and their digests differ");
}

Status TrainerState::UniteByName(const std::vector<std::vector<Array>>& lists) {
  struct Found {
    Array array;
    size_t member;
  };
  std::map<std::string, Found> found;
  for (size_t i = 0; i < lists.size(); ++i)
    for (const Array& array : lists[i]) {
      const auto [at, is_new] = found.try_emplace(array.name, Found{array, i});
      // train-T15: a name stands for one kind of array on all members.
      if (!is_new && !IsOfKind(at->second.array, array))
        return Differ("array '" + array.name + "'", at->second.array, at->second.member, array, i);
    }
  for (auto& [name, it] : found) {
    Array& array = all_.emplace_back(std::move(it.array));
    const auto own = std::lower_bound(own_.begin(), own_.end(), array, IsBefore);
    if (own != own_.end() && own->name == name) {
      array.data = own->data;
      continue;
    }
    // train-T15: it counts as zeros here.
    memory_.emplace_back(static_cast<size_t>(array.count) * SizeOf(array.dtype));
    array.data = memory_.back().data();
  }
  return Status::Ok();
}

void TrainerState::AddAverages(std::vector<Allreduce>* next) const {
  for (size_t i = 0; i < all_.size(); ++i) {
    const Array& array = all_[i];
    if (array.count == 0) continue;
    next->push_back({.word = "state." + std::to_string(i),
                     .dtype = array.dtype,
                     .op = array.is_average ? Op::kSum : Op::kMax,
                     .is_average = array.is_average,
                     .count = array.count,
                     .data = array.data});
  }
}

Status TrainerState::Differ(const std::string& which, const Array& a, size_t of, const Array& b,
                            size_t other) const {
  return Status::Mismatch(which + " of the optimizer of '" + trainer_ + "' is " + KindOf(a) +
                          " on " + RankOf(of) + ", and " + KindOf(b) + " on " + RankOf(other));
}

std::string TrainerState::RankOf(size_t member) const {
  return "rank " + std::to_string(ToInt(group_->members[member]));
}

}  // namespace covey
