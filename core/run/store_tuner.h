// Whether staging stores around the cache: learned from how long exchanges take.
//
// A peer reads what this rank stages. Where both cores share a cache it is there at once if it was
// stored into it; where they do not, fetching it out of another core's cache costs more than out of
// memory. On one and the same virtual machine both were seen within minutes, as its host moved the
// processors: two threads that copy and add 256 KiB took 17 us cached and 26 us around the cache,
// or 145 us and 52 us.
//
// Kept per size of message (powers of two). A trial does a few exchanges of both ways in turns, and
// the better one is used until the next trial; times of two different minutes are never compared.
// As long as trials say the same they become rarer. Results do not depend on it. One member of a
// group decides for all, because what one rank stores another one waits for. Pure: times are
// arguments. Not thread-safe.
#ifndef COVEY_CORE_RUN_STORE_TUNER_H_
#define COVEY_CORE_RUN_STORE_TUNER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/base/kernels.h"
#include "core/base/types.h"

namespace covey {

class StoreTuner {
 public:
  static constexpr size_t kLeastBytes = 32 * 1024;  // below it the difference does not show
  static constexpr uint32_t kSamples = 6;           // of each way in a trial
  static constexpr uint32_t kShortestRun = 64;      // exchanges from one trial to the next
  static constexpr uint32_t kLongestRun = 512;

  // For the next exchange of so long a message.
  Stores Next(size_t length_bytes);
  // One took so long.
  void Learn(size_t length_bytes, Stores stores, Time took);

 private:
  struct Way {
    std::array<double, kSamples> ns_per_kib{};
    uint32_t count = 0;  // in this trial

    double Usual() const;
  };
  struct Size {
    std::array<Way, 2> ways;  // by Stores
    Stores preferred = Stores::kCached;
    uint32_t run = kShortestRun;  // exchanges after this trial
    uint32_t left = 0;            // of them; 0: this is a trial
  };

  static void Decide(Size* size);

  static Stores Other(Stores s) {
    return s == Stores::kCached ? Stores::kStreaming : Stores::kCached;
  }
  static Way& Of(Size& size, Stores s) { return size.ways[static_cast<size_t>(s)]; }

  std::array<Size, 64> sizes_;  // by the length's highest bit
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_STORE_TUNER_H_
