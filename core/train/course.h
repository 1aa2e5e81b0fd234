// Which steps the versions of models come after, and where a rank is between two of them.
//
// They come `length` steps apart, and after the last step before `until`, where another part of the
// training begins: if a member is missing there, the part goes on from that step in the same way.
//
// One thread at a time.
#ifndef COVEY_CORE_TRAIN_COURSE_H_
#define COVEY_CORE_TRAIN_COURSE_H_

#include <algorithm>
#include <cstdint>

namespace covey {

class Course {
 public:
  // `until` kForever: there is no other part. This rank has done `at` steps of the method.
  Course(int64_t begin, int64_t until, int64_t length, int64_t at)
      : begin_(begin), until_(until), length_(std::max<int64_t>(1, length)), at_(at) {}

  // How many steps are done after so many versions more, when `at` are.
  int64_t After(int64_t at, int64_t versions) const;
  // The steps that this rank has done when it has merged with a version last,
  int64_t at() const { return at_; }
  // and since then.
  int64_t done() const { return done_; }
  int64_t steps() const { return at_ + done_; }
  // Up to its next version.
  int64_t left() const { return After(at_, 1) - at_ - done_; }
  bool IsAtEnd() const { return at_ >= until_; }

  void OnUpdated() { ++done_; }
  // Its model is published; `step`: the number of the one before.
  void OnPublished(uint64_t step);
  // It has become what a version makes of it, and counts as step `own_step`: versions that the rank
  // has missed count as done.
  void OnMerged(uint64_t own_step);
  // By a version of finish(), in which a rank has done so many steps, and none more: all go on from
  // there.
  void OnFinished(int64_t steps) { at_ = steps; }
  void Restore(int64_t done) { done_ = done; }

 private:
  int64_t begin_, until_, length_;
  int64_t at_, done_ = 0;
  int64_t published_at_ = 0;  // at() when the model was published
  uint64_t step_ = 0;         // of the model published before
};

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_COURSE_H_
