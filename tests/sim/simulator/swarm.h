// The faults that a seed turns on, and their strength: drawn per seed, so that every combination
// comes up and no fault hides another (swarm testing, after Groce et al., ISSTA 2012, DOI
// 10.1145/2338965.2336763).
#ifndef COVEY_TESTS_SIM_SIMULATOR_SWARM_H_
#define COVEY_TESTS_SIM_SIMULATOR_SWARM_H_

#include <string>
#include <string_view>

#include "core/agree/stream_table.h"
#include "core/base/rng.h"
#include "core/base/types.h"

namespace covey {

// The rare mixtures that a set of seeds is to bring up often, because mutants need them. The draw
// is the same but for what the focus sets.
enum class Focus : uint8_t {
  kNone,
  kLosses,   // ranks die
  kAgreed,   // while they agree
  kDirect,   // while they write each other's memory
  kReports,  // stalls, and mailboxes that are full
  kJoins,    // ranks that run out of data
  kNames,    // names that are dropped, and come again
  kRepeats,  // small sums that come again and again
};
Focus FocusNamed(std::string_view name);  // "losses"; kNone of a name that it does not know

struct Swarm {
  // The job.
  int32_t size = 3;
  size_t segment_bytes = 4096;
  size_t flat_bytes = 1024;
  uint64_t landing_bytes = 0;  // odd ranks; the others twice that
  size_t read_bytes = 2048;
  std::string algorithm = "auto";
  uint64_t blind_ranks = 0;  // bit r: rank r cannot read its peers' memory
  Time stall_warning = 10 * kSecond;
  bool mirrored = false;    // ranks of different hosts share no memory
  int32_t per_host = 1;     // ranks of a host, if mirrored; the last may have fewer
  size_t fusion_bytes = 0;  // 0: no bundles
  Time fusion_window = kMillisecond;
  RetireRules retire;  // off but in the focus

  // The program.
  bool training = false;  // steps of alike allreduces in flight together, then waited for
  size_t streams = 6;
  size_t ops = 40;
  size_t window = 4;             // a rank submits out of order by so many
  uint64_t change_percent = 10;  // of operations whose shape all ranks change
  uint64_t odd_percent = 5;      // of operations in which one rank deviates
  uint64_t wait_percent = 30;    // of submits followed by waiting for something
  uint64_t think_percent = 5;    // of submits after which the program does something else
  bool leaving = false;          // a finished rank leaves at once
  bool coding = false;           // some reductions travel encoded
  bool joining = false;          // ranks run out of data; later all go on together
  bool repeats = false;          // sums that come again begin where they are submitted
  size_t device_memory = 0;      // that devices may have in common, odd ranks half of it; 0: none
  int32_t opens_nothing = -1;    // this rank's device does not open that of others; -1: all do
  Time device_delay = 0;  // inputs are computed by a device, at most so late; 0: there is none

  // Time. Delays are the longest; each is drawn uniformly.
  Time step = 20 * kMicrosecond;
  Time message_delay = 100 * kMicrosecond;
  Time store_delay = 0;
  Time news_delay = 0;
  uint64_t switch_permille = 10;  // of transport calls at which another rank goes on
  int32_t looks = 2;              // idle passes before a rank sleeps
  uint64_t slow_ranks = 0;        // bit r: rank r runs sixteen times less

  // Faults.
  size_t mailbox_messages = 64;
  uint64_t refusal_percent = 0;
  uint64_t clog_percent = 0;
  uint64_t pauses_ppm = 0;  // of steps in which a rank is stopped for up to five seconds
  uint64_t kills_ppm = 0;   // of steps in which a rank dies
  int32_t most_kills = 0;
  size_t region_bytes = 24 << 20;

  static Swarm Draw(Rng* rng, Focus focus = Focus::kNone);
  bool small_region() const { return region_bytes < (1 << 20); }
  // One line, for the reader of a failing seed.
  std::string ToString() const;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_SWARM_H_
