// Optimizer state (momenta, counts of steps), made the same on all members: their arrays are united
// by name, and each becomes an average or a maximum. A member that has not listed an array
// contributes zeros.
//
// Sans-IO: Next says what all members allreduce, in place, before Next is called again:
//
//   digest    hash and length of the member's list as a text. Mostly all are equal.
//   texts     where they differ: the lists of all, each in its member's slot and zeros elsewhere,
//             so a maximum of bytes is an allgather. Every member reads the same union, or finds
//             the same difference.
//   averages  each array of the union that has elements
//
// Invariant: members whose allreduces have all ended well get allreduces of equal words, dtypes and
// counts, in the same order, or all get the same error.
//
// One thread at a time.
#ifndef COVEY_CORE_ENGINE_TRAINER_STATE_H_
#define COVEY_CORE_ENGINE_TRAINER_STATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/tensor.h"

namespace covey {

class TrainerState {
 public:
  struct Array {
    std::string name;  // empty: an array of the list's order; then no member names any
    DType dtype = DType::kF32;
    bool is_average = true;  // else the maximum
    int64_t count = 0;       // elements; 0: the name only says that it is there
    std::byte* data = nullptr;
  };
  struct Allreduce {
    std::string word;  // its name
    DType dtype = DType::kF32;
    Op op = Op::kSum;
    bool is_average = false;
    int64_t count = 0;
    std::byte* data = nullptr;
  };

  // `trainer`: its name, for people. `group` outlives this.
  TrainerState(std::string trainer, const Group* group)
      : trainer_(std::move(trainer)), group_(group) {}
  TrainerState(const TrainerState&) = delete;

  // This member's arrays, in memory that stays as it is until the last allreduce has ended. All
  // have names that differ, or none has one. Replaces an earlier list.
  void List(std::vector<Array> arrays);
  // The allreduces to be done next. The first call after List begins; each later one follows when
  // those before have ended well on this member. None: it is over. kMismatch: the lists do not
  // agree, on all members.
  Status Next(std::vector<Allreduce>* next);
  // Once it is over: the union, in the order of names. Arrays that this member has not listed lie
  // in memory of this object, until List or Clear.
  const std::vector<Array>& arrays() const { return all_; }
  void Clear() { List({}); }

 private:
  enum class Phase : uint8_t { kListed, kDigest, kTexts, kAverages };

  void AddDigest(std::vector<Allreduce>* next);
  bool AreEqual() const;
  void AddTexts(std::vector<Allreduce>* next);
  std::string_view Slot(size_t member) const;
  Status Unite();
  Status UniteByOrder(const std::vector<std::vector<Array>>& lists) const;
  Status UniteByName(const std::vector<std::vector<Array>>& lists);
  void AddAverages(std::vector<Allreduce>* next) const;
  Status Differ(const std::string& which, const Array& a, size_t of, const Array& b,
                size_t other) const;
  std::string RankOf(size_t member) const;

  std::string trainer_;
  const Group* group_;
  Phase phase_ = Phase::kListed;
  std::vector<Array> own_;  // by name
  std::vector<Array> all_;
  std::string text_;        // of own_
  int64_t digest_[4] = {};  // hash and length of text_, and both with the other sign
  std::vector<std::byte> texts_;
  std::vector<std::vector<std::byte>> memory_;  // of arrays that this member has not listed
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_STATE_H_
